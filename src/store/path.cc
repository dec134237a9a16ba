#include "store/path.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace forebay {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel's

struct Components {
  std::deque<std::string> names;
  bool directory = false;  // ends in '/', "." or "..": only a directory will do
  bool plain = true;       // no "." and no ".."
};

Result<Components> split(std::string_view path) {
  if (path.size() > kMaxPath) return Error(ENAMETOOLONG);
  if (path.find('\0') != std::string_view::npos) return Error(EINVAL);
  Components out;
  out.directory = path.empty() || path.ends_with('/');
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (name.empty()) continue;
    if (name.size() > kMaxName) return Error(ENAMETOOLONG);
    const bool dots = name == "." || name == "..";
    if (dots) out.plain = false;
    if (dots && path.empty()) out.directory = true;
    if (name != ".") out.names.emplace_back(name);
  }
  return out;
}

class Walk {
 public:
  Walk(Store& store, const CallerRef& caller) : store_(store), caller_(caller) {}

  Result<Place> to(Components path, Follow follow) {
    auto root = store_.root();
    if (!root) return root.error();
    above_ = {{*root, {}, std::nullopt}};
    left_ = std::move(path.names);
    bool must_be_directory = path.directory;
    while (!left_.empty()) {
      std::string name = std::move(left_.front());
      left_.pop_front();
      const bool last = left_.empty();
      auto stepped = step(std::move(name), last, follow, must_be_directory);
      if (!stepped) return stepped.error();
    }
    return arrive(must_be_directory);
  }

 private:
  // One component further. `above_` is the chain of places from the root to where we are; all but
  // the last are directories that exist.
  Result<void> step(std::string name, bool last, Follow follow, bool& must_be_directory) {
    if (name == "..") {
      if (above_.size() > 1) above_.pop_back();
      return {};
    }
    const Handle here = above_.back().found ? above_.back().found->handle : above_.back().directory;
    auto reply = call({.op = Op::lookup, .handle = here, .name = name});
    if (!reply) {
      if (reply.error().code() != ENOENT || !last) return reply.error();
      above_.push_back({here, std::move(name), std::nullopt});
      return {};
    }
    const bool follow_it = !last || follow == Follow::yes || must_be_directory;
    if (reply->attr.type == FileType::symlink && follow_it)
      return follow_link(reply->handle, must_be_directory);
    if (!last && reply->attr.type != FileType::directory) return Error(ENOTDIR);
    above_.push_back({here, std::move(name), Found{std::move(reply->handle), reply->attr}});
    return {};
  }

  Result<void> follow_link(const Handle& link, bool& must_be_directory) {
    if (++links_ > kMaxLinks) return Error(ELOOP);
    auto reply = call({.op = Op::readlink, .handle = link});
    if (!reply) return reply.error();
    auto target = split(reply->data);
    if (!target) return target.error();
    if (reply->data.empty()) return Error(ENOENT);
    if (left_.empty() && target->directory) must_be_directory = true;
    if (reply->data.front() == '/') above_.resize(1);
    left_.insert(left_.begin(), std::make_move_iterator(target->names.begin()),
                 std::make_move_iterator(target->names.end()));
    return {};
  }

  Result<Place> arrive(bool must_be_directory) {
    Place place = std::move(above_.back());
    if (above_.size() == 1) {  // the root itself
      auto reply = call({.op = Op::getattr, .handle = place.directory});
      if (!reply) return reply.error();
      place.found = Found{place.directory, reply->attr};
    }
    if (must_be_directory && place.found && place.found->attr.type != FileType::directory)
      return Error(ENOTDIR);
    return place;
  }

  Result<Reply> call(Request request) {
    request.caller = caller_;
    return store_.call(std::move(request));
  }

  Store& store_;
  const CallerRef& caller_;
  std::vector<Place> above_;
  std::deque<std::string> left_;
  int links_ = 0;
};

std::string joined(const std::deque<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : "/") + name;
  return out;
}

// One lookup of the whole path; nothing if it has to be walked after all, because a link may be in
// the way.
std::optional<Result<Found>> at_once(Store& store, const CallerRef& caller, const Components& path,
                                     Follow follow) {
  if (!path.plain || path.names.empty()) return std::nullopt;
  auto root = store.root();
  if (!root) return Result<Found>(root.error());
  auto reply =
      store.call({.op = Op::lookup, .caller = caller, .handle = *root, .name = joined(path.names)});
  if (!reply) {
    const int code = reply.error().code();
    if (code == ELOOP || code == ENOTDIR) return std::nullopt;
    return Result<Found>(std::move(reply).error());
  }
  if (reply->attr.type == FileType::symlink && (follow == Follow::yes || path.directory))
    return std::nullopt;
  if (path.directory && reply->attr.type != FileType::directory)
    return Result<Found>(Error(ENOTDIR));
  return Result<Found>(Found{std::move(reply->handle), reply->attr});
}

}  // namespace

Result<Found> find_path(Store& store, const CallerRef& caller, std::string_view path,
                        Follow follow) {
  auto components = split(path);
  if (!components) return components.error();
  if (auto found = at_once(store, caller, *components, follow)) return std::move(*found);
  auto place = Walk(store, caller).to(std::move(*components), follow);
  if (!place) return place.error();
  if (!place->found) return Error(ENOENT);
  return std::move(*place->found);
}

Result<Place> locate(Store& store, const CallerRef& caller, std::string_view path, Follow follow) {
  auto components = split(path);
  if (!components) return components.error();
  return Walk(store, caller).to(std::move(*components), follow);
}

}  // namespace forebay
