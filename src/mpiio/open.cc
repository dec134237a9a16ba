#include "mpiio/open.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <thread>

#include "mpiio/collective.h"
#include "mpiio/operation.h"
#include "mpiio/own_comm.h"
#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

Fault check_amode(int amode) {
  const auto access =
      static_cast<unsigned>(amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR));
  if (std::popcount(access) != 1)
    return {MPI_ERR_AMODE, "one of MPI_MODE_RDONLY, WRONLY and RDWR has to be given"};
  if ((amode & MPI_MODE_RDONLY) && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
    return {MPI_ERR_AMODE, "MPI_MODE_CREATE and EXCL make no sense with RDONLY"};
  if ((amode & MPI_MODE_RDWR) && (amode & MPI_MODE_SEQUENTIAL))
    return {MPI_ERR_AMODE, "MPI_MODE_SEQUENTIAL makes no sense with RDWR"};
  return {};
}

int flags_of(int amode) {
  const int access = amode & MPI_MODE_RDONLY   ? O_RDONLY
                     : amode & MPI_MODE_WRONLY ? O_WRONLY
                                               : O_RDWR;
  return access | (amode & MPI_MODE_CREATE ? O_CREAT : 0) | (amode & MPI_MODE_EXCL ? O_EXCL : 0);
}

// Of a node more aggregators than it has processors would wait for each other's. To count them is
// to read a file.
uint32_t most_aggregators() {
  constexpr uint32_t kMost = 8;
  static const uint32_t cores = std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
  return cores;
}

