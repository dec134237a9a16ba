#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "conformance.h"
#include "core/testing.h"
#include "store/posix.h"

namespace forebay::conformance {

namespace {

class PosixFixture final : public Fixture {
 public:
  PosixFixture(const Wrap& wrap, PosixOptions options) {
    // A folder of its own within the temporary one, which nobody else may search.
    options.directory = temp_ / "export";
    FOREBAY_ASSERT(::mkdir(options.directory.c_str(), 0755) == 0);
    FOREBAY_ASSERT(::chmod(options.directory.c_str(), 0755) == 0);
    auto store = PosixStore::open(std::move(options), counters_);
    FOREBAY_ASSERT(store.has_value(), store.error().message());
    store_ = wrap(std::move(*store));
  }
  Store& store() override { return *store_; }

 private:
  TempDir temp_;
  CounterSet counters_;
  std::unique_ptr<Store> store_;
};

// What this user, or the file system under the temporary directory, does not have.
std::map<Feature, std::string> lacking() {
  std::map<Feature, std::string> lacks;
  if (::geteuid() != 0) lacks[Feature::others] = "only root may act for other users";
  const TempDir temp;
  const std::string path = temp / "probe";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  FOREBAY_ASSERT(fd >= 0);
  if (::fsetxattr(fd, "user.probe", "x", 1, 0) != 0) {
    lacks[Feature::xattr] = "the file system of the temporary directory has no user xattrs";
  }
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) != 0 ||
      ::fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 1) != 0) {
    lacks[Feature::fallocate] = "the file system of the temporary directory cannot do all of it";
  }
  ::close(fd);
  return lacks;
}

Subject subject(std::string name, PosixOptions options) {
  return {std::move(name),
          [options](const Wrap& w) { return std::make_unique<PosixFixture>(w, options); },
          lacking()};
}

}  // namespace

std::vector<Subject> posix_subjects() {
  PosixOptions paths, pool;
  paths.force_path_handles = true;
  pool.force_pool = true;
  Subject by_path = subject("posix_path_handles", paths);
  by_path.lacks[Feature::any_link] = "a path handle goes with the one name that it holds";
  Subject by_pool = subject("posix_pool", pool);
  // `posix` fails every call; these differ from it in little, and each run makes many files.
  by_path.every_call = by_pool.every_call = 8;
  PosixOptions direct, direct_threads;
  direct.direct = direct_threads.direct = direct_threads.force_no_ring = true;
  Subject by_ring = subject("posix_direct", direct);
  Subject by_threads = subject("posix_direct_threads", direct_threads);
  by_ring.every_call = by_threads.every_call = 8;
  PosixOptions application;
  application.in_application = application.mapped = true;
  Subject in_application = subject("posix_application", application);
  in_application.lacks[Feature::any_link] = by_path.lacks[Feature::any_link];
  in_application.lacks[Feature::others] = "it acts for its own process only";
  in_application.lacks[Feature::set_id] = "its process may have the capability to keep them";
  in_application.every_call = 8;
  return {subject("posix", {}),     by_path,       by_pool,
          under_scheduler(by_pool), by_ring,       by_threads,
          under_scheduler(by_ring), in_application};
}

}  // namespace forebay::conformance
