#include "mpiio/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "mpiio/crew.h"
#include "mpiio/process.h"
#include "mpiio/two_phase.h"

namespace forebay::mpiio {
namespace {

enum Kind : uint64_t { kAutomatic, kEven, kBalanced, kStriped, kGiven };

enum Order : uint64_t { kByOffset, kByTarget, kByWhatPays };

constexpr std::string_view kKinds[] = {"", "even", "balanced", "striped", "given"};

// What a call needs of a long view is cut to what each aggregator needs of it, if it is longer than
// this.
constexpr size_t kMostNumbersToAll = 48;
constexpr uint64_t kMostKept = 1 << 21;  // numbers of all ranks' views, from call to call
constexpr uint64_t kLeastCache = 1_MiB;
constexpr uint64_t kMostNumbers = 1 << 26;  // of all ranks' views, at an aggregator
// From here on ranks ask each other whether their memory suffices for them.
constexpr uint64_t kManyNumbers = 1 << 16;
// Of persistent realms, unless the user says it: what one rank moves by itself is cut at borders.
constexpr uint64_t kLeastRealm = 1_MiB;
// Measured: where every rank's own requests are as good as an aggregator's. Local writes of a file
// go one after the other, and who waits takes a processor; local reads are one copy instead of two.
constexpr uint64_t kLargePiece = 1_MiB, kLargeLocalWrite = 256_KiB, kLargeLocalRead = 32_KiB;
// And of reads, so few bytes of a rank that each maps or reads its pieces as soon as all have met.
constexpr uint64_t kFewBytes = 512_KiB;
constexpr uint32_t kMostRuns = 65536;                // of a window
constexpr uint64_t kMostBuffer = uint64_t{1} << 30;  // of a half: MPI counts in ints
const char* const kTooMuch = "the ranks' views are too irregular to be sent around";

uint64_t kind_of(const std::string& hint) {
  for (uint64_t i = 1; i < std::size(kKinds); ++i)
    if (hint == kKinds[i]) return i;
  return kAutomatic;
}

plan::Persistent form_of(const std::string& hint) {
  return hint == "aar"       ? plan::Persistent::region
         : hint == "fsize"   ? plan::Persistent::file_size
         : hint == "dynamic" ? plan::Persistent::dynamic
                             : plan::Persistent::user;
}

template <class Body>
bool enough_memory(Body&& body) {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::string explain(const plan::ChosenStriping& chosen) {
  if (chosen.says.empty()) return {};
  const auto& [stripe, targets, first] = chosen.striping;
  const std::string on = targets > 1 ? fmt::format(" on {} targets", targets) : "";
  return fmt::format(", stripes of {} bytes{} as {}", stripe, on, chosen.says);
}

}  // namespace

Collective::Settings Collective::settings() const {
  const Hints& hints = file_.hints;
  Settings s;
  s.wish[0] = static_cast<uint64_t>(plan::wish_of(hints["romio_cb_read"]));
  s.wish[1] = static_cast<uint64_t>(plan::wish_of(hints["romio_cb_write"]));
  if (hints.is("romio_no_indep_rw", "true"))  // as ROMIO: then there is nothing else
    for (uint64_t& wish : s.wish)
      if (wish == static_cast<uint64_t>(plan::Wish::automatic))
        wish = static_cast<uint64_t>(plan::Wish::enable);
  s.limit = hints.number("cb_nodes");
  s.per_node = plan::per_node_of(hints["cb_config_list"]).value_or(UINT32_MAX);
  s.buffer = std::min(hints.number("cb_buffer_size"), 2 * kMostBuffer);
  s.alignment = hints.number("romio_cb_fr_alignment");
  s.realms = kind_of(hints["forebay_realms"]);
  s.unit = hints.number("striping_unit");
  s.factor = hints.number("striping_factor");
  s.first_target = hints.number("start_iodevice");
  s.alltoallw = static_cast<uint64_t>(plan::wish_of(hints["romio_cb_alltoall"]));
  s.order = hints.is("forebay_order", "offset")   ? kByOffset
            : hints.is("forebay_order", "target") ? kByTarget
                                                  : kByWhatPays;
  s.local = file_.place.local;
  const std::string& list = hints["forebay_realm_list"];
  if (file_.rank == 0 && list != list_) s.new_list = list.size() + 1;
  s.keep = static_cast<uint64_t>(plan::wish_of(hints["romio_cb_pfr"]));
  const plan::Persistent form = form_of(hints["romio_cb_fr_type"]);
  s.form = static_cast<uint64_t>(form);
  s.size = hints.number("romio_cb_fr_type");
  s.cache = hints.number("forebay_realm_cache");
  if (form == plan::Persistent::file_size && realm_size_ == 0 && file_.rank == 0)
    s.file_size = file_.size().value_or(0);
  return s;
}

Collective::Summary Collective::summarize(const Transfer& transfer) {
  Summary mine;
  mine.settings = settings();
  const plan::ViewPart part = transfer.part();
  if (part.empty()) return mine;
  mine.describable = part.view.monotone();
  mine.piece = part.view.mean_piece();
  mine.exchanged_piece = std::min(mine.piece, transfer.memory().mean_piece());
  const Extent bounds = part.bounds();
  mine.low = bounds.offset.value;
  mine.end = bounds.end().value;
  mine.from = part.from.value;
  mine.length = part.length.value;
  for (size_t k = 0; k < kQuantiles; ++k)
    mine.quantiles[k] =
        part.view.offset_of(part.from + Length(part.length.value / kQuantiles * k)).value;
  if (!told_) told_.emplace(kMostKept / static_cast<uint64_t>(file_.ranks));
  mine.unsent = !told_->use(part.view);
  mine.slot = told_->slot();
  mine.new_type = sized_for_type_ && *sized_for_type_ != transfer.memory_type();
  return mine;
}

Collective::Described Collective::describe(const plan::ViewPart& part, const plan::Realms& realms) {
  Described described;
  const bool fits = enough_memory([&] {
    described.whole_view = told_->describe(described.numbers);
    if (described.whole_view) return;
    if (part.encode(described.numbers, kMostNumbersToAll)) return;
    for (const plan::TiledMap& realm : realms) {
      part.encode_in(realm, described.numbers);
      described.ends.push_back(described.numbers.size());
    }
  });
  const bool counted = described.numbers.size() <= kMostNumbers;
  return fits && counted ? std::move(described) : Described{.numbers = {}, .failed = true};
}

plan::ChosenStriping Collective::striping() const {
  const Settings& settings = summaries_.front().settings;
  return plan::choose_striping({.unit = settings.unit,
                                .factor = settings.factor,
                                .first = settings.first_target,
                                .reported = reported_});
}

plan::Striping Collective::choose_order() const {
  const plan::Striping striped = striping().striping;
  const uint64_t order = summaries_.front().settings.order;
  if (order == kByTarget) return striped;
  uint64_t bytes = 0;
  for (const Summary& one : summaries_) bytes += one.length;
  const uint64_t window = std::min(made_for_.buffer_half(), bytes / aggregators_.size());
  const bool pays = plan::order_pays(striped, window, aggregators_.size());
  return order == kByWhatPays && pays ? striped : plan::Striping();
}

bool Collective::by_alltoallw() const {
  const auto wish = static_cast<plan::Wish>(summaries_.front().settings.alltoallw);
  return file_.several_nodes() && wish == plan::Wish::enable;
}

Extent Collective::region() const {
  uint64_t low = UINT64_MAX, end = 0;
  for (const Summary& one : summaries_)
    if (one.length > 0) low = std::min(low, one.low), end = std::max(end, one.end);
  return end > 0 ? Extent{Offset(low), Length(end - low)} : Extent{};
}

plan::Method Collective::choose(Direction direction) const {
  std::vector<Extent> regions;
  bool describable = true;
  uint64_t bytes = 0, piece = UINT64_MAX;
  for (const Summary& one : summaries_) {
    bytes += one.length;
    if (one.length > 0) piece = std::min(piece, one.piece);
    regions.push_back(one.length > 0 ? Extent{Offset(one.low), Length(one.end - one.low)}
                                     : Extent{});
    describable = describable && one.describable;
  }
  const Settings& settings = summaries_.front().settings;
  const bool reads = direction == Direction::read;
  return plan::choose_method(
      {.regions = regions,
       .describable = describable,
       .atomic = file_.atomic,
       .kept = static_cast<plan::Wish>(settings.keep) == plan::Wish::enable,
       .bytes = bytes,
       .piece = piece,
       .large_piece = !settings.local ? kLargePiece
                      : reads         ? kLargeLocalRead
                                      : kLargeLocalWrite,
       .cheap_if_dense = settings.local && reads && bytes < kFewBytes * summaries_.size(),
       .wish = static_cast<plan::Wish>(settings.wish[reads ? 0 : 1])});
}

// What rank 0's user says, who may have said something else since the last call.
void Collective::learn_given() {
  const uint64_t news = summaries_.front().settings.new_list;
  if (news == 0) return;
  list_ = file_.hints["forebay_realm_list"];
  list_.resize(news - 1);
  PMPI_Bcast(list_.data(), static_cast<int>(list_.size()), MPI_CHAR, 0, file_.comm);
  given_.reset();
  if (auto given = plan::given_realms(list_); given && !list_.empty()) given_ = std::move(*given);
}

plan::Realms Collective::choose_realms() {
  learn_given();
  const Settings& settings = summaries_.front().settings;
  std::vector<plan::Samples> samples;
  for (const Summary& one : summaries_) {
    plan::Samples of{one.length, {}};
    if (one.length > 0) {
      of.offsets.assign(one.quantiles.begin(), one.quantiles.end());
      of.offsets.push_back(one.end);
    }
    samples.push_back(std::move(of));
  }
  const plan::Striping striped = striping().striping;
  auto chosen = plan::choose_realms({.region = region(),
                                     .samples = samples,
                                     .aggregators = aggregators_.size(),
                                     .alignment = settings.alignment,
                                     .persistent_size = realm_size_,
                                     .stripe = striped.stripe,
                                     .targets = striped.targets,
                                     .kind = kKinds[settings.realms],
                                     .given = given_ ? &*given_ : nullptr});
  realms_why_ = chosen.why;
  given_unused_ = std::move(chosen.unused);
  return std::move(chosen.realms);
}

Collective::~Collective() {
  give_areas_back();
}

// Between calls: then nobody is in a window.
void Collective::give_areas_back() {
  for (WindowArea& area : areas_) Process::get().areas().give_back(std::move(area));
  areas_.clear();
}

Collective::AreaNews Collective::make_own_area(const Settings& settings) {
  AreaNews news;
  if (index_ < 0) return news;
  const uint64_t half = settings.buffer_half();
  const auto extended = static_cast<uint64_t>(static_cast<double>(half) * plan::kThreshold);
  auto area = Process::get().areas().make({half + extended, kMostRuns});
  if (!area) return news;
  news.place = area->place();
  news.window = area->planned();
  news.made = 1;
  areas_[static_cast<size_t>(index_)] = std::move(*area);
  return news;
}

// Each aggregator makes its buffer, and all learn where they are. False, on all ranks, if one of
// them cannot. Either way no aggregator knows a view any more.
bool Collective::make_areas(const Settings& settings) {
  ready_ = false;
  give_areas_back();
  views_.assign(static_cast<size_t>(file_.ranks), {});
  if (told_) told_->forget();
  aggregators_ = plan::choose_aggregators(file_.nodes, static_cast<uint32_t>(settings.limit),
                                          static_cast<uint32_t>(settings.per_node));
  const auto mine = std::find(aggregators_.begin(), aggregators_.end(), file_.rank);
  index_ = mine == aggregators_.end() ? -1 : static_cast<int>(mine - aggregators_.begin());
  areas_.resize(aggregators_.size());
  AreaNews own = make_own_area(settings);
  if (file_.rank == 0) ask_for_layout();
  own.reported = reported_;
  std::vector<AreaNews> news(static_cast<size_t>(file_.ranks));
  static_assert(sizeof own <= Gathering::kMostBytes);
  if (file_.gather(&own, sizeof own, news.data())) return false;
  for (const int rank : aggregators_)
    if (!news[static_cast<size_t>(rank)].made) return false;
  meet(news);
  made_for_ = settings;
  reported_ = news.front().reported;  // what rank 0's Store said
  return ready_ = true;
}

// How the file is striped. An answer that does not come is as good as none.
void Collective::ask_for_layout() {
  if (std::exchange(asked_, true)) return;
  auto reply =
      file_.call({.op = Op::layout, .caller = file_.caller, .handle = file_.opened.handle});
  if (reply) reported_ = reply->layout;
}

// Maps the buffers of those that are near; and every aggregator learns who is.
void Collective::meet(const std::vector<AreaNews>& news) {
  const size_t count = aggregators_.size();
  near_.assign(count, 0);
  next_window_.assign(count, 0);
  for (size_t a = 0; a < count; ++a) {
    const AreaNews& of = news[static_cast<size_t>(aggregators_[a])];
    next_window_[a] = of.window;
    if (static_cast<int>(a) == index_) near_[a] = 1;
    if (near_[a] || !SharedMemory::near(of.place)) continue;
    auto area = Process::get().areas().attach(of.place);
    if (!area) continue;
    areas_[a] = std::move(*area);
    near_[a] = 1;
  }
  learn_who_is_near();
}

void Collective::learn_who_is_near() {
  const size_t count = aggregators_.size();
  const auto ranks = static_cast<size_t>(file_.ranks);
  const char near_all = std::count(near_.begin(), near_.end(), 1) == static_cast<ptrdiff_t>(count);
  rank_near_.assign(ranks, 0);
  const bool told = !file_.gather(&near_all, 1, rank_near_.data());
  all_near_ = told && std::count(rank_near_.begin(), rank_near_.end(), 1) == file_.ranks;
  if (all_near_) return;
  std::vector<int> send(ranks, 0), send_from(ranks, 0), receive_from(ranks);
  for (size_t a = 0; a < count; ++a) {
    send[static_cast<size_t>(aggregators_[a])] = 1;
    send_from[static_cast<size_t>(aggregators_[a])] = static_cast<int>(a);
  }
  const std::vector<int> receive(ranks, index_ >= 0 ? 1 : 0);
  std::iota(receive_from.begin(), receive_from.end(), 0);
  rank_near_.assign(ranks, 0);
  PMPI_Alltoallv(near_.data(), send.data(), send_from.data(), MPI_CHAR, rank_near_.data(),
                 receive.data(), receive_from.data(), MPI_CHAR, file_.comm);
}

// Ranks send the aggregators the views that these do not have yet, or of irregular ones to each
// what lies in its realm. A fault, on all ranks, if that is too much.
Fault Collective::send_views(const Transfer& transfer, const plan::Realms& realms,
                             Received& received) {
  Described mine;
  const plan::ViewPart part = transfer.part();
  if (summaries_[static_cast<size_t>(file_.rank)].unsent && !part.empty())
    mine = describe(part, realms);
  numbers_ += mine.numbers.size() * (mine.ends.empty() ? aggregators_.size() : 1);
  bool all_there = false;
  if (auto fault = tell_sizes(mine, received, all_there); fault || all_there) return fault;
  const size_t ranks = summaries_.size();
  uint64_t total = 0;
  for (const Received::Size& size : received.sizes) {
    total += size.numbers;
    if (size.failed) return {MPI_ERR_NO_MEM, kTooMuch};
  }
  received.many = total > kManyNumbers;
  std::vector<int> send(ranks, 0), from(ranks, 0);
  tell_numbers(mine, send, from, received);
  uint64_t here = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    received.from[rank] = static_cast<int>(here);
    here += static_cast<uint64_t>(received.numbers_of[rank]);
    if (here > kMostNumbers) break;
  }
  const bool fits = here <= kMostNumbers && enough_memory([&] { received.numbers.resize(here); });
  if (auto fault = agree_if_many(fits, received)) return fault;
  PMPI_Alltoallv(mine.numbers.data(), send.data(), from.data(), MPI_INT64_T,
                 received.numbers.data(), received.numbers_of.data(), received.from.data(),
                 MPI_INT64_T, file_.comm);
  return {};
}

// Which of a rank's numbers are for whom. The aggregators can tell, unless some rank cuts its own.
void Collective::tell_numbers(const Described& mine, std::vector<int>& send, std::vector<int>& from,
                              Received& received) const {
  for (size_t a = 0; a < aggregators_.size(); ++a) {
    const size_t begin = a > 0 && !mine.ends.empty() ? mine.ends[a - 1] : 0;
    const size_t end = mine.ends.empty() ? mine.numbers.size() : mine.ends[a];
    from[static_cast<size_t>(aggregators_[a])] = static_cast<int>(begin);
    send[static_cast<size_t>(aggregators_[a])] = static_cast<int>(end - begin);
  }
  if (std::any_of(received.sizes.begin(), received.sizes.end(),
                  [](const Received::Size& size) { return size.cut > 0; })) {
    PMPI_Alltoall(send.data(), 1, MPI_INT, received.numbers_of.data(), 1, MPI_INT, file_.comm);
    return;
  }
  for (size_t rank = 0; index_ >= 0 && rank < received.sizes.size(); ++rank)
    received.numbers_of[rank] = static_cast<int>(received.sizes[rank].numbers);
}

// How long the ranks' views are. On one node short ones come with it, and if all are short there is
// nothing left to send.
Fault Collective::tell_sizes(const Described& mine, Received& received, bool& all_there) {
  struct Told {
    Received::Size size;
    std::array<int64_t, (Gathering::kMostBytes - sizeof(Received::Size)) / sizeof(int64_t)> numbers;
  };
  const Received::Size own{mine.numbers.size(), mine.whole_view, !mine.ends.empty(), mine.failed,
                           told_ ? told_->let_go() : 0};
  if (!file_.meeting->gathering()) return file_.gather(&own, sizeof own, received.sizes.data());
  Told told{own, {}};
  static_assert(kMostNumbersToAll <= told.numbers.size());
  if (own.numbers <= told.numbers.size())
    std::copy(mine.numbers.begin(), mine.numbers.end(), told.numbers.begin());
  std::vector<Told> all(received.sizes.size());
  if (auto fault = file_.gather(&told, sizeof told, all.data())) return fault;
  all_there = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    received.sizes[rank] = all[rank].size;
    const Received::Size& size = all[rank].size;
    all_there = all_there && !size.failed && !size.cut && size.numbers <= told.numbers.size();
  }
  if (!all_there || index_ < 0) return {};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    received.from[rank] = static_cast<int>(received.numbers.size());
    received.numbers_of[rank] = static_cast<int>(all[rank].size.numbers);
    const auto begin = all[rank].numbers.begin();
    received.numbers.insert(received.numbers.end(), begin,
                            begin + static_cast<ptrdiff_t>(all[rank].size.numbers));
  }
  return {};
}

