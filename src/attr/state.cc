#include "attr/state.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::attr {

namespace {

using Kind = Command::Kind;

constexpr unsigned char kOpen = 0x80;  // in the kind of a lane

Error strange(const Command& c, std::string_view why) {
  return Error(EINVAL, fmt::format("state: command {} of file {}: {}", static_cast<int>(c.kind),
                                   c.file, why));
}

}  // namespace

Result<uint64_t> State::apply(const Command& c) {
  switch (c.kind) {
    case Kind::life:
      return life_ = c.value;
    case Kind::file:
      return add_file(c);
    case Kind::lane:
      return restore_lane(c);
    case Kind::forget_client:
      return forget_client(c);
    case Kind::intend:
      return intend(c);
    case Kind::named:
      return named(c);
    case Kind::user:
      return set_user(c);
    default:
      break;
  }
  File* const file = at(c.file);
  if (!file) return strange(c, "there is no such file");
  switch (c.kind) {
    case Kind::forget_file:
      return forget_file(c);
    case Kind::append:
      return grant(*file, c);
    case Kind::wrote:
    case Kind::lost:
      return settle(*file, c);
    case Kind::hole:
      return add_hole(*file, c.value, {c.extra}), c.value;
    case Kind::give_back:
      return give_back(*file, c);
    case Kind::cut:
      return cut(*file, c);
    default:
      return change(*file, c);
  }
}

// ---- Files ----

State::File* State::at(uint32_t number) {
  const auto found = files_.find(number);
  return found == files_.end() ? nullptr : found->second.get();
}

uint32_t State::find(std::string_view key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? 0 : found->second;
}

Result<uint64_t> State::add_file(const Command& c) {
  if (File* const known = at(c.file); known && known->key == c.name) {
    known->handle = c.handle.empty() ? c.name : c.handle;
    return uint64_t{c.file};
  }
  if (c.file == 0 || at(c.file) || numbers_.contains(c.name)) {
    return strange(c, "it is known already");
  }
  if (files_.size() >= limits_.files) {
    return Error(ENOSPC, fmt::format("the server keeps attributes and appends of {} files, and of "
                                     "no more",
                                     files_.size()));
  }
  auto file = std::make_unique<File>(limits_.attributes);
  file->key = c.name;
  file->handle = c.handle.empty() ? c.name : c.handle;
  numbers_.emplace(c.name, c.file);
  files_.emplace(c.file, std::move(file));
  last_file_ = std::max(last_file_, c.file);
  return uint64_t{c.file};
}

Result<uint64_t> State::forget_file(const Command& c) {
  at(c.file)->values.each(
      [&](std::string_view name, uint64_t) { attribute_bytes_ -= attribute_bytes(name); });
  numbers_.erase(at(c.file)->key);
  files_.erase(c.file);
  return uint64_t{0};
}

Handle State::handle(uint32_t number) const {
  const File* const file = at(number);
  return file ? Handle{file->handle} : Handle{};
}

std::vector<std::pair<uint32_t, Handle>> State::files() const {
  std::vector<std::pair<uint32_t, Handle>> all;
  for (const auto& [number, file] : files_) all.emplace_back(number, Handle{file->handle});
  return all;
}

// ---- Attributes ----

Result<uint64_t> State::get(uint32_t file, std::string_view name) const {
  static const Values kNone;
  const File* const found = at(file);
  return (found ? found->values : kNone).get(name);
}

const Values* State::values(uint32_t file) const {
  const File* const found = at(file);
  return found ? &found->values : nullptr;
}

Result<uint64_t> State::change(File& file, const Command& c) {
  if (auto room = room_for(c.once); !room) return std::move(room).error();
  Values& values = file.values;
  Result<void> done;
  uint64_t before = 0;
  const auto keep = [&](Result<uint64_t> result) -> Result<void> {
    if (!result) return std::move(result).error();
    before = *result;
    return {};
  };
  switch (c.kind) {
    case Kind::create:
      done = values.create(c.name, c.value);
      break;
    case Kind::remove:
      done = values.remove(c.name);
      break;
    case Kind::set:
      done = values.set(c.name, c.value);
      break;
    case Kind::add:
      done = keep(values.fetch_and_add(c.name, c.value));
      break;
    case Kind::swap:
      done = keep(values.compare_and_swap(c.name, c.extra, c.value));
      break;
    default:
      return strange(c, "is unknown");
  }
  if (!done) return std::move(done).error();
  if (c.kind == Kind::create) attribute_bytes_ += attribute_bytes(c.name);
  if (c.kind == Kind::remove) attribute_bytes_ -= attribute_bytes(c.name);
  remember(c.once, {c.once.sequence, c.kind, c.file, before});
  if (c.kind == Kind::remove && file.bare() && file.end == 0) (void)forget_file(c);
  return before;
}