std::string read_text(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// What rank 0 tells the others when it has opened, and perhaps made, the file.
struct Announcement {
  int code = MPI_SUCCESS;
  uint32_t aggregators = 1;                 // of a node, unless hints say otherwise
  uint64_t site_hints = 0, user_hints = 0;  // bytes of text
};

// What each rank has opened.
struct Finding {
  long long code, far, served;  // far: not in the memory that rank 0 offers
  long long file, device;       // numbers
  long long also;               // the name that the rank gave; of a served file, its handle
};
constexpr size_t kNumbers = sizeof(Finding) / sizeof(long long);

// The smallest and the largest of all ranks' numbers.
struct Findings {
  Finding least, most;

  // Numbers of devices mean nothing on another node, and those of files do not on some file systems
  // (FUSE); names of one file may differ. So there one of the two is enough.
  bool same_file() const {
    const bool file = least.file == most.file;
    if (!most.served && !most.far) return file && least.device == most.device;
    return file || least.also == most.also;
  }
};

// What each rank says when it comes to the Lobby.
struct Arriving {
  int code, amode;
  bool has_kept;  // what is in it; or else a file of this rank that is open has
};

struct Company {
  explicit Company(std::span<const Arriving> all)
      : worst(std::ranges::max(all, {}, &Arriving::code).code),
        same_modes(std::ranges::adjacent_find(all, std::ranges::not_equal_to(), &Arriving::amode) ==
                   all.end()),
        have_kept(std::ranges::all_of(all, &Arriving::has_kept)) {}
  bool can_begin() const { return worst == MPI_SUCCESS && same_modes && have_kept; }

  const int worst;
  const bool same_modes, have_kept;
};

class Opening {
 public:
  Opening(MPI_Comm comm, const char* name, int amode, MPI_Info info)
      : program_comm_(comm), info_(info), lobby_(Process::get().lobbies().find(comm)) {
    file_->name = name ? name : "";
    file_->amode = amode;
    file_->caller = Process::get().caller();
    file_->handler = Process::get().default_handler();
    PMPI_Comm_rank(comm, &file_->rank);
    PMPI_Comm_size(comm, &file_->ranks);
  }

  Fault run() {
    Fault fault = check_arguments();
    if (auto worst = lobby_ ? begin_in_lobby(fault) : begin(fault)) return worst;
    if (file_->rank != 0) fault = open_here(0);
    if (auto worst = file_->lobby ? gather_near(std::move(fault)) : gather(std::move(fault)))
      return undo(worst);
    if (!lobby_ && !apart_)
      file_->lobby = Process::get().lobbies().make(program_comm_, *file_->meeting);
    choose_aggregators();
    file_->obey_hints();
    return set_pointers();
  }

  ~Opening() {
    if (file_) file_->release();
  }
  Opening(const Opening&) = delete;

  std::shared_ptr<File> file() { return std::move(file_); }

 private:
  Fault check_arguments() const {
    if (auto fault = check_amode(file_->amode)) return fault;
    if (file_->name.empty()) return {MPI_ERR_BAD_FILE, "the file name is empty"};
    return {};
  }

  // On a communicator of which we have nothing that no other file has.
  Fault begin(const Fault& mine) {
    if (auto fault = duplicate()) return fault;
    Fault fault = compare_arguments(mine);
    if (file_->rank == 0 && !fault) {
      fault = host();
      if (!fault) fault = first();
    }
    return follow(fault);
  }

  Fault duplicate() {
    auto own = own_comm(program_comm_);
    if (!own) return {MPI_ERR_OTHER, "MPI has no communicator for it: too many are in use"};
    file_->comm = *own;
    return {};
  }

  // Rank 0 learns of all ranks' arguments, and will tell the others.
  Fault compare_arguments(const Fault& mine) const {
    if (file_->ranks == 1) return mine;
    const std::array<int, 3> own = {mine.code, file_->amode, -file_->amode};
    std::array<int, 3> most{};
    PMPI_Reduce(own.data(), most.data(), 3, MPI_INT, MPI_MAX, 0, file_->comm);
    if (file_->rank != 0) return mine;
    return same_arguments(mine, most[0], -most[2] == most[1]);
  }

  static Fault same_arguments(const Fault& mine, int worst, bool same_modes) {
    if (worst != MPI_SUCCESS) return mine ? mine : Fault{worst, "another rank failed"};
    return same_modes ? Fault() : different_modes();
  }
  static Fault different_modes() {
    return {MPI_ERR_NOT_SAME, "the ranks give different access modes"};
  }

  // With what an earlier file has left, if all ranks have it.
  Fault begin_in_lobby(const Fault& mine) {
    take_kept();
    if (file_->ranks == 1 && !file_->lobby) return begin(mine);
    const Arriving own{mine.code, file_->amode, file_->lobby != nullptr};
    std::vector<Arriving> all(static_cast<size_t>(file_->ranks));
    Fault of_first;
    const Announcement news = lobby_->entrance().gather_at_first(
        &own, sizeof own, all.data(),
        [&] { return Company(all).can_begin() ? begin_again(of_first) : Announcement(); },
        progress);
    const Company company(all);
    if (auto fault = same_arguments(mine, company.worst, company.same_modes)) return fault;
    if (!company.have_kept) {
      file_->release();
      return begin(mine);
    }
    if (file_->rank != 0) file_->meeting->renew();
    return learn(news, of_first);
  }

  void take_kept() {
    auto kept = lobby_->take();
    if (!kept) return;
    file_->comm = kept.comm;
    file_->meeting = std::move(kept.meeting);
    file_->lobby = lobby_;
  }

  Announcement begin_again(Fault& of_first) {
    file_->meeting->renew();
    of_first = first();
    return announcement(of_first);
  }

  Fault host() {
    auto meeting = Meeting::host(file_->ranks);
    if (!meeting) return fault_of(meeting.error());
    file_->meeting = std::move(*meeting);
    return {};
  }

  // Rank 0 alone makes the file, so that MPI_MODE_EXCL means what it says.
  Fault first() {
    aggregators_ = most_aggregators();
    const char* site = std::getenv("ROMIO_HINTS");
    site_hints_ = read_text(site ? site : "/etc/romio-hints");
    if (const char* text = std::getenv("FOREBAY_HINTS")) user_hints_ = text;
    set_hints();
    return open_here(file_->amode & (MPI_MODE_CREATE | MPI_MODE_EXCL));
  }

  Fault open_here(int creating) {
    auto place = Process::get().places().find(file_->name);
    if (!place) return fault_of(place.error());
    file_->place = std::move(*place);
    constexpr int kMaking = MPI_MODE_CREATE | MPI_MODE_EXCL;
    const uint32_t mode = file_->hints["file_perm"].empty()
                              ? 0666
                              : static_cast<uint32_t>(file_->hints.number("file_perm"));
    auto opened =
        open_path(*file_->place.store, file_->caller, file_->place.path,
                  {.flags = flags_of((file_->amode & ~kMaking) | creating),
                   .mode = file_->place.served ? masked(mode) : mode,
                   .hinted = file_->hints.is("forebay_direct", "true") ? kFlagDirect : 0u});
    if (!opened) return fault_of(opened.error());
    file_->opened = std::move(*opened);
    open_ = true;
    if (const PosixStore* store = file_->place.posix) {
      if (file_->reads()) file_->read_by = store->at_hand(file_->request(Op::read));
      if (file_->writes()) file_->written_by = store->at_hand(file_->request(Op::write));
    }
    return {};
  }

  // What rank 0 did, for all.
  Fault follow(const Fault& fault) {
    if (file_->ranks == 1) return fault;
    struct {
      Announcement news;
      Meeting::Place meeting;
    } told;
    if (file_->rank == 0) {
      told.news = announcement(fault);
      if (file_->meeting) told.meeting = file_->meeting->place();
    }
    PMPI_Bcast(&told, sizeof told, MPI_BYTE, 0, file_->comm);
    if (file_->rank != 0) file_->meeting = Meeting::guest(told.meeting, file_->rank, file_->ranks);
    return learn(told.news, fault);
  }

  Announcement announcement(const Fault& of_first) const {
    return {of_first.code, aggregators_, site_hints_.size(), user_hints_.size()};
  }

  Fault learn(const Announcement& news, const Fault& of_first) {
    if (news.code != MPI_SUCCESS)
      return of_first                        ? of_first
             : news.code == MPI_ERR_NOT_SAME ? different_modes()
                                             : Fault{news.code, "another rank could not open it"};
    aggregators_ = news.aggregators;
    share_hints(news);
    return {};
  }

  void share_hints(const Announcement& news) {
    const uint64_t bytes = news.site_hints + news.user_hints;
    if (bytes > 0) {
      std::string text = site_hints_ + user_hints_;
      text.resize(bytes);
      PMPI_Bcast(text.data(), static_cast<int>(bytes), MPI_CHAR, 0, file_->comm);
      site_hints_ = text.substr(0, news.site_hints);
      user_hints_ = text.substr(news.site_hints);
    }
    if (file_->rank != 0) set_hints();
  }

  void set_hints() {
    take_hints(parse_hint_file(site_hints_), file_->hints);
    take_hints(hints_of(info_), file_->hints);
    file_->user_hints = parse_hint_variable(user_hints_);
    take_hints(file_->user_hints, file_->hints);
  }

  // The worst of all ranks' outcomes; and where they meet.
  Fault gather(Fault mine) {
    if (file_->ranks == 1) return mine;
    const auto own = std::bit_cast<std::array<long long, kNumbers>>(finding(mine));
    std::array<long long, 2 * kNumbers> both{}, most{};
    for (size_t i = 0; i < kNumbers; ++i) both[i] = own[i], both[kNumbers + i] = ~own[i];
    PMPI_Allreduce(both.data(), most.data(), 2 * kNumbers, MPI_LONG_LONG, MPI_MAX, file_->comm);
    std::array<long long, kNumbers> largest{}, smallest{};
    for (size_t i = 0; i < kNumbers; ++i) largest[i] = most[i], smallest[i] = ~most[kNumbers + i];
    const Findings all{std::bit_cast<Finding>(smallest), std::bit_cast<Finding>(largest)};
    if (auto fault = compare(mine, all)) return fault;
    apart_ = all.most.far != 0;
    return apart_ ? move_meeting() : Fault{};
  }

  // The same of ranks that have met already.
  Fault gather_near(Fault mine) const {
    if (file_->ranks == 1) return mine;
    const Finding own = finding(mine);
    std::vector<Finding> ranks(static_cast<size_t>(file_->ranks));
    if (auto fault = file_->gather(&own, sizeof own, ranks.data())) return fault;
    Findings all{own, own};
    for (const Finding& one : ranks) {
      all.most.code = std::max(all.most.code, one.code);
      const auto stretch = [&](long long Finding::*number) {
        all.least.*number = std::min(all.least.*number, one.*number);
        all.most.*number = std::max(all.most.*number, one.*number);
      };
      for (auto number : {&Finding::served, &Finding::file, &Finding::device, &Finding::also})
        stretch(number);
    }
    return compare(mine, all);
  }

  Finding finding(const Fault& mine) const {
    const bool served = file_->place.served;
    const std::string& also = served ? file_->opened.handle.bytes : file_->name;
    return {.code = mine.code,
            .far = file_->meeting->near() ? 0 : 1,
            .served = served ? 1 : 0,
            .file = static_cast<long long>(file_->opened.attr.file_id),
            .device = static_cast<long long>(file_->place.device),
            .also = static_cast<long long>(std::hash<std::string>()(also))};
  }

  static Fault compare(const Fault& mine, const Findings& all) {
    if (all.most.code != MPI_SUCCESS)
      return mine ? mine : Fault{static_cast<int>(all.most.code), "another rank could not open it"};
    if (all.least.served != all.most.served)
      return {MPI_ERR_NOT_SAME,
              "some ranks have it at a server and others do not: give all of "
              "them the same configuration"};
    if (!all.same_file()) return {MPI_ERR_NOT_SAME, "the ranks name different files"};
    return {};
  }

  // Which ranks share a node, and how many aggregators there are if no hint says it.
  void choose_aggregators() {
    const auto ranks = static_cast<size_t>(file_->ranks);
    file_->nodes.assign(ranks, 0);
    if (apart_) {
      std::vector<uint64_t> names(ranks);
      const uint64_t mine = SharedMemory::this_node();
      PMPI_Allgather(&mine, 1, MPI_UINT64_T, names.data(), 1, MPI_UINT64_T, file_->comm);
      std::map<uint64_t, uint32_t> known;
      for (size_t rank = 0; rank < ranks; ++rank)
        file_->nodes[rank] =
            known.try_emplace(names[rank], static_cast<uint32_t>(known.size())).first->second;
    }
    Hints& hints = file_->hints;
    if (!hints["cb_nodes"].empty()) return;
    const auto per_node = plan::per_node_of(hints["cb_config_list"]).value_or(aggregators_);
    const auto chosen = plan::choose_aggregators(file_->nodes, 0, per_node);
    hints.set("cb_nodes", std::to_string(chosen.size()));
    file_->default_aggregators = chosen.size();
  }

  // What ranks of several nodes share is at the server of the file, if it has one.
  Fault move_meeting() {
    if (!file_->place.served) return invite_to_arbiter();
    uint64_t cookie = file_->rank == 0 ? AttrState::make_cookie() : 0;
    PMPI_Bcast(&cookie, 1, MPI_UINT64_T, 0, file_->comm);
    File* const file = file_.get();
    file_->meeting->move(std::make_unique<AttrState>(
        *file->place.store, [file](Op op) { return file->request(op); }, cookie));
    return {};
  }

  Fault invite_to_arbiter() {
    struct {
      int code = MPI_SUCCESS;
      Invitation invitation;
    } news;
    Fault fault;
    Arbiter* host = nullptr;
    if (file_->rank == 0) {
      auto arbiter = Process::get().arbiter();
      if (arbiter)
        news.invitation = (host = *arbiter)->open_file();
      else
        fault = fault_of(arbiter.error());
      news.code = fault.code;
    }
    PMPI_Bcast(&news, sizeof news, MPI_BYTE, 0, file_->comm);
    if (news.code != MPI_SUCCESS)
      return fault ? fault : Fault{news.code, "rank 0 has no place for what ranks share"};
    file_->meeting->move(news.invitation, host);
    return {};
  }

  Fault undo(const Fault& why) {
    if (open_) (void)file_->call(file_->request(Op::close));
    return why;
  }

  // MPI_MODE_APPEND: both pointers start at the end, which rank 0 saw. The view is of bytes yet.
  Fault set_pointers() {
    const View::Wanted bytes{0,
                             MPI_BYTE,
                             MPI_BYTE,
                             Process::get().representations().find("native"),
                             file_->writes(),
                             file_->comm};
    if (auto fault = View::make(Process::get().decoder(), bytes, file_->view)) return fault;
    if (!(file_->amode & MPI_MODE_APPEND)) return {};
    auto size = file_->size();
    Fault fault;
    if (!size) fault = fault_of(size.error());
    if (size) file_->position = static_cast<MPI_Offset>(*size);
    if (!fault && file_->rank == 0) {
      auto state = file_->meeting->state();
      auto set = state ? (*state)->set(file_->shared_pointer, *size) : Result<void>(state.error());
      if (!set) fault = fault_of(set.error());
    }
    auto worst = file_->agree(fault);
    return worst ? undo(worst) : worst;
  }

  std::shared_ptr<File> file_ = std::make_shared<File>();
  const MPI_Comm program_comm_;
  const MPI_Info info_;
  const std::shared_ptr<Lobby> lobby_;  // null: this is the first file of the communicator
  std::string site_hints_, user_hints_;
  uint32_t aggregators_ = 1;
  bool open_ = false, apart_ = false;
};

// Rank 0 removes what the ranks share at the server: after all of them have come here, nobody uses
// it any more. If it fails, the server forgets them when the file is closed.
void remove_shared(File& file) {
  AttrState* const state = file.meeting->served();
  if (!state) return;
  const uint64_t mine = state->seen();
  uint64_t all = 0;
  PMPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_BOR, 0, file.comm);
  if (file.rank == 0) state->remove(all);
}

