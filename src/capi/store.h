// fb_store and fb_file: what the handles of the C API are.
//
// A store owns its Store and the memory of its files; a file's memory is kept after its close and
// used again much later, so that a closed file is EBADF and never a dangling pointer.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "capi/helpers.h"
#include "forebay/forebay.h"

struct fb_store {
  fb_store(std::unique_ptr<forebay::Store> over, forebay::CallerRef as)
      : store(std::move(over)), caller(std::move(as)) {}
  ~fb_store();
  fb_store(const fb_store&) = delete;

  forebay::Result<forebay::Reply> call(forebay::Request request) {
    request.caller = caller;
    return store->call(std::move(request));
  }

  const std::unique_ptr<forebay::Store> store;
  const forebay::CallerRef caller;
  forebay::capi::Lives lives;
  const std::shared_ptr<forebay::capi::Helpers> helpers =
      std::make_shared<forebay::capi::Helpers>(*store, *lives.now());
  std::atomic<size_t> open{0};  // files and directories
};

struct fb_file {
  explicit fb_file(fb_store& in) : owner(in) {}
  fb_file(const fb_file&) = delete;

  // Whoever has begun a use may read the rest.
  fb_store& owner;
  forebay::capi::Uses uses;
  forebay::Handle handle;
  forebay::Right right;
  uint32_t opened_in = 0;                // the number of a life
  uint32_t open_flags = 0;               // that hints ask for, while it is being opened
  std::atomic<uint32_t> write_flags{0};  // of its writes: kFlagBehind, kFlagStable
  std::atomic<bool> locked{false};       // it may hold locks

  uint64_t lock_owner() const { return reinterpret_cast<uintptr_t>(this); }
};

namespace forebay::capi {

// A use of a file, from begin() until it is destroyed or handed over to whoever ends it.
class Use {
 public:
  static Result<Use> begin(fb_file* file);
  Use(Use&& other) noexcept
      : file_(std::exchange(other.file_, nullptr)), life_(std::move(other.life_)) {}
  Use& operator=(Use&&) = delete;
  ~Use() { end(); }

  void end() {
    if (file_) std::exchange(file_, nullptr)->uses.end(*life_);
  }
  fb_file& file() const { return *file_; }
  const LifeRef& life() const { return life_; }
  Store& store() const { return *file_->owner.store; }

  // A request on this file, as its caller, with its right.
  Request request(Op op, uint32_t flags = 0) const;

 private:
  Use(fb_file* file, LifeRef life) : file_(file), life_(std::move(life)) {}
  fb_file* file_;
  LifeRef life_;
};

// Memory for a file that is being opened, closed as yet; and back when it is closed.
fb_file* take_place(fb_store& store);
void give_place(fb_file* file, Life& life);

// EINVAL for arguments that may not be NULL.
Result<void> given(std::initializer_list<const void*> arguments);

}  // namespace forebay::capi
