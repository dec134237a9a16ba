#include "names.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay {

Result<std::vector<Entry>> list_directory(Store& store, const CallerRef& caller,
                                          const Handle& directory) {
  std::vector<Entry> all;
  uint64_t cookie = 0;
  while (true) {
    auto reply = store.call({.op = Op::readdir,
                             .flags = kFlagPlus,
                             .caller = caller,
                             .handle = directory,
                             .length = Length(kMaxReaddirBytes),
                             .cookie = cookie});
    if (!reply) return reply.error();
    for (Entry& entry : reply->entries) {
      cookie = entry.cookie;
      if (entry.name != "." && entry.name != "..") all.push_back(std::move(entry));
    }
    if (reply->end || reply->entries.empty()) break;
  }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return all;
}

Result<std::string> read_link(Store& store, const CallerRef& caller, const Handle& link) {
  auto reply = store.call({.op = Op::readlink, .caller = caller, .handle = link});
  if (!reply) return reply.error();
  return std::move(reply->data);
}

namespace {

// What failed, by its path; whether it happened after all stays known.
Error at_path(const Error& error, const std::string& path) {
  Error named(error.code(), path);
  return error.is_outcome_unknown() ? std::move(named).with_unknown_outcome() : named;
}

Result<void> remove_at(Store& store, const CallerRef& caller, const Place& place,
                       const std::string& path) {
  const bool directory = place.found->attr.type == FileType::directory;
  if (directory) {
    auto entries = list_directory(store, caller, place.found->handle);
    if (!entries) return at_path(entries.error(), path);
    for (const Entry& entry : *entries) {
      const std::string below = path.empty() ? entry.name : path + "/" + entry.name;
      Found found{entry.handle, entry.attr};
      if (entry.handle.empty()) {  // the store could not make one: a lookup says why
        auto reply = store.call({.op = Op::lookup,
                                 .caller = caller,
                                 .handle = place.found->handle,
                                 .name = entry.name});
        if (!reply) return at_path(reply.error(), below);
        found = {reply->handle, reply->attr};
      }
      const Place child{place.found->handle, entry.name, std::move(found)};
      if (auto removed = remove_at(store, caller, child, below); !removed) return removed;
    }
  }
  auto removed = store.call({.op = Op::remove,
                             .flags = directory ? uint32_t{kFlagDirectory} : 0,
                             .caller = caller,
                             .handle = place.directory,
                             .name = place.name});
  if (!removed) return at_path(removed.error(), path);
  return {};
}

}  // namespace

Result<void> remove_tree(Store& store, const CallerRef& caller, const Place& place) {
  return remove_at(store, caller, place, {});
}

Result<void> make_path(Store& store, const CallerRef& caller, const std::string& path,
                       uint32_t mode) {
  for (size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    auto place = locate(store, caller, path.substr(0, end));
    if (!place) return place.error();
    if (place->found && place->found->attr.type == FileType::directory) continue;
    if (place->found) return Error(end == path.size() ? EEXIST : ENOTDIR);
    auto made = store.call({.op = Op::mkdir,
                            .caller = caller,
                            .handle = place->directory,
                            .name = place->name,
                            .mode = mode});
    if (!made && made.error().code() != EEXIST) return made.error();
  }
  return {};
}

std::string base_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string mode_text(const Attr& attr) {
  constexpr std::string_view kTypes = "?-dlpsbc";  // in the order of FileType
  std::string text(1, kTypes[static_cast<size_t>(attr.type)]);
  for (int shift = 6; shift >= 0; shift -= 3) {
    const uint32_t bits = attr.mode >> shift;
    text += bits & 4 ? 'r' : '-';
    text += bits & 2 ? 'w' : '-';
    text += bits & 1 ? 'x' : '-';
  }
  if (attr.mode & 04000) text[3] = attr.mode & 0100 ? 's' : 'S';
  if (attr.mode & 02000) text[6] = attr.mode & 0010 ? 's' : 'S';
  if (attr.mode & 01000) text[9] = attr.mode & 0001 ? 't' : 'T';
  return text;
}

const char* type_name(FileType type) {
  constexpr const char* kNames[] = {"unknown", "file",   "directory", "symlink",
                                    "fifo",    "socket", "block",     "character"};
  return kNames[static_cast<size_t>(type)];
}

std::string time_text(const FileTime& time, const char* format) {
  const time_t seconds = time.seconds;
  struct tm parts = {};
  ::localtime_r(&seconds, &parts);
  char text[64] = {};
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

Json attr_json(const std::string& name, const Attr& attr) {
  auto time = [](const FileTime& t) {
    return static_cast<double>(t.seconds) + static_cast<double>(t.nanoseconds) / 1e9;
  };
  return Json::Object{{"name", name},
                      {"type", type_name(attr.type)},
                      {"mode", fmt::format("{:04o}", attr.mode)},
                      {"uid", attr.uid},
                      {"gid", attr.gid},
                      {"links", attr.links},
                      {"size", attr.size},
                      {"allocated", attr.allocated},
                      {"file_id", attr.file_id},
                      {"atime", time(attr.atime)},
                      {"mtime", time(attr.mtime)},
                      {"ctime", time(attr.ctime)}};
}

}  // namespace forebay
