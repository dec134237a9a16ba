// NullStore: accepts data and forgets it; reads give zeros. It measures everything but storage, and
// it is the shortest complete Store: copy null.h and null.cc to start a new backend, then run
// tests/conformance over it.
//
// One directory with files in it; of a file only the name and the size are kept. Handles are plain
// names and rights are plain words, without a seal: there is nothing to protect. Everybody may do
// everything. What is not here (links, folders, extended attributes) answers EOPNOTSUPP.
//
// Any thread; completes on the submitting thread.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "store/store.h"

namespace forebay {

class NullStore final : public Store {
 public:
  void submit(Request&& request, Completion&& done) override;
  Result<Handle> root() override;

 private:
  Result<Reply> perform(const Request& r);
  Result<Reply> in_directory(const Request& r);
  Result<Reply> on_file(const Request& r, const std::string& name, uint64_t& size);
  Result<Reply> create(const Request& r);
  Reply list(const Request& r) const;
  static Reply described(const std::string& name, uint64_t size);

  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> sizes_;  // by name
};

}  // namespace forebay
