#include "server/shortcut_flight.h"

#include "server/session.h"

namespace forebay::server {

void ShortcutFlight::begin() {
  if (!here_ || session_->relayed() || !session_->region()) {
    return answer(Error(EOPNOTSUPP, "shortcuts are for clients that share memory with the server"));
  }
  if (!exported().options.shortcuts) {
    return answer(Error(EOPNOTSUPP, "the export gives no shortcuts"));
  }
  answer(session_->shortcuts().take(request_));
}

}  // namespace forebay::server
