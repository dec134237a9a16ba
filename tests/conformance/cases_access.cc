// Who may do what: seals, rights and callers.
#include "env.h"

namespace forebay::conformance {

namespace {

constexpr uint32_t kUid = 4001, kGid = 4001, kOtherUid = 4002, kOtherGid = 4002;

std::vector<std::string> damaged(const std::string& good) {
  std::vector<std::string> bad = {good + "x",
                                  good.substr(1),
                                  good.substr(0, good.size() - 1),
                                  "x",
                                  std::string(good.size(), '\0'),
                                  std::string(200, 'z')};
  for (size_t i = 0; i < good.size(); i += 1 + good.size() / 24) {
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    bad.push_back(std::move(flipped));
  }
  return bad;
}

void forged_handles(Env& e) {
  const File f = e.create("f");
  for (const std::string& bytes : damaged(f.handle.bytes)) {
    e.fails(EBADF, e.request(Op::getattr, {bytes}));
    e.fails(EBADF, e.open_request({bytes}, Access::read));
    e.fails(EBADF, e.request(Op::lookup, {bytes}, "x"));
    e.fails(EBADF, e.rename_request(e.top(), "f", {bytes}, "x"));
  }
  e.fails(EBADF, e.request(Op::getattr, {f.right.bytes}));
}

void forged_rights(Env& e) {
  const File f = e.create("f"), g = e.create("g");
  e.write(f, 0, "abc");
  std::string bytes(3, '?');
  const auto memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  const Extents where(Extent{Offset(0), Length(3)});
  for (const std::string& bad : damaged(f.right.bytes)) {
    const File forged{f.handle, {bad}};
    e.fails(EBADF, e.data_request(Op::read, forged, where, memory));
    e.fails(EBADF, e.data_request(Op::write, forged, where, memory));
    e.fails(EBADF, e.close_request(forged));
  }
  e.fails(EBADF, e.data_request(Op::read, {f.handle, g.right}, where, memory));
  if (f.handle.bytes.size() <= kMaxRight) {
    e.fails(EBADF, e.data_request(Op::read, {f.handle, {f.handle.bytes}}, where, memory));
  }
  MUST(bytes == "???");
}

void a_right_is_good_for_its_access(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "abc");
  std::string bytes(3, '?');
  const auto memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  const Extents where(Extent{Offset(0), Length(3)});
  const File reader = e.open(f.handle, Access::read), writer = e.open(f.handle, Access::write);
  e.fails(EBADF, e.data_request(Op::write, reader, where, memory));
  e.fails(EBADF, e.data_request(Op::read, writer, where, memory));
  Request resize = e.resize_request(f.handle, 0);
  resize.right = reader.right;
  e.fails(EBADF, resize);
  MUST(e.read(reader, 0, 9) == "abc");
  e.write(writer, 0, "xyz");
  MUST(e.read(reader, 0, 9) == "xyz");
}

void close(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "abc");
  e.close(f);
  e.close(f);
  // Close frees what the store holds; it revokes nothing.
  MUST(e.read(f, 0, 9) == "abc");
  e.close(f);
  e.remove("f");
  e.fails(ESTALE, e.request(Op::getattr, f.handle));
}

void written_by_its_creator_though_read_only(Env& e) {
  const File f = e.create(e.top(), "f", 0444);
  e.write(f, 0, "mine");
  MUST(e.read(f, 0, 9) == "mine");
  MUST(e.attr(f.handle).mode == 0444);
}

// ---- Other callers ----

Handle open_folder(Env& e, std::string name, uint32_t mode) {
  const Handle d = e.mkdir(std::move(name));
  Request r = e.request(Op::setattr, d);
  r.set.what = SetAttr::kMode;
  r.set.mode = mode;
  e.ok(r);
  return d;
}

void others_are_checked_at_open(Env& e) {
  const Handle d = open_folder(e, "d", 0777);
  e.caller = Env::user(kUid, kGid);
  const File f = e.create(d, "f", 0640);
  MUST(e.attr(f.handle).uid == kUid);
  MUST(e.attr(f.handle).gid == kGid);
  e.caller = Env::user(kOtherUid, kOtherGid);
  e.fails(EACCES, e.open_request(f.handle, Access::read));
  e.fails(EACCES, e.create_request(d, "f"));
  e.fails(EACCES, e.resize_request(f.handle, 0));
  e.caller = Env::user(kOtherUid, kOtherGid, {kGid});
  e.open(f.handle, Access::read);
  e.fails(EACCES, e.open_request(f.handle, Access::write));
  e.caller = Env::user(0, 0);
  e.open(f.handle, Access::both);
}

