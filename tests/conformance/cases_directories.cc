#include <fmt/format.h>

#include <set>

#include "env.h"

namespace forebay::conformance {

namespace {

constexpr int kMany = 600;

void make_directories(Env& e) {
  const Handle d = e.mkdir("d");
  MUST(e.attr(d).type == FileType::directory);
  e.fails(EEXIST, e.request(Op::mkdir, e.top(), "d"));
  const File f = e.create("f");
  e.fails(EEXIST, e.request(Op::mkdir, e.top(), "f"));
  e.fails(ENOTDIR, e.request(Op::mkdir, f.handle, "x"));
  MUST(e.names(d).empty());
  MUST((e.names(e.top()) == std::vector<std::string>{"d", "f"}));
}

void read_nothing(Env& e) {
  Request r = e.request(Op::readdir, e.top());
  r.length = Length(4096);
  const Reply reply = e.ok(r);
  MUST(reply.entries.empty());
  MUST(reply.end);
}

void read_what_is_none(Env& e) {
  const File f = e.create("f");
  Request r = e.request(Op::readdir, f.handle);
  r.length = Length(4096);
  e.fails(ENOTDIR, r);
}

// Without rights to close, so that a run has few more calls than entries.
void fill(Env& e, const Handle& directory, int count) {
  for (int i = 0; i < count; ++i) {
    Request r = e.create_request(directory, fmt::format("entry-{}", i));
    r.access = Access::none;
    e.ok(r);
  }
}

void many_entries(Env& e) {
  fill(e, e.top(), kMany);
  for (const uint64_t length : {uint64_t{500}, uint64_t{4096}, uint64_t{kMaxReaddirBytes}}) {
    std::set<std::string> seen;
    for (const Entry& entry : e.list(e.top(), length)) MUST(seen.insert(entry.name).second);
    MUST(seen.size() == kMany);
  }
}

void entries_with_attributes(Env& e) {
  fill(e, e.top(), 20);
  e.write(e.open(e.lookup("entry-7").handle), 0, "1234567");
  for (const Entry& entry : e.list(e.top(), 600, kFlagPlus)) {
    const Attr attr = e.attr(entry.handle);
    MUST(attr.file_id == entry.attr.file_id);
    MUST(attr.file_id == entry.file_id);
    MUST(attr.size == entry.attr.size);
    MUST((entry.name == "entry-7") == (entry.attr.size == 7));
    MUST(entry.type == FileType::file);
  }
}

// What is there from the beginning to the end is seen exactly once, whatever happens around it.
void change_while_reading(Env& e) {
  fill(e, e.top(), 200);
  std::multiset<std::string> seen;
  uint64_t cookie = 0;
  for (int step = 0;; ++step) {
    Request r = e.request(Op::readdir, e.top());
    r.length = Length(300);
    r.cookie = cookie;
    const Reply reply = e.ok(r);
    for (const Entry& entry : reply.entries) seen.insert(entry.name);
    if (reply.end) break;
    cookie = reply.entries.back().cookie;
    if (step < 50) e.remove(fmt::format("entry-{}", step));
    if (step < 50) e.create(fmt::format("new-{}", step));
  }
  for (int i = 50; i < 200; ++i) MUST(seen.count(fmt::format("entry-{}", i)) == 1);
  for (const std::string& name : seen) MUST(seen.count(name) == 1);
}

}  // namespace

std::vector<Case> directory_cases() {
  return {{"make_directories", {Feature::folders}, make_directories},
          {"read_an_empty_directory", {}, read_nothing},
          {"read_a_directory_that_is_none", {}, read_what_is_none},
          {"read_many_entries", {}, many_entries},
          {"read_entries_with_attributes", {}, entries_with_attributes},
          {"change_a_directory_while_reading", {Feature::folders}, change_while_reading}};
}

}  // namespace forebay::conformance
