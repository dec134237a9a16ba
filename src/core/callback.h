// Callback: a move-only function object, called at most once or many times as its owner likes.
// (std::move_only_function is C++23.) What it captures is kept inline up to 64 bytes, so that the
// completions of the data path allocate nothing.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "core/assert.h"

namespace forebay {

template <class Signature>
class Callback;

template <class R, class... Args>
class Callback<R(Args...)> {
 public:
  Callback() = default;
  Callback(std::nullptr_t) {}

  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Callback> &&
           std::is_invocable_r_v<R, std::remove_cvref_t<F>&, Args...>) Callback(F&& f) {
    using Held = std::remove_cvref_t<F>;
    if constexpr (sizeof(Held) <= kInline && alignof(Held) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Held>) {
      new (space_) Held(std::forward<F>(f));
      ops_ = &kInlineOps<Held>;
    } else {
      new (space_) Held*(new Held(std::forward<F>(f)));
      ops_ = &kHeapOps<Held>;
    }
  }

  Callback(Callback&& other) noexcept { take(other); }
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Callback() { reset(); }

  explicit operator bool() const { return ops_ != nullptr; }

  R operator()(Args... args) {
    FOREBAY_ASSERT(ops_ != nullptr);
    return ops_->call(space_, std::forward<Args>(args)...);
  }

 private:
  static constexpr size_t kInline = 64;

  struct Ops {
    R (*call)(void*, Args&&...);
    void (*move)(void* from, void* to);  // leaves `from` destroyed
    void (*destroy)(void*);
  };

  template <class F>
  static constexpr Ops kInlineOps = {[](void* p, Args&&... args) -> R {
                                       return (*static_cast<F*>(p))(std::forward<Args>(args)...);
                                     },
                                     [](void* from, void* to) {
                                       new (to) F(std::move(*static_cast<F*>(from)));
                                       static_cast<F*>(from)->~F();
                                     },
                                     [](void* p) { static_cast<F*>(p)->~F(); }};

  template <class F>
  static constexpr Ops kHeapOps = {
      [](void* p, Args&&... args) -> R {
        return (**static_cast<F**>(p))(std::forward<Args>(args)...);
      },
      [](void* from, void* to) { new (to) F*(*static_cast<F**>(from)); },
      [](void* p) { delete *static_cast<F**>(p); }};

  void take(Callback& other) {
    ops_ = std::exchange(other.ops_, nullptr);
    if (ops_) ops_->move(other.space_, space_);
  }
  void reset() {
    if (ops_) std::exchange(ops_, nullptr)->destroy(space_);
  }

  alignas(std::max_align_t) std::byte space_[kInline];
  const Ops* ops_ = nullptr;
};

using Task = Callback<void()>;

}  // namespace forebay