void others_rights_are_their_own(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "abc");
  e.caller = Env::user(kUid, kGid);
  std::string bytes(3, '?');
  const auto memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  const Extents where(Extent{Offset(0), Length(3)});
  e.fails(EACCES, e.data_request(Op::read, f, where, memory));
  e.fails(EACCES, e.data_request(Op::write, f, where, memory));
}

void others_need_access_to_folders(Env& e) {
  const Handle closed = open_folder(e, "closed", 0700), shared = open_folder(e, "shared", 0755);
  e.create(closed, "f");
  e.create(shared, "f");
  e.caller = Env::user(kUid, kGid);
  e.fails(EACCES, e.request(Op::lookup, e.top(), "closed/f"));
  e.fails(EACCES, e.request(Op::lookup, closed, "f"));
  Request list = e.request(Op::readdir, closed);
  list.length = Length(4096);
  e.fails(EACCES, list);
  e.ok(e.request(Op::lookup, shared, "f"));
  e.fails(EACCES, e.create_request(shared, "g"));
  e.fails(EACCES, e.request(Op::mkdir, shared, "g"));
  e.fails(EACCES, e.remove_request(shared, "f"));
  e.fails(EACCES, e.rename_request(shared, "f", shared, "g"));
}

void others_and_the_sticky_bit(Env& e) {
  const Handle d = open_folder(e, "d", 01777);
  e.caller = Env::user(kUid, kGid);
  e.create(d, "f", 0666);
  e.caller = Env::user(kOtherUid, kOtherGid);
  e.create(d, "g", 0666);
  e.fails(EPERM, e.remove_request(d, "f"));
  e.fails(EPERM, e.rename_request(d, "f", d, "h"));
  e.fails(EPERM, e.rename_request(d, "g", d, "f"));
  e.ok(e.remove_request(d, "g"));
}

void others_and_set_group_folders(Env& e) {
  const Handle d = open_folder(e, "d", 0777);
  Request r = e.request(Op::setattr, d);
  r.set.what = SetAttr::kGid;
  r.set.gid = kOtherGid;
  e.ok(r);
  r.set.what = SetAttr::kMode;
  r.set.mode = 02777;
  e.ok(r);
  e.caller = Env::user(kUid, kGid);
  MUST(e.attr(e.create(d, "f").handle).gid == kOtherGid);
  const Attr sub = e.attr(e.mkdir(d, "sub"));
  MUST(sub.gid == kOtherGid);
  MUST((sub.mode & 02000) != 0);
}

void others_do_not_change_what_is_not_theirs(Env& e) {
  const File f = e.create("f");
  e.caller = Env::user(kUid, kGid);
  Request r = e.request(Op::setattr, f.handle);
  r.set.what = SetAttr::kMode;
  r.set.mode = 0777;
  e.fails(EPERM, r);
  r.set = {};
  r.set.what = SetAttr::kUid;
  r.set.uid = kUid;
  e.fails(EPERM, r);
  r.set = {};
  r.set.what = SetAttr::kMtime;
  e.fails(EPERM, r);
  r.set = {};
  r.set.what = SetAttr::kMtimeNow | SetAttr::kAtimeNow;
  e.fails(EACCES, r);
}

void writing_clears_set_id_bits(Env& e) {
  const File f = e.create("f");
  Request r = e.request(Op::setattr, f.handle);
  r.set.what = SetAttr::kMode;
  r.set.mode = 06755;
  e.ok(r);
  MUST(e.attr(f.handle).mode == 06755);
  e.write(f, 0, "x");
  MUST(e.attr(f.handle).mode == 0755);
}

}  // namespace

std::vector<Case> access_cases() {
  const std::vector<Feature> others = {Feature::others, Feature::folders, Feature::attributes};
  const std::vector<Feature> seals = {Feature::seals, Feature::content};
  return {
      {"forged_handles", seals, forged_handles},
      {"forged_rights", seals, forged_rights},
      {"a_right_is_good_for_its_access", seals, a_right_is_good_for_its_access},
      {"close", {Feature::content}, close},
      {"written_by_its_creator_though_read_only",
       {Feature::content, Feature::attributes},
       written_by_its_creator_though_read_only},
      {"others_are_checked_at_open", others, others_are_checked_at_open},
      {"others_rights_are_their_own", others, others_rights_are_their_own},
      {"others_need_access_to_folders", others, others_need_access_to_folders},
      {"others_and_the_sticky_bit", others, others_and_the_sticky_bit},
      {"others_and_set_group_folders", others, others_and_set_group_folders},
      {"others_do_not_change_what_is_not_theirs", others, others_do_not_change_what_is_not_theirs},
      {"writing_clears_set_id_bits",
       {Feature::attributes, Feature::set_id},
       writing_clears_set_id_bits}};
}

}  // namespace forebay::conformance
