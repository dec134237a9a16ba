#include "env.h"

namespace forebay::conformance {

namespace {

void moves(Env& e) {
  const File file = e.create("f");
  const Handle d = e.mkdir("d");
  e.ok(e.rename_request(e.top(), "f", d, "g"));
  MUST(!e.exists("f"));
  MUST(e.lookup("d/g").attr.file_id == e.attr(file.handle).file_id);
  e.ok(e.rename_request(d, "g", d, "h"));
  e.ok(e.rename_request(e.top(), "d", e.top(), "dd"));
  MUST(e.lookup("dd/h").attr.file_id == e.attr(file.handle).file_id);
  MUST(e.names(d) == std::vector<std::string>{"h"});
  e.fails(ENOENT, e.rename_request(e.top(), "f", e.top(), "x"));
  e.fails(ENOTDIR, e.rename_request(e.top(), "dd", file.handle, "x"));
  e.fails(ENOTDIR, e.rename_request(file.handle, "x", e.top(), "x"));
}

void replaces(Env& e) {
  const File f = e.create("f"), g = e.create("g");
  e.close(g);
  e.rename("f", "g");
  MUST(e.names(e.top()) == std::vector<std::string>{"g"});
  MUST(e.lookup("g").attr.file_id == e.attr(f.handle).file_id);
  e.fails(ESTALE, e.request(Op::getattr, g.handle));
  e.rename("g", "g");
  MUST(e.exists("g"));
}

void onto_its_own_link_does_nothing(Env& e) {
  const File f = e.create("f");
  e.ok(e.link_request(f.handle, e.top(), "g"));
  e.rename("f", "g");
  MUST(e.exists("f"));
  MUST(e.exists("g"));
}

void no_replace(Env& e) {
  e.create("f");
  e.create("g");
  e.fails(EEXIST, e.rename_request(e.top(), "f", e.top(), "g", kFlagNoReplace));
  e.rename("f", "h", kFlagNoReplace);
  MUST((e.names(e.top()) == std::vector<std::string>{"g", "h"}));
}

void exchange(Env& e) {
  const File f = e.create("f");
  const Handle d = e.mkdir("d");
  e.create(d, "inside");
  e.rename("f", "d", kFlagExchange);
  MUST(e.lookup("d").attr.file_id == e.attr(f.handle).file_id);
  MUST(e.exists("f/inside"));
  e.fails(ENOENT, e.rename_request(e.top(), "f", e.top(), "x", kFlagExchange));
  const Handle sub = e.mkdir(d, "sub");
  e.create(sub, "y");
  e.ok(e.rename_request(e.top(), "d", sub, "y", kFlagExchange));
  MUST(e.lookup("f/sub/y").attr.file_id == e.attr(f.handle).file_id);
  e.fails(EINVAL, e.rename_request(e.top(), "f", sub, "y", kFlagExchange));
  e.fails(EINVAL, e.rename_request(e.top(), "f", e.top(), "d", kFlagExchange | kFlagNoReplace));
}

void directory_into_itself(Env& e) {
  const Handle a = e.mkdir("a"), b = e.mkdir(a, "b");
  e.fails(EINVAL, e.rename_request(e.top(), "a", a, "x"));
  e.fails(EINVAL, e.rename_request(e.top(), "a", b, "x"));
  e.fails(ENOTEMPTY, e.rename_request(a, "b", e.top(), "a"));
  e.rename("a", "a");
  MUST(e.exists("a/b"));
}

void kinds_must_fit(Env& e) {
  e.create("f");
  const Handle d = e.mkdir("d"), full = e.mkdir("full");
  e.create(full, "x");
  e.fails(EISDIR, e.rename_request(e.top(), "f", e.top(), "d"));
  e.fails(ENOTDIR, e.rename_request(e.top(), "d", e.top(), "f"));
  e.fails(ENOTEMPTY, e.rename_request(e.top(), "d", e.top(), "full"));
  e.rename("full", "d");
  MUST(e.exists("d/x"));
  MUST(!e.exists("full"));
  e.fails(ESTALE, e.request(Op::getattr, d));
}

void over_an_open_file(Env& e) {
  const File f = e.create("f"), g = e.create("g");
  e.write(f, 0, "new");
  e.write(g, 0, "old");
  e.rename("f", "g");
  MUST(e.read(g, 0, 9) == "old");
  MUST(e.read(f, 0, 9) == "new");
  e.write(g, 3, "er");
  MUST(e.read(g, 0, 9) == "older");
  e.close(g);
  e.fails(ESTALE, e.request(Op::getattr, g.handle));
  MUST(e.read(f, 0, 9) == "new");
}

void handles_follow_the_file(Env& e) {
  const Handle a = e.mkdir("a"), b = e.mkdir(a, "b");
  const File f = e.create(b, "f");
  e.write(f, 0, "abc");
  e.close(f);
  e.rename("a", "z");
  const File again = e.open(f.handle, Access::read);
  MUST(e.read(again, 0, 9) == "abc");
  MUST(e.names(b) == std::vector<std::string>{"f"});
  e.create(b, "g");
  MUST(e.exists("z/b/g"));
}

}  // namespace

std::vector<Case> rename_cases() {
  const std::vector<Feature> folders = {Feature::folders};
  return {
      {"rename_moves", folders, moves},
      {"rename_replaces", folders, replaces},
      {"rename_onto_its_own_link", folders, onto_its_own_link_does_nothing},
      {"rename_no_replace", folders, no_replace},
      {"rename_exchange", folders, exchange},
      {"rename_directory_into_itself", folders, directory_into_itself},
      {"rename_kinds_must_fit", folders, kinds_must_fit},
      {"rename_over_an_open_file",
       {Feature::folders, Feature::content, Feature::unlinked},
       over_an_open_file},
      {"handles_follow_the_file", {Feature::folders, Feature::content}, handles_follow_the_file}};
}

}  // namespace forebay::conformance
