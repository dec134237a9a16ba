#include "client/uncommitted.h"

namespace forebay {
namespace {

Error lost() {
  return Error(EIO,
               "the server restarted, or lost what it had acknowledged: writes to this file since "
               "its last commit may be lost");
}

}  // namespace

void Uncommitted::acknowledged(const Handle& file, uint64_t verifier) {
  File& f = files_[file.bytes];
  f.last = ++acknowledged_;
  if (f.first == 0) f = {verifier, f.last, f.last, false};
  f.lost |= f.verifier != verifier;
}

void Uncommitted::server_restarted() {
  for (auto& [handle, file] : files_) file.lost = true;
}

void Uncommitted::all_written() {
  std::erase_if(files_, [](const auto& entry) { return !entry.second.lost; });
}

std::optional<Error> Uncommitted::take_loss(const Handle& file) {
  const auto found = files_.find(file.bytes);
  if (found == files_.end() || !found->second.lost) return std::nullopt;
  files_.erase(found);
  return lost();
}

std::optional<Error> Uncommitted::settled(const Handle& file, uint64_t sent, uint64_t verifier) {
  const auto found = files_.find(file.bytes);
  if (found == files_.end() || found->second.first > sent) return std::nullopt;
  if (found->second.lost || found->second.verifier != verifier) {
    files_.erase(found);
    return lost();
  }
  if (found->second.last <= sent) files_.erase(found);
  return std::nullopt;
}

}  // namespace forebay