// Few numbers always find their memory, or the process has none left to say so.
Fault Collective::agree_if_many(bool fits, const Received& received) const {
  if (received.many) return file_.agree(fits ? Fault{} : Fault{MPI_ERR_NO_MEM, kTooMuch});
  FOREBAY_ASSERT(fits, "out of memory");
  return {};
}

// An aggregator: every rank's part, of the view that it sent now or before.
void Collective::take_parts(const Received& received) {
  for (size_t rank = 0; rank < summaries_.size(); ++rank) {
    const Summary& one = summaries_[rank];
    for (size_t slot = 0; slot < views_[rank].size(); ++slot)
      if (received.sizes[rank].let_go >> slot & 1) views_[rank][slot] = {};
    if (one.length == 0) continue;
    const Extent around{Offset(one.low), Length(one.end - one.low)};
    std::span<const int64_t> of(received.numbers.data() + received.from[rank],
                                static_cast<size_t>(received.numbers_of[rank]));
    if (one.unsent && !received.sizes[rank].whole_view) {
      if (of.empty()) continue;  // nothing of it is in the realm
      auto part = plan::ViewPart::decode(of);
      FOREBAY_ASSERT(part.has_value(), "a rank described its access wrongly");
      parts_[rank] = std::move(*part);
      parts_[rank].around = around;
      continue;
    }
    if (one.unsent) {
      auto view = plan::TiledMap::decode(of);
      FOREBAY_ASSERT(view.has_value(), "a rank described its view wrongly");
      views_[rank][one.slot] = std::move(*view);
    }
    const plan::TiledMap& view = views_[rank][one.slot];
    const uint64_t total = view.total().value;
    FOREBAY_ASSERT(one.from <= total && one.length <= total - one.from,
                   "a rank's access lies beyond the view that is known of it");
    parts_[rank] = {view, Length(one.from), Length(one.length), around};
  }
}

