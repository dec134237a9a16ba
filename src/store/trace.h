// TraceStore: a decorator that writes one line for each request, when it has completed:
//
//   write 1f3a90c2 file=3 pieces, 12288 B in [0, 65536) uid=1000 -> 12288 B, 15.2 us
//   lookup 77d01b4e "a/b" uid=0 -> ENOENT, 2.0 us
//
// Handles are shown as a short hash, the same for the same handle. Names are quoted and what a
// terminal could misread is escaped. Any thread that the inner store's completions allow; the sink
// is called on the thread of the completion, before the completion, and must stand many at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "store/decorator.h"

namespace forebay {

using TraceSink = std::function<void(std::string_view line)>;

class TraceStore final : public Decorator {
 public:
  TraceStore(std::unique_ptr<Store> inner, const Clock& clock, TraceSink sink);
  ~TraceStore() override { end_inner(); }
  void submit(Request&& request, Completion&& done) override;
  // Nobody goes past it.
  Result<LocalFile> local_file(const Request& request) override {
    return Store::local_file(request);
  }

 private:
  struct Pending;
  const Clock& clock_;
  const TraceSink sink_;
};

// The parts of a line, before and after the arrow.
std::string format(const Request& request);
std::string format(Op op, const Result<Reply>& result, Duration took);

}  // namespace forebay
