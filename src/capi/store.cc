#include "capi/store.h"

#include <fmt/format.h>

#include "assembly/build.h"
#include "assembly/config.h"
#include "capi/error.h"

using namespace forebay;
using namespace forebay::capi;

namespace {

// So many files are closed before the memory of the first is used for another one.
constexpr size_t kQuarantine = 256;

Result<std::unique_ptr<fb_store>> connect_to(const char* server, const char* export_name) {
  ConfigSources sources = ConfigSources::of_process();
  if (server) sources.overrides.emplace_back("client.server", server);
  if (export_name) sources.overrides.emplace_back("client.export", export_name);
  auto config = load_config(sources);
  if (!config) return config.error();
  auto store = connect(*config, program_invocation_short_name);
  if (!store) return store.error();
  return std::make_unique<fb_store>(std::move(*store), this_process_caller());
}

}  // namespace

// ---- Files' memory and uses ----

fb_store::~fb_store() {
  helpers->end(*lives.now());
  for (fb_file* file : lives.now()->closed) delete file;
}

namespace forebay::capi {

Result<Use> Use::begin(fb_file* file) {
  if (!file) return Error(EBADF, "the file is NULL");
  const LifeRef& life = file->owner.lives.now();
  if (!file->uses.begin(*life)) return Error(EBADF, "the file is closed");
  return Use(file, life);
}

Request Use::request(Op op, uint32_t flags) const {
  return {.op = op,
          .flags = flags,
          .caller = file_->owner.caller,
          .handle = file_->handle,
          .right = file_->right};
}

fb_file* take_place(fb_store& store) {
  Life& life = *store.lives.now();
  std::lock_guard lock(life.mutex);
  if (life.closed.size() <= kQuarantine) return new fb_file(store);
  fb_file* oldest = life.closed.front();
  life.closed.pop_front();
  return oldest;
}

void give_place(fb_file* file, Life& life) {
  file->write_flags = 0;
  std::lock_guard lock(life.mutex);
  life.closed.push_back(file);
}

Result<void> given(std::initializer_list<const void*> arguments) {
  for (const void* argument : arguments)
    if (!argument) return Error(EINVAL, "an argument is NULL");
  return {};
}

}  // namespace forebay::capi

// ---- Connections ----

int fb_connect(const char* server, const char* export_name, fb_store** store) {
  return status({"fb_connect", server}, [&]() -> Result<void> {
    if (auto ok = given({store}); !ok) return ok;
    *store = nullptr;
    auto connected = connect_to(server, export_name);
    if (!connected) return connected.error();
    *store = connected->release();
    return {};
  });
}

int fb_disconnect(fb_store* store) {
  return status({"fb_disconnect"}, [&]() -> Result<void> {
    if (!store) return {};
    if (const size_t open = store->open.load(); open != 0)
      return Error(EBUSY, fmt::format("{} files or directories are open: close them first", open));
    delete store;
    return {};
  });
}
