// Several servers that serve the same exports together, from their configuration: who they are, how
// this one reaches the others, and how a server that does not belong to them is kept away from
// their files.
//
// All of them export the same directories of one file system. Which servers they are is written
// down there, in `.forebay/servers` of each export, by the first: one that starts with another
// list, or alone, is refused, because it would take some files for its own that live elsewhere. To
// change the list all of them stop, and whoever does that removes the file.
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

// Is the export this server's to serve? Writes the list down if nobody has. `servers` is empty for
// one that is alone.
Result<void> claim_export(const ExportConfig& config, const std::vector<std::string>& servers);

}  // namespace forebay
