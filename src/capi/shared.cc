// What clients share about a file: attributes, and appends, each of which has a place of its own.
#include <cstring>

#include "capi/error.h"
#include "capi/request.h"
#include "capi/shapes.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

struct Operands {
  uint64_t value = 0, expected = 0;
};

Request about(const Use& use, Op op, const char* name, Operands operands) {
  Request request = use.request(op);
  request.name = name;
  request.value = operands.value;
  request.expected = operands.expected;
  return request;
}

// `result` may be NULL.
int call(const char* function, Op op, fb_file* file, const char* name, Operands operands,
         uint64_t* result) {
  return status({function, name}, [&]() -> Result<void> {
    if (auto ok = given({name}); !ok) return ok;
    auto use = Use::begin(file);
    if (!use) return use.error();
    auto reply = use->store().call(about(*use, op, name, operands));
    if (!reply) return reply.error();
    if (result) *result = reply->value;
    return {};
  });
}

Result<Request> append(const Use& use, const void* buffer, size_t size) {
  Result<Sides> sides = contiguous(buffer, size, 0);
  if (!sides) return sides.error();
  Request request = use.request(Op::write, kFlagAppend);
  request.file = std::move(sides->file);
  request.memory = std::move(sides->memory);
  return request;
}

}  // namespace

int fb_attr_create(fb_file* file, const char* name, uint64_t value) {
  return call("fb_attr_create", Op::attr_create, file, name, {value}, nullptr);
}

int fb_attr_remove(fb_file* file, const char* name) {
  return call("fb_attr_remove", Op::attr_remove, file, name, {}, nullptr);
}

int fb_attr_get(fb_file* file, const char* name, uint64_t* value) {
  return call("fb_attr_get", Op::attr_get, file, name, {}, value);
}

int fb_attr_set(fb_file* file, const char* name, uint64_t value) {
  return call("fb_attr_set", Op::attr_set, file, name, {value}, nullptr);
}

int fb_attr_fetch_add(fb_file* file, const char* name, uint64_t step, uint64_t* before) {
  return call("fb_attr_fetch_add", Op::attr_fetch_add, file, name, {step}, before);
}

int fb_attr_cas(fb_file* file, const char* name, uint64_t expected, uint64_t desired,
                uint64_t* before) {
  return call("fb_attr_cas", Op::attr_cas, file, name, {desired, expected}, before);
}

int fb_attr_list(fb_file* file, fb_attr_each each, void* context) {
  return status({"fb_attr_list"}, [&]() -> Result<void> {
    if (!each) return Error(EINVAL, "an argument is NULL");
    auto use = Use::begin(file);
    if (!use) return use.error();
    auto reply = use->store().call(use->request(Op::attr_list));
    if (!reply) return reply.error();
    const std::string& data = reply->data;
    for (size_t at = 0; at + sizeof(uint64_t) < data.size();) {
      uint64_t value;
      std::memcpy(&value, data.data() + at, sizeof value);
      const char* const name = data.c_str() + at + sizeof value;
      if (each(context, name, value) != 0) break;
      at += sizeof value + std::strlen(name) + 1;
    }
    return {};
  });
}

int fb_iattr_fetch_add(fb_file* file, const char* name, uint64_t step, uint64_t* before,
                       fb_request** request) {
  constexpr const char* kFunction = "fb_iattr_fetch_add";
  return status({kFunction, name}, [&]() -> Result<void> {
    if (auto ok = given({name, request}); !ok) return ok;
    *request = nullptr;
    auto use = Use::begin(file);
    if (!use) return use.error();
    Request adding = about(*use, Op::attr_fetch_add, name, {step});
    *request = begin(kFunction, std::move(*use), std::move(adding), before);
    return {};
  });
}

int64_t fb_append(fb_file* file, const void* buffer, size_t size, uint64_t* place) {
  return count({"fb_append"}, [&]() -> Result<uint64_t> {
    auto use = Use::begin(file);
    if (!use) return use.error();
    auto appending = append(*use, buffer, size);
    if (!appending) return appending.error();
    auto reply = use->store().call(std::move(*appending));
    if (!reply) return reply.error();
    if (place) *place = reply->value;
    return reply->count;
  });
}

int fb_iappend(fb_file* file, const void* buffer, size_t size, uint64_t* place,
               fb_request** request) {
  return status({"fb_iappend"}, [&]() -> Result<void> {
    if (auto ok = given({request}); !ok) return ok;
    *request = nullptr;
    auto use = Use::begin(file);
    if (!use) return use.error();
    auto appending = append(*use, buffer, size);
    if (!appending) return appending.error();
    *request = begin("fb_iappend", std::move(*use), std::move(*appending), place);
    return {};
  });
}