// What their appends need is in the file system.
std::vector<uint32_t> State::bare_files(size_t most) const {
  std::vector<uint32_t> bare;
  for (const auto& [number, file] : files_) {
    if (bare.size() < most && file->bare()) bare.push_back(number);
  }
  return bare;
}

// ---- Appends ----

uint64_t State::end(uint32_t file) const {
  const File* const found = at(file);
  return found ? found->end : 0;
}

std::vector<Hole> State::holes(uint32_t number) const {
  std::vector<Hole> all;
  if (const File* file = at(number)) {
    for (const auto& [offset, hole] : file->holes) all.push_back({offset, hole.length});
  }
  return all;
}

uint64_t State::hole_count(uint32_t number) const {
  const File* const file = at(number);
  return file ? file->holes.size() + file->more_holes : 0;
}

Result<uint64_t> State::grant(File& file, const Command& c) {
  if (auto room = room_for(c.once); !room) return std::move(room).error();
  if (c.extra == 0 || c.value > kMaxOffset || c.extra > kMaxOffset - c.value) {
    return Error(EFBIG, "an append would end beyond the largest offset");
  }
  const Grant made{c.extra, c.once, std::min(file.end, c.value)};
  if (!file.open.emplace(c.value, made).second) {
    return strange(c, "the place was granted before");
  }
  file.end = std::max(file.end, c.value + c.extra);
  remember(c.once, {c.once.sequence, c.kind, c.file, c.value, c.extra, true});
  return c.value;
}

// Settled as a hole, a place is written after all if its request comes again.
Result<uint64_t> State::settle(File& file, const Command& c) {
  const auto granted = file.open.find(c.value);
  const auto hole = file.holes.find(c.value);
  if (granted == file.open.end() && hole == file.holes.end()) return c.value;  // it was cut off
  if (c.kind == Kind::wrote) {
    Done* const mine = lane(c.once);
    if (mine && mine->kind == Kind::append && mine->file == c.file && mine->value == c.value) {
      mine->open = false;
    }
    if (hole != file.holes.end()) file.holes.erase(hole);
  } else if (granted != file.open.end()) {
    add_hole(file, c.value, granted->second);
  }
  if (granted != file.open.end()) file.open.erase(granted);
  return c.value;
}

// Its request never was, if it comes again.
Result<uint64_t> State::give_back(File& file, const Command& c) {
  Done* const mine = lane(c.once);
  if (mine && mine->sequence == c.once.sequence && mine->kind == Kind::append &&
      mine->file == c.file && mine->value == c.value) {
    mine->kind = Kind::life;
    mine->open = false;
  }
  file.open.erase(c.value);
  file.holes.erase(c.value);
  file.end = c.extra;
  return c.value;
}

void State::came_again(const Done& done) {
  File* const file = at(done.file);
  if (!file) return;
  for (auto* const places : {&file->open, &file->holes}) {
    if (const auto found = places->find(done.value); found != places->end()) {
      found->second.again = true;
      found->second.untouched = false;
    }
  }
}

void State::untouched(uint32_t number, uint64_t place) {
  File* const file = at(number);
  if (!file) return;
  const auto hole = file->holes.find(place);
  if (hole != file->holes.end()) hole->second.untouched = !hole->second.again;
}

std::vector<Command> State::giving_back(uint32_t number, uint64_t place) const {
  std::vector<Command> all;
  const File* const file = at(number);
  if (!file) return all;
  const auto last = file->open.find(place);
  if (last == file->open.end() || last->second.again || place + last->second.length != file->end) {
    return all;
  }
  const auto give = [&](uint64_t at, const Grant& grant) {
    all.push_back({Kind::give_back, number, at, grant.before, grant.once});
  };
  give(place, last->second);
  for (auto hole = file->holes.rbegin(); hole != file->holes.rend(); ++hole) {
    const Command& next = all.back();
    const uint64_t end = hole->first + hole->second.length;
    if (!hole->second.untouched || end != next.value || end != next.extra) break;
    give(hole->first, hole->second);
  }
  return all;
}

bool State::has_open(uint32_t number) const {
  const File* const file = at(number);
  return file && !file->open.empty();
}

void State::add_hole(File& file, uint64_t offset, const Grant& grant) const {
  file.holes[offset] = grant;
  if (file.holes.size() <= limits_.holes) return;
  file.holes.erase(file.holes.begin());
  ++file.more_holes;
}

