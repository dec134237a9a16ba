// GatherRoom: the memory in which those of one user who have a file in common (server/shortcuts.h)
// gather what they write (store/gathered_writes.h), as one process has it mapped. The server hands
// it over with the file; the same again if it is still there when the file is had anew.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <memory>

#include "core/fd.h"
#include "store/gathered_writes.h"
#include "transport/shared_pages.h"

namespace forebay {

class GatherRoom {
 public:
  // `before`: an earlier one of this process, or null. Null: it has to do without.
  static std::shared_ptr<GatherRoom> enter(Fd handed, std::shared_ptr<GatherRoom> before);

  posix::GatheredWrites& writes() { return writes_; }

 private:
  GatherRoom(std::shared_ptr<SharedPages> pages, ino_t number)
      : pages_(std::move(pages)), number_(number), writes_(pages_->bytes().data()) {}

  const std::shared_ptr<SharedPages> pages_;
  const ino_t number_;  // of the memory
  posix::GatheredWrites writes_;
};

}  // namespace forebay