// After it the aggregators know the parts of the call. A fault, on all ranks, if that is too much:
// then nobody counts on what was sent.
Fault Collective::exchange_views(const Transfer& transfer, const plan::Realms& realms) {
  const size_t ranks = summaries_.size();
  Received received{.sizes = std::vector<Received::Size>(ranks),
                    .numbers_of = std::vector<int>(ranks, 0),
                    .from = std::vector<int>(ranks, 0)};
  const bool any = std::any_of(summaries_.begin(), summaries_.end(),
                               [](const Summary& one) { return one.unsent > 0; });
  if (any)
    if (auto fault = send_views(transfer, realms, received)) return fault;
  parts_.assign(ranks, {});
  const bool fits = enough_memory([&] {
    if (index_ >= 0) take_parts(received);
  });
  if (auto fault = agree_if_many(fits, received)) return fault;
  if (!any || !told_) return {};
  received.sizes[static_cast<size_t>(file_.rank)].whole_view ? told_->told_whole()
                                                             : told_->told_part();
  return {};
}

// Since the size of persistent realms was chosen: the view, or some rank's type in memory.
bool Collective::types_changed() const {
  return sized_for_ != file_.view_number ||
         std::any_of(summaries_.begin(), summaries_.end(),
                     [](const Summary& one) { return one.new_type > 0; });
}

