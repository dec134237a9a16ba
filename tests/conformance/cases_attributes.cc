#include "env.h"

namespace forebay::conformance {

namespace {

void attributes_of_new_files(Env& e) {
  const File f = e.create(e.top(), "f", 0640);
  const Attr file = e.attr(f.handle), top = e.attr(e.top());
  MUST(file.type == FileType::file);
  MUST(file.mode == 0640);
  MUST(file.size == 0);
  MUST(file.links == 1);
  MUST(file.uid == e.caller->uid);
  MUST(file.file_id != top.file_id);
  MUST(file.fs_id == top.fs_id);
  MUST(top.type == FileType::directory);
  MUST(file.mtime.seconds > 1'000'000'000);
  const Attr dir = e.attr(e.mkdir(e.top(), "d", 01750));
  MUST(dir.type == FileType::directory);
  MUST(dir.mode == 01750);
}

void set_mode_and_times(Env& e) {
  const File f = e.create("f");
  Request r = e.request(Op::setattr, f.handle);
  r.set.what = SetAttr::kMode | SetAttr::kMtime | SetAttr::kAtime;
  r.set.mode = 0600;
  r.set.mtime = {1'500'000'000, 123'456'000};
  r.set.atime = {-5, 0};
  const Attr changed = e.ok(r).attr;
  MUST(changed.mode == 0600);
  MUST(changed.mtime == r.set.mtime);
  MUST(changed.atime == r.set.atime);
  MUST(e.attr(f.handle).mtime == r.set.mtime);
  Request now = e.request(Op::setattr, f.handle);
  now.right = f.right;
  now.set.what = SetAttr::kMtimeNow;
  MUST(e.ok(now).attr.mtime.seconds > 1'500'000'000);
  Request nothing = e.request(Op::setattr, f.handle);
  e.fails(EINVAL, nothing);
}

void writing_changes_the_time(Env& e) {
  const File f = e.create("f");
  Request r = e.request(Op::setattr, f.handle);
  r.set.what = SetAttr::kMtime;
  r.set.mtime = {1'000'000'000, 0};
  e.ok(r);
  e.write(f, 0, "x");
  MUST(e.attr(f.handle).mtime.seconds > 1'000'000'000);
}

void state_of_the_file_system(Env& e) {
  const Reply reply = e.ok(e.request(Op::statfs, e.top()));
  MUST(reply.statfs.name_max == 255);
  MUST(reply.statfs.blocks_free <= reply.statfs.blocks);
  const File f = e.create("f");
  const Layout layout = e.ok(e.request(Op::layout, f.handle)).layout;
  MUST(layout.stripe_count >= 1);
}

Request xattr(Env& e, Op op, const Handle& file, std::string name, std::string value = {},
              uint32_t flags = 0) {
  Request r = e.request(op, file, std::move(name));
  r.data = std::move(value);
  r.flags = flags;
  return r;
}

void extended_attributes(Env& e) {
  const File f = e.create("f");
  const Handle& h = f.handle;
  e.fails(ENODATA, xattr(e, Op::xattr_get, h, "user.a"));
  e.ok(xattr(e, Op::xattr_set, h, "user.a", "one"));
  e.ok(xattr(e, Op::xattr_set, h, "user.b", std::string("\0\xff", 2)));
  MUST(e.ok(xattr(e, Op::xattr_get, h, "user.a")).data == "one");
  MUST(e.ok(xattr(e, Op::xattr_get, h, "user.b")).data == std::string("\0\xff", 2));
  e.fails(EEXIST, xattr(e, Op::xattr_set, h, "user.a", "x", kFlagCreate));
  e.fails(ENODATA, xattr(e, Op::xattr_set, h, "user.c", "x", kFlagReplace));
  e.ok(xattr(e, Op::xattr_set, h, "user.a", "", kFlagReplace));
  MUST(e.ok(xattr(e, Op::xattr_get, h, "user.a")).data.empty());
  const std::string names = '\0' + e.ok(e.request(Op::xattr_list, h)).data;
  MUST(names.find(std::string("\0user.a\0", 8)) != names.npos);
  MUST(names.find(std::string("\0user.b\0", 8)) != names.npos);
  e.ok(xattr(e, Op::xattr_remove, h, "user.a"));
  e.fails(ENODATA, xattr(e, Op::xattr_get, h, "user.a"));
  e.fails(ENODATA, xattr(e, Op::xattr_remove, h, "user.a"));
  const Handle d = e.mkdir("d");
  e.ok(xattr(e, Op::xattr_set, d, "user.dir", "yes"));
  MUST(e.ok(xattr(e, Op::xattr_get, d, "user.dir")).data == "yes");
}

void extended_attributes_out_of_bounds(Env& e) {
  const File f = e.create("f");
  e.fails(ERANGE, xattr(e, Op::xattr_set, f.handle, "user." + std::string(251, 'x'), "v"));
  e.fails(E2BIG, xattr(e, Op::xattr_set, f.handle, "user.v", std::string(65537, 'v')));
  e.fails({EOPNOTSUPP, EPERM}, xattr(e, Op::xattr_set, f.handle, "nowhere.v", "v"));
}

Request fallocate(Env& e, const File& f, uint64_t offset, uint64_t length, uint32_t flags) {
  Request r = e.request(Op::fallocate, f.handle);
  r.right = f.right;
  r.offset = Offset(offset);
  r.length = Length(length);
  r.flags = flags;
  return r;
}

void allocate(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "abc");
  e.ok(fallocate(e, f, 0, 100'000, kFlagKeepSize));
  MUST(e.attr(f.handle).size == 3);
  e.ok(fallocate(e, f, 0, 100'000, 0));
  MUST(e.attr(f.handle).size == 100'000);
  MUST(e.read(f, 0, 5) == std::string("abc\0\0", 5));
  e.ok(fallocate(e, f, 0, 10, 0));
  MUST(e.attr(f.handle).size == 100'000);
  e.ok(fallocate(e, f, 50'000, 100'000, kFlagFill));
  MUST(e.attr(f.handle).size == 150'000);
  MUST(e.read(f, 0, 5) == std::string("abc\0\0", 5));
  e.fails(EINVAL, fallocate(e, f, 0, 0, 0));
  e.fails(EINVAL, fallocate(e, f, 0, 1, kFlagPunchHole | kFlagZeroRange));
  const File reader = e.open(f.handle, Access::read);
  e.fails(EBADF, fallocate(e, reader, 0, 10, 0));
}

void punch_and_zero(Env& e) {
  const File f = e.create("f");
  std::string want(200'000, 'x');
  e.write(f, 0, want);
  e.ok(fallocate(e, f, 1000, 150'000, kFlagPunchHole | kFlagKeepSize));
  want.replace(1000, 150'000, 150'000, '\0');
  MUST(e.read(f, 0, 300'000) == want);
  e.ok(fallocate(e, f, 170'000, 10, kFlagZeroRange));
  want.replace(170'000, 10, 10, '\0');
  e.ok(fallocate(e, f, 199'999, 10, kFlagZeroRange | kFlagKeepSize));
  want.back() = '\0';
  MUST(e.read(f, 0, 300'000) == want);
  e.ok(fallocate(e, f, 199'990, 20, kFlagZeroRange));
  want.replace(199'990, 10, 20, '\0');
  MUST(e.read(f, 0, 300'000) == want);
  e.ok(fallocate(e, f, 190'000, 50'000, kFlagPunchHole));
  MUST(e.attr(f.handle).size == 200'010);
}

void malformed_requests(Env& e) {
  const File f = e.create("f");
  e.fails(EINVAL, e.request(Op::getattr, Handle{}));
  e.fails(EINVAL, e.request(Op::getattr, f.handle, "surplus"));
  e.fails(EINVAL, e.request(Op::lookup, e.top()));
  Request flags = e.create_request(e.top(), "g", kFlagPunchHole);
  e.fails(EINVAL, flags);
  Request no_right = e.data_request(Op::read, {f.handle, {}}, Extents(), Memory());
  e.fails(EINVAL, no_right);
  Request nobody = e.request(Op::getattr, f.handle);
  nobody.caller = nullptr;
  e.fails(EINVAL, nobody);
}

}  // namespace

std::vector<Case> attribute_cases() {
  const std::vector<Feature> kept = {Feature::attributes};
  return {
      {"attributes_of_new_files", {Feature::attributes, Feature::folders}, attributes_of_new_files},
      {"set_mode_and_times", kept, set_mode_and_times},
      {"writing_changes_the_time", kept, writing_changes_the_time},
      {"state_of_the_file_system", {}, state_of_the_file_system},
      {"extended_attributes", {Feature::xattr, Feature::folders}, extended_attributes},
      {"extended_attributes_out_of_bounds", {Feature::xattr}, extended_attributes_out_of_bounds},
      {"allocate", {Feature::content, Feature::seals}, allocate},
      {"punch_and_zero", {Feature::fallocate}, punch_and_zero},
      {"malformed_requests", {}, malformed_requests}};
}

}  // namespace forebay::conformance
