// Decorator: a Store that owns another one and answers as it does, but for submit(), which each
// kind has for itself, and call(), which goes the way of submit() unless a kind knows a shorter
// one.
//
// The inner Store waits, when it goes, for completions that may use the members of the kind: so the
// destructor of a kind that has any calls end_inner(), before they go.
//
// Threads: as the inner Store.
#pragma once

#include <memory>
#include <utility>

#include "store/store.h"

namespace forebay {

class Decorator : public Store {
 public:
  void help(Callback<bool()> enough, bool wait) override { inner_->help(std::move(enough), wait); }
  Result<void> admits(const Request& request) override { return inner_->admits(request); }
  std::string_view identity(const Handle& handle) const override {
    return inner_->identity(handle);
  }
  unsigned concurrency() const override { return inner_->concurrency(); }
  std::byte* allocate(size_t size) override { return inner_->allocate(size); }
  bool deallocate(std::byte* memory) override { return inner_->deallocate(memory); }
  std::shared_ptr<const void> prepare(std::span<std::byte> memory, uint64_t piece) override {
    return inner_->prepare(memory, piece);
  }
  Result<LocalFile> local_file(const Request& request) override {
    return inner_->local_file(request);
  }
  bool writes_whole(const Handle& file) const override { return inner_->writes_whole(file); }
  void hold_leases(LeaseHolder* holder) override { inner_->hold_leases(holder); }
  void give_back(uint64_t lease) override { inner_->give_back(lease); }
  Duration leases_until() const override { return inner_->leases_until(); }
  Result<Handle> root() override { return inner_->root(); }

 protected:
  explicit Decorator(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
  Store& inner() const { return *inner_; }
  void end_inner() { inner_.reset(); }

 private:
  std::unique_ptr<Store> inner_;
};

}  // namespace forebay