// Decides on persistent realms, at the first call or when the types have changed (paper 5, section
// 3.4.4), and makes the cache of them if its memory is within reach of all ranks. Before another
// size counts, what was kept is written and forgotten: nobody finds the old bytes of a realm that
// is somebody else's by now. A fault, on all, if it cannot be written: then all stays as it was.
Fault Collective::keep_realms(const Transfer& transfer) {
  const Settings& settings = summaries_.front().settings;
  const auto wish = static_cast<plan::Wish>(settings.keep);
  const bool cache = !file_.several_nodes() && !file_.place.served && settings.cache >= kLeastCache;
  if (wish == plan::Wish::disable) return {};
  if (wish == plan::Wish::automatic && (!cache || settings.local)) return {};
  const auto form = static_cast<plan::Persistent>(settings.form);
  const bool again = form == plan::Persistent::dynamic && types_changed();
  const bool moves = summaries_[static_cast<size_t>(file_.rank)].length > 0;
  if (moves && (again || !sized_for_type_)) sized_for_type_ = transfer.memory_type();
  if (realm_size_ > 0 && !again) return {};
  const Extent all = region();
  const bool said = settings.alignment > 0;
  const uint64_t size_unit = std::lcm(
      std::clamp<uint64_t>(settings.alignment, 1, uint64_t{1} << 30), CacheShape().page_size);
  uint64_t size = plan::persistent_size({.form = form,
                                         .user_size = settings.size,
                                         .file_size = std::max(settings.file_size, all.end().value),
                                         .region = all,
                                         .aggregators = aggregators_.size(),
                                         .alignment = size_unit,
                                         .stripe = said ? 0 : striping().striping.stripe});
  if (form != plan::Persistent::user) size = std::max(size, std::lcm(kLeastRealm, size_unit));
  sized_for_ = file_.view_number;
  if (size == realm_size_) return {};
  std::unique_lock lock(file_.kept_lock);  // on all ranks before any of them uses what is made
  if (file_.kept_realms)
    if (auto fault = file_.kept_realms->settle()) return fault;
  realm_size_ = size;
  ++sizes_;
  file_.kept_realms = nullptr;
  if (!cache) return {};
  const CacheShape shape{.parts = static_cast<uint32_t>(aggregators_.size()),
                         .part_bytes = settings.cache,
                         .realm_size = size,
                         .patient = true};
  file_.kept_realms = KeptRealms::make(file_, shape, index_);
  return {};
}