void explain(const File& file) {
  std::string text =
      fmt::format("forebay: {}: {}; {} ranks", file.name, file.place.why, file.ranks);
  if (file.collective)
    if (const auto why = file.collective->explanation(); !why.empty()) text += "; " + why;
  const JointWrites* const joint = file.meeting ? file.meeting->joint_writes() : nullptr;
  if (joint && joint->joined() > 0)
    text += fmt::format("; {} independent writes together with other ranks", joint->joined());
  for (const std::string& one : file.hints.ignored()) text += "; ignored " + one;
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace

Fault open(MPI_Comm comm, const char* name, int amode, MPI_Info info, std::shared_ptr<File>& file) {
  int between = 0;
  if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &between) != MPI_SUCCESS)
    return {MPI_ERR_COMM, "no communicator"};
  if (between) return {MPI_ERR_COMM, "files are not opened on intercommunicators"};
  Opening opening(comm, name, amode, info);
  auto fault = opening.run();
  if (!fault) file = opening.file();
  return fault;
}

Fault close(File& file) {
  file.wait_for_operations();
  file.wait_for_arrivals();
  Fault mine;
  if (file.split) mine = {MPI_ERR_OTHER, "a split collective was begun and not ended"};
  if (file.kept_realms)
    if (auto fault = file.kept_realms->flush()) mine = std::move(fault);
  remove_shared(file);
  // What ranks left in a server's memory is written merged, if all of it is there by then.
  if (file.place.served && file.writes())
    if (auto fault = file.agree({})) mine = std::move(fault);
  auto closed = file.call(file.request(Op::close));
  if (!closed) mine = fault_of(closed.error());
  auto fault = file.agree(std::move(mine));
  if (file.rank == 0 && Process::get().explains()) explain(file);
  if (!(file.amode & MPI_MODE_DELETE_ON_CLOSE)) return fault;
  Fault removed;
  if (file.rank == 0) removed = remove(file.place);
  auto of_all = file.agree(std::move(removed));
  return fault ? fault : of_all;
}

