#include "capi/paths.h"

namespace forebay::capi {

Result<Place> name_in(fb_store& store, std::string_view path, int root) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  const std::string_view above = slash == path.npos ? std::string_view() : path.substr(0, slash);
  if (name.empty()) return Error(root, "this is the export itself");
  if (name == "." || name == "..") return Error(EINVAL, "the last component is . or ..");
  if (above.find_first_not_of('/') == above.npos) {
    auto top = store.store->root();
    if (!top) return top.error();
    return Place{std::move(*top), std::string(name), std::nullopt};
  }
  auto directory = find_path(*store.store, store.caller, above);
  if (!directory) return directory.error();
  return Place{std::move(directory->handle), std::string(name), std::nullopt};
}

}  // namespace forebay::capi
