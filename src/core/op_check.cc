// What a well-formed request is: op.h's comments as code.
#include <fmt/format.h>

#include <array>

#include "core/op.h"

namespace forebay {
namespace {

struct FieldName {
  Field field;
  const char* name;
};
constexpr std::array kFields = {
    FieldName{kHandle, "handle"},     FieldName{kName, "name"},     FieldName{kHandle2, "handle2"},
    FieldName{kName2, "name2"},       FieldName{kRight, "right"},   FieldName{kAccess, "access"},
    FieldName{kMode, "mode"},         FieldName{kSet, "set"},       FieldName{kOffset, "offset"},
    FieldName{kLength, "length"},     FieldName{kCookie, "cookie"}, FieldName{kData, "data"},
    FieldName{kFile, "file"},         FieldName{kFlags, "flags"},   FieldName{kValue, "value"},
    FieldName{kExpected, "expected"},
};

uint32_t fields_of(const Request& r) {
  uint32_t there = 0;
  const auto note = [&](Field field, bool set) {
    if (set) there |= field;
  };
  note(kHandle, !r.handle.empty());
  note(kName, !r.name.empty());
  note(kHandle2, !r.handle2.empty());
  note(kName2, !r.name2.empty());
  note(kRight, !r.right.empty());
  note(kAccess, r.access != Access::none);
  note(kMode, r.mode != 0);
  note(kSet, !(r.set == SetAttr{}));
  note(kOffset, r.offset.value != 0);
  note(kLength, r.length.value != 0);
  note(kCookie, r.cookie != 0);
  note(kData, !r.data.empty());
  note(kFile, !r.file.empty());
  note(kFlags, r.flags != 0);
  note(kValue, r.value != 0);
  note(kExpected, r.expected != 0);
  return there;
}

Error wrong(const Request& r, const char* field, std::string_view why, int code = EINVAL) {
  return Error(code, fmt::format("{}: {}: {}", op_info(r.op).name, field, why));
}

Result<void> check_fields(const Request& r) {
  const OpInfo& info = op_info(r.op);
  const uint32_t there = fields_of(r);
  const uint32_t missing = info.needs & ~there, unused = there & ~(info.needs | info.may);
  if ((missing | unused) == 0) [[likely]]
    return {};
  for (const FieldName& f : kFields) {
    if (missing & f.field) return wrong(r, f.name, "is missing or empty");
    if (unused & f.field) return wrong(r, f.name, "is not used by this operation");
  }
  return {};
}

Result<void> check_opaque(const Request& r) {
  if (r.handle.bytes.size() > kMaxHandle) return wrong(r, "handle", "is too long for a handle");
  if (r.handle2.bytes.size() > kMaxHandle) return wrong(r, "handle2", "is too long for a handle");
  if (r.right.bytes.size() > kMaxRight) return wrong(r, "right", "is too long for a right");
  return {};
}

bool has_nul(std::string_view text) {
  return text.find('\0') != text.npos;
}

Result<void> check_component(const Request& r, const char* field, std::string_view name) {
  if (name.empty()) return wrong(r, field, "has an empty component");
  if (name == "." || name == "..") return wrong(r, field, "may not be or contain . or ..");
  if (name.size() > kMaxName) return wrong(r, field, "is longer than 255 bytes", ENAMETOOLONG);
  if (name.find('/') != name.npos) return wrong(r, field, "must be one component, without /");
  if (has_nul(name)) return wrong(r, field, "contains a NUL");
  return {};
}

Result<void> check_path(const Request& r, std::string_view path) {
  if (path.size() > kMaxPath) return wrong(r, "name", "is longer than 4095 bytes", ENAMETOOLONG);
  for (;;) {
    const size_t slash = path.find('/');
    if (auto ok = check_component(r, "name", path.substr(0, slash)); !ok) return ok;
    if (slash == path.npos) return {};
    path.remove_prefix(slash + 1);
  }
}

// Their namespace (user.x) is the file system's business; the size is what setxattr(2) refuses.
Result<void> check_xattr_name(const Request& r) {
  if (r.name.size() > kMaxName) return wrong(r, "name", "is longer than 255 bytes", ERANGE);
  if (has_nul(r.name)) return wrong(r, "name", "contains a NUL");
  return {};
}

Result<void> check_attribute_name(const Request& r) {
  if (r.name.size() > kMaxName) return wrong(r, "name", "is longer than 255 bytes", ENAMETOOLONG);
  if (has_nul(r.name)) return wrong(r, "name", "contains a NUL");
  return {};
}

Result<void> check_names(const Request& r) {
  if (op_info(r.op).kind == OpKind::shared) return check_attribute_name(r);
  switch (r.op) {
    case Op::lookup:
      return check_path(r, r.name);
    case Op::xattr_get:
    case Op::xattr_set:
    case Op::xattr_remove:
      return check_xattr_name(r);
    default:
      break;
  }
  const OpInfo& info = op_info(r.op);
  if (info.needs & kName) {
    if (auto ok = check_component(r, "name", r.name); !ok) return ok;
  }
  return info.needs & kName2 ? check_component(r, "name2", r.name2) : Result<void>();
}

Result<void> check_data(const Request& r) {
  if (r.op == Op::symlink) {
    if (r.data.size() > kMaxPath)
      return wrong(r, "data", "is longer than 4095 bytes", ENAMETOOLONG);
    if (has_nul(r.data)) return wrong(r, "data", "contains a NUL");
  }
  if (r.op == Op::xattr_set && r.data.size() > kMaxXattr) {
    return wrong(r, "data", "is larger than 64 KiB", E2BIG);
  }
  return {};
}

Result<void> check_flags(const Request& r) {
  const auto both = [&](uint32_t pair) { return (r.flags & pair) == pair; };
  if (r.flags & ~op_info(r.op).flags) {
    return wrong(r, "flags", fmt::format("{:#x} has flags of other operations", r.flags));
  }
  if (both(kFlagNoReplace | kFlagExchange) || both(kFlagPunchHole | kFlagZeroRange) ||
      both(kFlagCreate | kFlagReplace) || both(kFlagBehind | kFlagStable) ||
      both(kFlagSieve | kFlagNoSieve) || both(kFlagFill | kFlagKeepSize) ||
      both(kFlagFill | kFlagPunchHole) || both(kFlagFill | kFlagZeroRange)) {
    return wrong(r, "flags", fmt::format("{:#x} contradicts itself", r.flags));
  }
  return {};
}

Result<void> check_numbers(const Request& r) {
  if (static_cast<unsigned>(r.access) > static_cast<unsigned>(Access::both)) {
    return wrong(r, "access", "is none of the known values");
  }
  if (r.mode > 07777) return wrong(r, "mode", "has bits beyond 07777");
  if (r.op == Op::readdir && r.length.value > kMaxReaddirBytes) {
    return wrong(r, "length", "is more than one readdir may ask for");
  }
  if ((r.flags & kFlagWhole) && (r.offset.value != 0 || r.length.value != 0)) {
    return wrong(r, "offset", "a lock of the whole file has none, and no length");
  }
  if (r.offset.value > kMaxOffset) return wrong(r, "offset", "is beyond the largest offset");
  if (r.length.value > kMaxOffset - r.offset.value) {
    return wrong(r, "length", "ends beyond the largest offset");
  }
  if (is_lock(r.op) && r.offset.value == kMaxOffset) {
    return wrong(r, "offset", "no byte lies there");
  }
  return {};
}

Result<void> check_set(const Request& r) {
  constexpr uint32_t kAll = SetAttr::kMode | SetAttr::kUid | SetAttr::kGid | SetAttr::kAtime |
                            SetAttr::kMtime | SetAttr::kAtimeNow | SetAttr::kMtimeNow;
  const auto both = [&](uint32_t pair) { return (r.set.what & pair) == pair; };
  if (r.op != Op::setattr) return {};
  if (r.set.what == 0) return wrong(r, "set", "changes nothing");
  if (r.set.what & ~kAll) return wrong(r, "set", "has unknown bits");
  if (r.set.mode > 07777) return wrong(r, "set", "has a mode with bits beyond 07777");
  if (both(SetAttr::kAtime | SetAttr::kAtimeNow) || both(SetAttr::kMtime | SetAttr::kMtimeNow)) {
    return wrong(r, "set", "gives a time and asks for the current one");
  }
  if (r.set.atime.nanoseconds >= 1'000'000'000 || r.set.mtime.nanoseconds >= 1'000'000'000) {
    return wrong(r, "set", "has nanoseconds of a second or more");
  }
  return {};
}

// Where an append goes is not the client's to say; and only what is done once has a Once.
Result<void> check_sharing(const Request& r) {
  if ((r.flags & kFlagAppend) != 0 && !r.file.empty() &&
      (r.file.pieces() != 1 || r.file.bounds().offset.value != 0)) {
    return wrong(r, "file", "must be one extent from 0 if it is to be appended");
  }
  if (r.once == Once{}) return {};
  if (!takes_once(r)) return wrong(r, "once", "is not used by this operation");
  if (r.once.empty() || r.once.lane >= kMaxLanes) return wrong(r, "once", "is out of bounds");
  return {};
}

}  // namespace

Result<void> check_arguments(const Request& request) {
  if (static_cast<int>(request.op) >= kOpCount) {
    return Error(EINVAL, fmt::format("operation {} is unknown", static_cast<int>(request.op)));
  }
  for (auto* part : {check_fields, check_opaque, check_names, check_data, check_flags,
                     check_numbers, check_set, check_sharing}) {
    if (auto ok = part(request); !ok) return ok;
  }
  return {};
}

Result<void> check(const Request& request) {
  if (auto ok = check_arguments(request); !ok) return ok;
  if (!request.caller) return wrong(request, "caller", "is missing");
  if (request.file.total() != request.memory.shape.total()) {
    return wrong(request, "memory",
                 fmt::format("has {} bytes where the file side has {}",
                             request.memory.shape.total().value, request.file.total().value));
  }
  return {};
}

Result<void> check_at_back_end(const Request& request) {
  if (auto good = check(request); !good) return good;
  if (op_info(request.op).kind == OpKind::shared || (request.flags & kFlagAppend) != 0) {
    return Error(EOPNOTSUPP,
                 fmt::format("{}: attributes, appends, leases and shortcuts need a server",
                             op_info(request.op).name));
  }
  return {};
}

}  // namespace forebay
