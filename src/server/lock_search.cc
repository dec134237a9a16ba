#include "server/lock_search.h"

#include <algorithm>

namespace forebay::server {

namespace {

constexpr Duration kPatience = std::chrono::seconds(1);  // for the answers of one round
constexpr unsigned kMostSearches = 64;                   // of an export, at a time
constexpr size_t kMostOwners = 1024;                     // of a question

}  // namespace

LockSearch::LockSearch(Export& exported, Loop& loop, LockTable::Ticket ticket, Done done)
    : exported_(exported), loop_(loop), ticket_(ticket), done_(std::move(done)) {}

std::shared_ptr<LockSearch> LockSearch::make(Export& exported, Loop& loop, LockTable::Ticket ticket,
                                             Done done) {
  return std::shared_ptr<LockSearch>(new LockSearch(exported, loop, ticket, std::move(done)));
}

void LockSearch::start() {
  const bool too_many = exported_.lock_searches.fetch_add(1) >= kMostSearches;
  if (too_many) return end(false);
  search_.emplace(exported_.locks.in_the_way(ticket_, own_place()));
  next();
}

void LockSearch::stop() {
  if (!done_) return;
  exported_.lock_searches.fetch_sub(1);
  done_ = nullptr;
  ++round_;
  stop_.request_stop();
  loop_.cancel(std::exchange(timer_, 0));
}

void LockSearch::end(bool refuse) {
  if (!done_) return;
  Done done = std::move(done_);
  done_ = nullptr;
  exported_.lock_searches.fetch_sub(1);
  ++round_;
  stop_.request_stop();
  loop_.cancel(std::exchange(timer_, 0));
  done(refuse);
}

// One answer is ours, until all have been asked.
void LockSearch::open_round() {
  ++round_;
  left_ = 1;
  loop_.cancel(timer_);
  timer_ = loop_.after(kPatience, [self = shared_from_this(), round = round_] {
    if (round != self->round_) return;
    self->timer_ = 0;
    self->stop_.request_stop();
    self->stop_ = std::stop_source();
    self->checking_ ? self->end(false) : self->next();
  });
}

// ---- Who is in the way ----

void LockSearch::next() {
  do {
    if (const auto circle = search_->circle()) return check(*circle);
    const std::vector<attr::LockOwner> owners = search_->take_questions();
    if (owners.empty()) return end(false);
    open_round();
    for (uint64_t place = 1; place <= exported_.relay->servers(); ++place) {
      std::vector<attr::LockOwner> theirs;
      std::ranges::copy_if(owners, std::back_inserter(theirs), [&](const attr::LockOwner& owner) {
        return owner.place == 0 || owner.place == place;
      });
      if (place == own_place()) {
        ask_here(theirs);
        continue;
      }
      for (size_t at = 0; at < theirs.size(); at += kMostOwners) {
        std::vector<attr::LockOwner> some = {attr::LockOwner()};  // from the beginning
        const size_t end = std::min(theirs.size(), at + kMostOwners);
        some.insert(some.end(), theirs.begin() + static_cast<ptrdiff_t>(at),
                    theirs.begin() + static_cast<ptrdiff_t>(end));
        ask(place, std::move(some));
      }
    }
  } while (--left_ == 0);
}

void LockSearch::ask_here(const std::vector<attr::LockOwner>& owners) {
  bool all = true;
  const auto edges =
      exported_.locks.in_the_way({owners, {}, attr::CircleSearch::kMost}, own_place(), all);
  for (const attr::WaitsFor& edge : edges) search_->add(edge);
}

void LockSearch::ask(uint64_t place, std::vector<attr::LockOwner> owners) {
  std::string data = attr::pack(owners);
  send(place, LockQuestion::in_the_way, std::move(data),
       [this, place, owners = std::move(owners)](const Result<Reply>& reply) mutable {
         heard(place, std::move(owners), reply);
       });
}

void LockSearch::heard(uint64_t place, std::vector<attr::LockOwner> owners,
                       const Result<Reply>& reply) {
  auto edges = reply ? attr::unpack_edges(reply->data) : std::nullopt;
  if (edges && !edges->empty()) {
    for (attr::WaitsFor& edge : *edges) {
      edge.place = place;
      search_->add(edge);
    }
    owners.front() = edges->back().holder;
    if (!reply->end) ask(place, std::move(owners));
  }
  if (--left_ == 0) next();
}

// ---- Does it stand ----

void LockSearch::check(const std::vector<attr::WaitsFor>& circle) {
  const attr::WaitsFor& last = attr::last_comer(circle);
  if (last.place != own_place() || last.ticket != ticket_) {
    if (last.place == own_place()) {
      exported_.locks.look(last.ticket);
    } else {
      send(last.place, LockQuestion::look, attr::pack(std::vector{last}), nullptr);
    }
    return end(false);
  }
  checking_ = true;
  open_round();
  for (uint64_t place = 1; place <= exported_.relay->servers(); ++place) {
    std::vector<attr::WaitsFor> theirs;
    std::ranges::copy_if(circle, std::back_inserter(theirs),
                         [&](const attr::WaitsFor& edge) { return edge.place == place; });
    if (theirs.empty()) continue;
    if (place == own_place()) {
      stands_ = stands_ && exported_.locks.stand(theirs);
      continue;
    }
    for (size_t at = 0; at < theirs.size(); at += kMostEdges) {
      const auto from = theirs.begin() + static_cast<ptrdiff_t>(at);
      const auto to =
          theirs.begin() + static_cast<ptrdiff_t>(std::min(theirs.size(), at + kMostEdges));
      send(place, LockQuestion::stand, attr::pack(std::vector(from, to)),
           [this](const Result<Reply>& reply) {
             stands_ = stands_ && reply && reply->count == 1;
             if (--left_ == 0) end(stands_);
           });
    }
  }
  if (--left_ == 0) end(stands_);
}

// `answered` runs while this round lasts.
void LockSearch::send(uint64_t place, LockQuestion question, std::string data,
                      Callback<void(const Result<Reply>&)> answered) {
  Request request;
  request.op = Op::lock_waits;
  request.caller = this_process_caller();
  request.handle = exported_.root;
  request.value = static_cast<uint64_t>(question);
  request.data = std::move(data);
  if (answered) request.stop = stop_.get_token();
  if (answered) ++left_;
  exported_.relay->submit_at(
      place - 1, std::move(request),
      [self = shared_from_this(), round = round_,
       answered = std::move(answered)](Result<Reply>&& reply) mutable {
        if (answered && round == self->round_) answered(reply);
      },
      loop_);
}

}  // namespace forebay::server
