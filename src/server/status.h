// A server's status as a JSON text: what `forebay status` shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/export.h"
#include "server/session.h"

namespace forebay::server {

struct SessionStatus {
  std::shared_ptr<const SessionInfo> info;
  std::string where;  // its connection of the moment
};

struct Status {
  std::string name;
  uint64_t boot = 0;
  Duration uptime{0};
  bool stopping = false;
  std::vector<std::shared_ptr<const Export>> exports;
  std::vector<SessionStatus> sessions;
};

std::string to_json(const Status& status);

}  // namespace forebay::server