// What was granted behind the new end was cut off with the rest: to its request it has happened.
Result<uint64_t> State::cut(File& file, const Command& c) {
  for (auto grant = file.open.begin(); grant != file.open.end();) {
    if (grant->first + grant->second.length <= c.value) {
      ++grant;
      continue;
    }
    Done* const its = lane(grant->second.once);
    if (its && its->kind == Kind::append && its->value == grant->first &&
        its->sequence == grant->second.once.sequence) {
      its->open = false;
    }
    grant = file.open.erase(grant);
  }
  file.holes.erase(file.holes.lower_bound(c.value), file.holes.end());
  file.end = c.value;
  return c.value;
}

std::vector<Command> State::orphans() const {
  std::vector<Command> all;
  for (const auto& [number, file] : files_) {
    for (const auto& [place, grant] : file->open) {
      const Done* const its = lane(grant.once);
      if (!its || its->sequence != grant.once.sequence) {
        all.push_back({.kind = Kind::lost, .file = number, .value = place, .once = grant.once});
      }
    }
  }
  return all;
}

// ---- Requests that were done ----

Done* State::lane(const Once& once) {
  if (once.empty()) return nullptr;
  const auto found = clients_.find(ClientId{once.client, once.client2});
  if (found == clients_.end() || once.lane >= found->second.lanes.size()) return nullptr;
  return &found->second.lanes[once.lane];
}

Result<std::optional<Done>> State::recall(const Once& once) const {
  const Done* const last = lane(once);
  if (!last || last->sequence < once.sequence) return std::optional<Done>();
  if (last->sequence == once.sequence) {
    return last->kind == Kind::life ? std::optional<Done>() : std::optional(*last);
  }
  return Error(ECANCELED, fmt::format("request {} of a client that has gone on to {}",
                                      once.sequence, last->sequence));
}

Result<void> State::room_for(const Once& once) const {
  if (once.empty() || lane(once) || lanes_ + once.lane < limits_.lanes) return {};
  return Error(ENOBUFS, fmt::format("the server remembers {} requests of {} clients, and no more",
                                    lanes_, clients_.size()));
}

// Of a client's user.
void State::count(const Client& client, size_t more, size_t less) {
  if (!client.user) return;
  size_t& has = users_[*client.user];
  has += more;
  has -= less;
  if (has == 0) users_.erase(*client.user);
}

const State::Client* State::client(const Once& once) const {
  const auto found = clients_.find(ClientId{once.client, once.client2});
  return found == clients_.end() ? nullptr : &found->second;
}

bool State::has_user(const Once& once) const {
  const Client* const known = client(once);
  return known && known->user;
}

Result<void> State::room_for(const Once& once, uint32_t user) const {
  if (once.empty()) return {};
  const Client* const known = client(once);
  const size_t lanes = known ? known->lanes.size() : 0;
  if (once.lane < lanes) return {};
  const uint32_t whose = known && known->user ? *known->user : user;
  const auto found = users_.find(whose);
  const size_t has = found == users_.end() ? 0 : found->second;
  const size_t left = limits_.lanes - std::min(lanes_, limits_.lanes);
  const size_t more = once.lane + size_t{1} - lanes;
  if (has + 2 * more <= left) return {};
  return Error(ENOBUFS, fmt::format("the server remembers {} requests of user {}, and has room for "
                                    "{} more, of which others get theirs",
                                    has, whose, left));
}

// The first one counts: nobody else knows the client's number.
Result<uint64_t> State::set_user(const Command& c) {
  const auto found = clients_.find(ClientId{c.once.client, c.once.client2});
  if (found == clients_.end() || found->second.user) return uint64_t{0};
  found->second.user = static_cast<uint32_t>(c.value);
  count(found->second, found->second.lanes.size());
  return uint64_t{0};
}

void State::remember(const Once& once, const Done& done) {
  if (once.empty()) return;
  Client& client = clients_[{once.client, once.client2}];
  if (once.lane >= client.lanes.size()) {
    const size_t more = once.lane + size_t{1} - client.lanes.size();
    lanes_ += more;
    count(client, more);
    client.lanes.resize(once.lane + size_t{1});
  }
  client.lanes[once.lane] = done;
}

Result<uint64_t> State::restore_lane(const Command& c) {
  if (c.name.size() != 1) return strange(c, "a lane of no kind");
  const auto kind = static_cast<unsigned char>(c.name.front());
  remember(c.once, {c.once.sequence, static_cast<Kind>(kind & ~kOpen), c.file, c.value, c.extra,
                    (kind & kOpen) != 0});
  return c.value;
}

