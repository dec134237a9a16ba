// Names: lookup, create, remove, links.
#include "env.h"

namespace forebay::conformance {

namespace {

void lookup(Env& e) {
  const File file = e.create("f");
  const Reply found = e.lookup("f");
  MUST(found.attr.type == FileType::file);
  MUST(found.attr.file_id == e.attr(file.handle).file_id);
  MUST(e.attr(found.handle).file_id == found.attr.file_id);
  e.fails(ENOENT, e.request(Op::lookup, e.top(), "g"));
  e.fails(ENOTDIR, e.request(Op::lookup, file.handle, "g"));
}

void lookup_of_a_path(Env& e) {
  const Handle a = e.mkdir("a"), b = e.mkdir(a, "b");
  const File c = e.create(b, "c");
  MUST(e.lookup("a/b/c").attr.file_id == e.attr(c.handle).file_id);
  MUST(e.lookup("a/b").attr.type == FileType::directory);
  MUST(e.ok(e.request(Op::lookup, a, "b/c")).attr.type == FileType::file);
  e.fails(ENOENT, e.request(Op::lookup, e.top(), "a/x/c"));
  e.fails(ENOENT, e.request(Op::lookup, e.top(), "a/b/x"));
  e.fails(ENOTDIR, e.request(Op::lookup, e.top(), "a/b/c/d"));
}

void symlinks_are_not_followed(Env& e) {
  const Handle a = e.mkdir("a");
  e.create(a, "f");
  const Handle s = e.symlink(e.top(), "s", "a");
  MUST(e.lookup("s").attr.type == FileType::symlink);
  MUST(e.lookup("s").attr.size == 1);
  MUST(e.ok(e.request(Op::readlink, s)).data == "a");
  e.fails(ELOOP, e.request(Op::lookup, e.top(), "s/f"));
  e.fails(ELOOP, e.open_request(s, Access::read));
  e.fails(ELOOP, e.create_request(e.top(), "s"));
  e.fails(ENOTDIR, e.request(Op::lookup, s, "f"));
  e.symlink(e.top(), "dangling", "../../outside");
  MUST(e.lookup("dangling").attr.type == FileType::symlink);
  e.fails(EINVAL, e.request(Op::readlink, a));
  Request taken = e.request(Op::symlink, e.top(), "a");
  taken.data = "x";
  e.fails(EEXIST, taken);
  e.remove("s");
  MUST(e.names(a).size() == 1);
}

void refused_names(Env& e) {
  for (const char* name : {".", "..", "a/b", "/"}) {
    e.fails(EINVAL, e.create_request(e.top(), name));
    e.fails(EINVAL, e.request(Op::mkdir, e.top(), name));
    e.fails(EINVAL, e.remove_request(e.top(), name));
  }
  e.fails(EINVAL, e.create_request(e.top(), ""));
  e.fails(EINVAL, e.create_request(e.top(), std::string("a\0b", 3)));
  for (const char* path : {"..", "../x", "a/..", "a/../b", "./a", "/a", "a/", "a//b"}) {
    e.fails(EINVAL, e.request(Op::lookup, e.top(), path));
  }
  const std::string name(256, 'n');
  e.fails(ENAMETOOLONG, e.create_request(e.top(), name));
  e.fails(ENAMETOOLONG, e.request(Op::mkdir, e.top(), name));
  e.fails(ENAMETOOLONG, e.request(Op::lookup, e.top(), name));
  std::string path = "d";
  while (path.size() <= kMaxPath) path += "/d";
  e.fails(ENAMETOOLONG, e.request(Op::lookup, e.top(), path));
  MUST(e.names(e.top()).empty());
}

void hostile_names(Env& e) {
  std::vector<std::string> names = {std::string(255, 'n'),
                                    "new\nline",
                                    "\xff\xfe invalid",
                                    " ",
                                    "-rf",
                                    "*",
                                    "\\",
                                    "\x01",
                                    "a:b",
                                    "...",
                                    "~",
                                    "%s%n"};
  for (const auto& name : names) e.create(name);
  std::sort(names.begin(), names.end());
  MUST(e.names(e.top()) == names);
  for (const auto& name : names) MUST(e.lookup(name).attr.type == FileType::file);
  for (const auto& name : names) e.remove(name);
  MUST(e.names(e.top()).empty());
}

void create_of_what_exists(Env& e) {
  const File file = e.create("f");
  e.write(file, 0, "12345");
  const Reply again = e.ok(e.create_request(e.top(), "f"));
  MUST(again.attr.size == 5);
  MUST(again.attr.file_id == e.attr(file.handle).file_id);
  e.fails(EEXIST, e.create_request(e.top(), "f", kFlagExclusive));
  MUST(e.ok(e.create_request(e.top(), "f", kFlagTruncate)).attr.size == 0);
  MUST(e.attr(file.handle).size == 0);
  e.ok(e.create_request(e.top(), "g", kFlagExclusive));
  e.fails(ENOTDIR, e.create_request(file.handle, "h"));
}

void create_without_a_right(Env& e) {
  Request r = e.create_request(e.top(), "f");
  r.access = Access::none;
  const Reply made = e.ok(r);
  MUST(made.right.empty());
  MUST(e.attr(made.handle).size == 0);
  e.fails(EINVAL, e.open_request(made.handle, Access::none));
}

void create_over_a_directory(Env& e) {
  e.mkdir("d");
  e.fails(EISDIR, e.create_request(e.top(), "d"));
  e.fails(EEXIST, e.create_request(e.top(), "d", kFlagExclusive));
  e.fails(EISDIR, e.open_request(e.lookup("d").handle, Access::read));
}

void remove(Env& e) {
  const File file = e.create("f");
  e.close(file);
  e.fails(ENOENT, e.remove_request(e.top(), "g"));
  e.fails(ENOTDIR, e.remove_request(file.handle, "g"));
  e.remove("f");
  MUST(!e.exists("f"));
  e.fails(ENOENT, e.remove_request(e.top(), "f"));
  e.fails(ESTALE, e.request(Op::getattr, file.handle));
  e.fails(ESTALE, e.open_request(file.handle, Access::read));
}

void remove_of_directories(Env& e) {
  const Handle d = e.mkdir("d");
  const File file = e.create(d, "f");
  e.fails(EISDIR, e.remove_request(e.top(), "d"));
  e.fails(ENOTEMPTY, e.remove_request(e.top(), "d", true));
  e.fails(ENOTDIR, e.remove_request(d, "f", true));
  e.close(file);
  e.ok(e.remove_request(d, "f"));
  e.ok(e.remove_request(e.top(), "d", true));
  MUST(!e.exists("d"));
  e.fails(ESTALE, e.request(Op::getattr, d));
  e.fails(ESTALE, e.create_request(d, "x"));
  e.mkdir("d");
  e.fails(ESTALE, e.request(Op::getattr, d));
}

void hard_links(Env& e) {
  const File file = e.create("f");
  const Handle d = e.mkdir("d");
  MUST(e.ok(e.link_request(file.handle, d, "g")).attr.links == 2);
  MUST(e.lookup("d/g").attr.file_id == e.lookup("f").attr.file_id);
  e.write(file, 0, "abc");
  MUST(e.lookup("d/g").attr.size == 3);
  e.fails(EEXIST, e.link_request(file.handle, d, "g"));
  e.fails(EPERM, e.link_request(d, e.top(), "h"));
  e.fails(ENOTDIR, e.link_request(file.handle, file.handle, "h"));
  e.remove("f");
  MUST(e.lookup("d/g").attr.links == 1);
  MUST(e.read(file, 0, 9) == "abc");
}

}  // namespace

std::vector<Case> name_cases() {
  const std::vector<Feature> folders = {Feature::folders};
  return {{"lookup", {}, lookup},
          {"lookup_of_a_path", folders, lookup_of_a_path},
          {"symlinks_are_not_followed", folders, symlinks_are_not_followed},
          {"refused_names", {}, refused_names},
          {"hostile_names", {}, hostile_names},
          {"create_of_what_exists", {}, create_of_what_exists},
          {"create_without_a_right", {}, create_without_a_right},
          {"create_over_a_directory", folders, create_over_a_directory},
          {"remove", {}, remove},
          {"remove_of_directories", folders, remove_of_directories},
          {"hard_links", {Feature::folders, Feature::content}, hard_links}};
}

}  // namespace forebay::conformance