void Collective::together(Transfer& transfer) {
  if (auto fault = keep_realms(transfer)) {
    if (!transfer.fault()) transfer.fail(std::move(fault));
    return;
  }
  const plan::Realms realms = choose_realms();
  if (exchange_views(transfer, realms)) {
    why_ = kTooMuch;
    return transfer.run();
  }
  ++together_;
  together_why_ = why_;
  order_ = choose_order();
  if (all_near_)
    Crew(*this, transfer, realms).run();
  else
    TwoPhase(*this, transfer, realms).run();
}

void Collective::run(Transfer& transfer) {
  const Summary mine = summarize(transfer);
  summaries_.resize(static_cast<size_t>(file_.ranks));
  static_assert(sizeof mine <= Gathering::kMostBytes);
  if (auto fault = file_.gather(&mine, sizeof mine, summaries_.data()))
    return transfer.fail(std::move(fault));
  plan::Method method = choose(transfer.direction());
  const Settings& settings = summaries_.front().settings;
  if (method.together && (!ready_ || !made_for_.same_buffers(settings))) {
    const bool counted = std::any_of(summaries_.begin(), summaries_.end(), [](const Summary& one) {
      return one.length > 0 && !one.unsent;
    });
    if (!make_areas(settings))
      method = {false, "an aggregator has no memory for its buffer"};
    else if (counted)  // on views that the new aggregators do not have
      return run(transfer);
  }
  ++calls_;
  why_ = method.why;
  if (!method.together) return transfer.run();
  together(transfer);
}

