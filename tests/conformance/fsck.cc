#include "fsck.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace forebay::conformance {

namespace {

struct Walk {
  Env& env;
  std::map<uint64_t, uint64_t> names_of;  // regular files: how many names were found
  std::map<uint64_t, uint64_t> links_of;
  std::set<uint64_t> directories;

  void check_entry(const std::string& path, const Handle& directory, const Entry& entry) {
    const Reply found = env.ok(env.request(Op::lookup, directory, entry.name));
    const Attr attr = env.attr(found.handle);
    const auto wrong = [&](const char* what) {
      throw Wrong(fmt::format("fsck: {}: {}", path, what));
    };
    if (entry.attr.file_id != attr.file_id || entry.file_id != attr.file_id)
      wrong("another file id");
    if (found.attr.type != attr.type || entry.attr.type != attr.type) wrong("another type");
    if (entry.attr.size != attr.size && attr.type == FileType::file) wrong("another size");
    if (attr.type == FileType::directory) {
      if (!directories.insert(attr.file_id).second) wrong("a directory with two names");
      walk(path, found.handle);
    } else {
      ++names_of[attr.file_id];
      links_of[attr.file_id] = attr.links;
    }
  }

  void walk(const std::string& path, const Handle& directory) {
    std::set<std::string> seen;
    for (const Entry& entry : env.list(directory, 16 * 1024, kFlagPlus)) {
      if (!seen.insert(entry.name).second) throw Wrong("fsck: listed twice: " + entry.name);
      check_entry(path + "/" + entry.name, directory, entry);
    }
  }
};

}  // namespace

void fsck(Env& env, bool has_folders) {
  Walk walk{env, {}, {}, {}};
  walk.walk("", env.top());
  if (!has_folders) return;
  for (const auto& [file, names] : walk.names_of) {
    if (walk.links_of[file] != names) {
      throw Wrong(
          fmt::format("fsck: file {} has {} links and {} names", file, walk.links_of[file], names));
    }
  }
}

}  // namespace forebay::conformance