void abandon(File& file) {
  file.wait_for_operations();
  file.arrivals.try_all(
      [] { return Result<Outcomes>(Error(ECANCELED, "the file was not closed")); });
  if (file.kept_realms)
    if (auto saved = file.kept_realms->rescue(); !saved)
      std::fprintf(stderr, "forebay: %s: what was written is lost: %s\n", file.name.c_str(),
                   saved.error().message().c_str());
  (void)file.call(file.request(Op::close));
  if (file.rank == 0 && (file.amode & MPI_MODE_DELETE_ON_CLOSE)) (void)remove(file.place);
  file.release();
}

Fault remove(const Whereabouts& place) {
  const CallerRef& caller = Process::get().caller();
  auto where = name_in(*place.store, caller, place.path, EISDIR);
  if (!where) return fault_of(where.error());
  auto removed = place.store->call(
      {.op = Op::remove, .caller = caller, .handle = where->directory, .name = where->name});
  return removed ? Fault{} : fault_of(removed.error());
}

void take_hints(const HintList& list, Hints& hints) {
  for (const auto& [key, value] : list) hints.set(key, value);
}

void take_hints(MPI_Info info, File& file) {
  constexpr std::array<std::string_view, 2> kAtOpen = {"forebay_direct", "file_perm"};
  for (const auto& [key, value] : hints_of(info))
    if (std::find(kAtOpen.begin(), kAtOpen.end(), key) == kAtOpen.end()) file.hints.set(key, value);
  take_hints(file.user_hints, file.hints);
  file.obey_hints();
}

HintList hints_of(MPI_Info info) {
  HintList list;
  if (info == MPI_INFO_NULL) return list;
  int keys = 0;
  PMPI_Info_get_nkeys(info, &keys);
  for (int i = 0; i < keys; ++i) {
    char key[MPI_MAX_INFO_KEY + 1] = {};
    PMPI_Info_get_nthkey(info, i, key);
    int length = 0, found = 0;
    PMPI_Info_get_valuelen(info, key, &length, &found);
    if (!found) continue;
    std::string value(static_cast<size_t>(length) + 1, '\0');
    PMPI_Info_get(info, key, length, value.data(), &found);
    value.resize(static_cast<size_t>(length));
    list.emplace_back(key, std::move(value));
  }
  return list;
}

}  // namespace forebay::mpiio