std::string_view Collective::why_so_many() const {
  if (aggregators_.size() == static_cast<size_t>(file_.ranks)) return "all ranks";
  if (made_for_.limit != file_.default_aggregators) return "as cb_nodes says";
  return file_.hints.given("cb_config_list") ? "as cb_config_list says"
                                             : "as many of each node as it has cores, up to 8";
}

std::string_view Collective::why_such_buffers() const {
  if (file_.hints.given("cb_buffer_size")) return "as cb_buffer_size says";
  return made_for_.local ? "of a local file system: what a processor's cache holds"
                         : "few large requests";
}

std::string Collective::explanation() const {
  if (calls_ == 0) return {};
  if (together_ == 0)
    return fmt::format("{} collective calls, every rank by itself: {}", calls_, why_);
  return fmt::format(
      "{} collective calls, {} of them in two phases ({}){}: {} aggregators ({}), buffers of {} "
      "bytes ({}), views of this rank told in {} numbers, realms: {}{}{}{}{}{}{}",
      calls_, together_, together_why_,
      why_ == together_why_ ? "" : fmt::format(", the last one not ({})", why_),
      aggregators_.size(), why_so_many(), made_for_.buffer, why_such_buffers(), numbers_,
      realms_why_,
      given_unused_.empty() ? "" : fmt::format(", not as given, since {}", given_unused_),
      sizes_ > 1 ? fmt::format(", of {} sizes one after the other", sizes_) : "",
      file_.kept_realms ? ", kept in memory" : "", explain(striping()),
      order_.known() ? ", in the order of storage targets" : "",
      !file_.several_nodes() ? ""
      : by_alltoallw()       ? ", between nodes by MPI_Alltoallw"
                             : ", between nodes by messages");
}

}  // namespace forebay::mpiio