// Its places that nobody has written are holes for good.
Result<uint64_t> State::forget_client(const Command& c) {
  const auto found = clients_.find(ClientId{c.once.client, c.once.client2});
  if (found == clients_.end()) return uint64_t{0};
  const std::vector<Done> lanes = std::move(found->second.lanes);
  lanes_ -= lanes.size();
  count(found->second, 0, lanes.size());
  clients_.erase(found);
  for (const Done& done : lanes) {
    File* const file = done.open ? at(done.file) : nullptr;
    if (!file) continue;
    // The file may be another, if the one of that number was forgotten.
    const auto granted = file->open.find(done.value);
    if (granted == file->open.end() || granted->second.once.client != c.once.client ||
        granted->second.once.client2 != c.once.client2) {
      continue;
    }
    (void)settle(*file, {.kind = Kind::lost, .file = done.file, .value = done.value});
  }
  return uint64_t{0};
}

// ---- Names ----

Result<uint64_t> State::intend(const Command& c) {
  if (c.once.empty()) return strange(c, "an intent of nobody");
  if (auto room = room_for(c.once); !room) return std::move(room).error();
  remember(c.once, {.sequence = c.once.sequence,
                    .kind = c.kind,
                    .open = true,
                    .intent = std::make_shared<const std::string>(c.name)});
  return uint64_t{0};
}

Result<uint64_t> State::named(const Command& c) {
  Done* const mine = lane(c.once);
  if (mine && mine->sequence == c.once.sequence && mine->kind == Kind::intend) {
    mine->value = c.value;
    mine->open = false;
    mine->intent.reset();
  }
  return c.value;
}

std::vector<std::pair<Once, std::shared_ptr<const std::string>>> State::intents() const {
  std::vector<std::pair<Once, std::shared_ptr<const std::string>>> all;
  for (const auto& [id, client] : clients_) {
    for (size_t i = 0; i < client.lanes.size(); ++i) {
      const Done& d = client.lanes[i];
      if (d.intent) all.push_back({{id.a, id.b, d.sequence, static_cast<uint16_t>(i)}, d.intent});
    }
  }
  return all;
}

void State::touch(const Once& once, uint64_t tick) {
  const auto found = clients_.find(ClientId{once.client, once.client2});
  if (found != clients_.end()) found->second.tick = tick;
}

std::vector<Once> State::clients_before(uint64_t tick) const {
  std::vector<Once> old;
  for (const auto& [id, client] : clients_) {
    if (client.tick < tick) old.push_back({id.a, id.b});
  }
  return old;
}

// ---- All of it ----

void State::snapshot(const std::function<void(const Command&)>& tell) const {
  tell({.kind = Kind::life, .value = life_});
  for (const auto& [number, file] : files_) {
    tell({.kind = Kind::file, .file = number, .name = file->key, .handle = file->handle});
    file->values.each([&, number = number](std::string_view name, uint64_t value) {
      tell({.kind = Kind::create, .file = number, .value = value, .name = name});
    });
    if (file->end != 0) tell({.kind = Kind::cut, .file = number, .value = file->end});
    for (const auto& [offset, hole] : file->holes) {
      tell({.kind = Kind::hole, .file = number, .value = offset, .extra = hole.length});
    }
  }
  for (const auto& [id, client] : clients_) {
    for (size_t i = 0; i < client.lanes.size(); ++i) {
      const Done& d = client.lanes[i];
      if (d.sequence == 0) continue;
      const auto kind =
          static_cast<char>(static_cast<unsigned char>(d.kind) | (d.open ? kOpen : 0));
      const Once once{id.a, id.b, d.sequence, static_cast<uint16_t>(i)};
      if (d.intent) {
        tell({.kind = Kind::intend, .once = once, .name = *d.intent});
        continue;
      }
      tell({Kind::lane, d.file, d.value, d.length, once, std::string_view(&kind, 1)});
    }
    if (client.user) tell({.kind = Kind::user, .value = *client.user, .once = {id.a, id.b}});
  }
  // After their lanes, unless those have gone on.
  for (const auto& [number, file] : files_) {
    for (const auto& [place, grant] : file->open) {
      const Done* const its = lane(grant.once);
      const bool theirs = its && its->sequence == grant.once.sequence;
      tell({Kind::append, number, place, grant.length, theirs ? grant.once : Once{}});
    }
  }
}

State::Counts State::counts() const {
  Counts n;
  n.files = files_.size();
  n.clients = clients_.size();
  n.lanes = lanes_;
  for (const auto& [number, file] : files_) {
    n.attributes += file->values.size();
    n.open += file->open.size();
    n.holes += file->holes.size() + file->more_holes;
  }
  return n;
}

}  // namespace forebay::attr
