#include "case.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "planner.h"
#include "race.h"
#include "runner.h"
#include "watchdog.h"

namespace fuzz {
namespace {

std::optional<Bytes> read_file(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY);
  if (fd < 0) return std::nullopt;
  Bytes out;
  unsigned char part[65536];
  for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) out.insert(out.end(), part, part + n);
  close(fd);
  return out;
}

void write_file(const std::string& path, const Bytes& bytes) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  size_t done = 0;
  while (fd >= 0 && done < bytes.size()) {
    ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (fd < 0 || done < bytes.size()) {
    std::perror(("fuzz: cannot write " + path).c_str());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  close(fd);
}

std::string difference(const Bytes& expected, const Bytes& got, bool zeros) {
  if (expected.size() != got.size())
    return "the file has " + std::to_string(got.size()) + " bytes, expected " +
           std::to_string(expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!same(expected[i], got[i], zeros))
      return "the file at " + std::to_string(i) + ": expected " + std::to_string(expected[i]) +
             ", got " + std::to_string(got[i]);
  return "";
}

const Step* race_of(const Session& session) {
  for (const Step& step : session.steps)
    if (step.verb == Verb::race_shared || step.verb == Verb::race_atomic) return &step;
  return nullptr;
}

AccessPtr find(const Step& step, int id) {
  for (const Turn& turn : step.turns)
    for (const AccessPtr& a : turn.accesses)
      if (a->id == id) return a;
  return nullptr;
}

class Case {
 public:
  Case(const Options& options, uint64_t seed, const Mix& mix, int ranks, MPI_Comm comm,
       std::string path, Watchdog& watchdog)
      : options_(options),
        comm_(comm),
        path_(std::move(path)),
        planner_(options, seed, mix, ranks),
        runner_(comm, path_, options, watchdog),
        watchdog_(watchdog) {
    MPI_Comm_rank(comm, &rank_);
  }

  void run(Rng& rng, const std::string& title) {
    prepare(rng);
    script_ = title;
    for (int64_t n = rng.between(1, 3); n > 0; --n) {
      Session session = planner_.plan();
      script_ += " session:\n" + describe(session);
      watchdog_.watch(script_);
      if (options_.verbose && rank_ == 0)
        std::fputs((" session:\n" + describe(session)).c_str(), stdout);
      runner_.run(session);
      check(session);
      if (anyone_failed()) break;
    }
    if (rank_ == 0) unlink(path_.c_str());
  }

  const std::string& failure() const { return runner_.failure(); }
  const std::string& script() const { return script_; }

 private:
  void prepare(Rng& rng) {
    if (rng.chance(60)) {
      planner_.create(rng.below(rng.chance(20) ? 40000 : 3000));
      if (rank_ == 0) write_file(path_, planner_.model().bytes());
    }
    MPI_Barrier(comm_);
  }

  bool anyone_failed() {
    int mine = !failure().empty(), any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, comm_);
    return any;
  }

  void check(const Session& session) {
    std::optional<Bytes> content;
    if (rank_ == 0) content = read_file(path_);
    if (session.deleted) {
      if (content) runner_.fail("the file is still there after DELETE_ON_CLOSE");
      return;
    }
    if (rank_ == 0 && !content) runner_.fail("the file is not there");
    if (const Step* race = race_of(session)) resolve(*race, content.value_or(Bytes()));
    if (rank_ != 0 || !failure().empty()) return;
    std::string d = difference(planner_.model().bytes(), *content, options_.zeros);
    if (!d.empty()) runner_.fail(d);
  }

  // Rank 0 finds the order in which a race went, the others are told.
  void resolve(const Step& race, const Bytes& content) {
    std::vector<int> ids;
    if (rank_ == 0) {
      std::optional<Order> order = order_of(race, content);
      if (!order) runner_.fail("no order of the ranks explains the race's outcome");
      if (order)
        for (const AccessPtr& a : *order) ids.push_back(a->id);
    }
    int count = static_cast<int>(ids.size());
    MPI_Bcast(&count, 1, MPI_INT, 0, comm_);
    ids.resize(static_cast<size_t>(count));
    MPI_Bcast(ids.data(), count, MPI_INT, 0, comm_);
    Order order;
    for (int id : ids)
      if (AccessPtr a = find(race, id)) order.push_back(a);
    if (race.verb == Verb::race_shared) place_in_order(race, order);
    std::erase_if(order, [](const AccessPtr& a) { return !a->write; });
    planner_.apply(order);
  }

  std::optional<Order> order_of(const Step& race, const Bytes& content) {
    if (race.verb == Verb::race_atomic)
      return order_of_atomic(race, planner_.model(), content, runner_.race_reads(), options_.zeros);
    FileModel file;
    file.write({{0, static_cast<int64_t>(content.size())}}, content);
    return order_of_records(race, file, runner_.race_reads(), options_.zeros);
  }

  const Options& options_;
  MPI_Comm comm_;
  int rank_ = 0;
  std::string path_;
  Planner planner_;
  Runner runner_;
  Watchdog& watchdog_;
  std::string script_;
};

// The first failing rank tells; nothing is said if there is none.
bool report(const std::string& failure, const std::string& script, const Options& options) {
  int rank = 0, first = 0, mine;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  mine = failure.empty() ? 1 << 30 : rank;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == rank) {
    std::string text = script.substr(0, script.find('\n')) + "\n  " + failure + "\n";
    if (!options.keep_going) text += script + "FAILED: " + failure + "\n";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return first == 1 << 30;
}

}  // namespace

bool run_case(const Options& options, uint64_t seed, int64_t number, Watchdog& watchdog) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Rng rng(mix(seed, static_cast<uint64_t>(number)));
  const Mix& what =
      kind(options.only.empty() ? static_cast<int>(number % kinds()) : kind_index(options.only));

  // Some of the ranks, in any order.
  int members = rng.chance(70) ? ranks : static_cast<int>(rng.between(1, ranks));
  std::vector<int> keys;
  for (int r = 0; r < ranks; ++r) keys.push_back(r);
  if (rng.chance(30)) rng.shuffle(keys);
  int key = keys[static_cast<size_t>(rank)];
  MPI_Comm comm;
  MPI_Comm_split(MPI_COMM_WORLD, key < members ? 0 : MPI_UNDEFINED, key, &comm);

  static const int64_t job = static_cast<int64_t>(getpid());
  int64_t id = job;
  MPI_Bcast(&id, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  std::string path = options.dir + "/fuzz." + std::to_string(id) + "." + std::to_string(number);
  std::string title = "--seed " + std::to_string(seed) + " --case " + std::to_string(number) +
                      options.replay() + " (" + what.name + "; " + std::to_string(members) +
                      " of " + std::to_string(ranks) + " ranks)\n";
  if (options.verbose && rank == 0) std::fputs(title.c_str(), stdout);
  watchdog.watch(title);

  std::string failure, script;
  if (comm != MPI_COMM_NULL) {
    Case one(options, rng.next(), what, members, comm, path, watchdog);
    one.run(rng, title);
    failure = one.failure();
    script = one.script();
    MPI_Comm_free(&comm);
  }
  bool good = report(failure, script, options);
  watchdog.rest();
  return good;
}

}  // namespace fuzz
