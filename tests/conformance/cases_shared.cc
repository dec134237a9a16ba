// What servers keep for those who share a file: attributes and appends.
#include <cstring>

#include "env.h"

namespace forebay::conformance {

namespace {

Request attr(Env& e, Op op, const File& file, std::string name, uint64_t value = 0,
             uint64_t expected = 0) {
  Request r = e.request(op, file.handle, std::move(name));
  r.right = file.right;
  r.value = value;
  r.expected = expected;
  return r;
}

uint64_t append(Env& e, const File& file, const std::string& bytes) {
  const auto size = bytes.size();
  Request r = e.data_request(Op::write, file, Extents({Offset(0), Length(size)}),
                             Memory::of(std::as_bytes(std::span(bytes))));
  r.flags = kFlagAppend;
  const Reply reply = e.ok(std::move(r));
  MUST(reply.count == size);
  return reply.value;
}

void shared_numbers(Env& e) {
  const File f = e.create("f");
  e.fails(ENODATA, attr(e, Op::attr_get, f, "n"));
  e.ok(attr(e, Op::attr_create, f, "n", 5));
  e.fails(EEXIST, attr(e, Op::attr_create, f, "n", 6));
  MUST(e.ok(attr(e, Op::attr_fetch_add, f, "n", 3)).value == 5);
  MUST(e.ok(attr(e, Op::attr_fetch_add, f, "n", UINT64_MAX)).value == 8);
  MUST(e.ok(attr(e, Op::attr_cas, f, "n", 1, 6)).value == 7);
  MUST(e.ok(attr(e, Op::attr_cas, f, "n", 1, 7)).value == 7);
  MUST(e.ok(attr(e, Op::attr_get, f, "n")).value == 1);
  e.ok(attr(e, Op::attr_set, f, "n", 9));
  e.ok(attr(e, Op::attr_create, f, "m"));
  const std::string listed("\0\0\0\0\0\0\0\0m\0\x09\0\0\0\0\0\0\0n\0", 20);
  MUST(e.ok(attr(e, Op::attr_list, f, "")).data == listed);
  const File again = e.open(f.handle, Access::read);
  MUST(e.ok(attr(e, Op::attr_get, again, "n")).value == 9);
  const File other = e.create("g");
  e.fails(ENODATA, attr(e, Op::attr_get, other, "n"));
  e.ok(attr(e, Op::attr_remove, f, "n"));
  e.fails(ENODATA, attr(e, Op::attr_remove, f, "n"));
  MUST(e.attr(f.handle).size == 0);
}

void shared_numbers_out_of_bounds(Env& e) {
  const File f = e.create("f");
  e.ok(attr(e, Op::attr_create, f, std::string(255, 'x')));
  e.fails(ENAMETOOLONG, attr(e, Op::attr_create, f, std::string(256, 'x')));
  e.fails(EINVAL, attr(e, Op::attr_create, f, ""));
  e.fails(EINVAL, attr(e, Op::attr_create, f, std::string("a\0b", 3)));
  for (size_t i = 1; i < kMaxAttributes; ++i) {
    e.ok(attr(e, Op::attr_create, f, std::to_string(i)));
  }
  e.fails(ENOSPC, attr(e, Op::attr_create, f, "more"));
}

void appended_records(Env& e) {
  const File f = e.create("f");
  MUST(append(e, f, "abc") == 0);
  MUST(append(e, f, std::string(5000, 'd')) == 3);
  e.write(f, 6000, "xy");
  const File again = e.open(f.handle);
  MUST(append(e, again, "z") == 6002);
  e.ok(e.resize_request(f.handle, 2));
  MUST(append(e, again, "q") == 2);
  MUST(e.read(f, 0, 100) == "abq");
  MUST(e.attr(f.handle).size == 3);
  Request r = e.data_request(Op::write, f, Extents({Offset(1), Length(0)}), Memory());
  r.flags = kFlagAppend;
  MUST(e.ok(r).value == 3);
}

void an_append_goes_behind_what_is_there(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "12345");
  MUST(append(e, f, "6") == 5);
  MUST(e.read(f, 0, 10) == "123456");
}

}  // namespace

std::vector<Case> shared_cases() {
  const std::vector<Feature> needs = {Feature::shared};
  return {{"shared_numbers", needs, shared_numbers},
          {"shared_numbers_out_of_bounds", needs, shared_numbers_out_of_bounds},
          {"appended_records", needs, appended_records},
          {"an_append_goes_behind_what_is_there", needs, an_append_goes_behind_what_is_there}};
}

}  // namespace forebay::conformance
