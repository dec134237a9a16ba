// Several servers that serve the same exports together, from their configuration: who they are, and
// how this one reaches the others. All of them export the same directories of one file system; a
// server that does not belong to them is kept away from their files (claim.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assembly/config.h"
#include "server/server.h"
#include "transport/auth_key.h"
#include "transport/transport.h"

namespace forebay {

struct ClusterMember {
  std::string name;
  Address address;
};

// EINVAL says what is wrong with the list. Empty: there is none.
Result<std::vector<ClusterMember>> cluster_members(const ClusterConfig& config);

// Null if this server is alone; an error says what is missing (its own name in the list, a key,
// exports that others share).
Result<std::shared_ptr<const ClusterOptions>> cluster_options(const Config& config,
                                                              const std::string& name,
                                                              const AuthKeyRef& key);

}  // namespace forebay
