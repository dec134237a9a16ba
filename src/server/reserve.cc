#include "server/reserve.h"

#include <utility>

namespace forebay::server {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    table_ = std::exchange(other.table_, nullptr);
    file_ = std::move(other.file_);
    id_ = other.id_;
  }
  return *this;
}

void Reservation::release() {
  if (ReservationTable* table = std::exchange(table_, nullptr)) table->release(file_, id_);
}

// Under the lock.
ReservationTable::File& ReservationTable::file_of(const std::string& key) {
  auto& file = files_[key];
  if (!file) file = std::make_unique<File>();
  return *file;
}

bool ReservationTable::add(Reservation& out, std::string_view name, Mode mode, Extents extents,
                           Loop& loop, Task granted) {
  FOREBAY_ASSERT(!out);
  std::vector<Holder> asked;
  {
    std::lock_guard lock(mutex_);
    std::string key(name);
    File& file = file_of(key);
    out.table_ = this;
    out.file_ = std::move(key);
    out.id_ = next_id_++;
    if (file.reservations.add(out.id_, mode, std::move(extents))) return true;
    file.waiting.emplace(out.id_, Waiter{&loop, std::move(granted)});
    for (auto one = file.holders.begin(); one != file.holders.end();) {
      const bool asks = plan::Reservations::conflict(mode, one->second.mode);
      if (asks) asked.push_back(std::move(one->second));
      one = asks ? file.holders.erase(one) : std::next(one);
    }
  }
  for (Holder& holder : asked) {
    holder.loop->post([wanted = std::move(holder.wanted), mode]() mutable { wanted(mode); });
  }
  return false;
}

bool ReservationTable::hold(Reservation& out, std::string_view name, Mode mode, Extents extents,
                            Loop& loop, Wanted wanted) {
  FOREBAY_ASSERT(!out);
  std::lock_guard lock(mutex_);
  std::string key(name);
  File& file = file_of(key);
  const plan::Reservations::Id id = next_id_++;
  if (!file.reservations.add(id, mode, std::move(extents))) {
    file.reservations.release(id);  // it came last: nobody waits for it
    return false;
  }
  out.table_ = this;
  out.file_ = std::move(key);
  out.id_ = id;
  file.holders.emplace(id, Holder{mode, &loop, std::move(wanted)});
  return true;
}

void ReservationTable::release(const std::string& name, plan::Reservations::Id id) {
  std::vector<Waiter> granted;
  // Destroyed outside the lock: they may own the last reference to a flight.
  Task dropped;
  Wanted unwanted;
  {
    std::lock_guard lock(mutex_);
    auto found = files_.find(name);
    FOREBAY_ASSERT(found != files_.end());
    File& file = *found->second;
    if (auto own = file.waiting.find(id); own != file.waiting.end()) {
      dropped = std::move(own->second.granted);
      file.waiting.erase(own);
    }
    if (auto own = file.holders.find(id); own != file.holders.end()) {
      unwanted = std::move(own->second.wanted);
      file.holders.erase(own);
    }
    for (auto next : file.reservations.release(id)) {
      auto waiter = file.waiting.find(next);
      FOREBAY_ASSERT(waiter != file.waiting.end());
      granted.push_back(std::move(waiter->second));
      file.waiting.erase(waiter);
    }
    if (file.reservations.empty() && files_.size() > kKeptFiles) files_.erase(found);
  }
  for (Waiter& waiter : granted) waiter.loop->post(std::move(waiter.granted));
}

bool ReservationTable::in_use(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(std::string(name));
  return found != files_.end() && !found->second->reservations.empty();
}

size_t ReservationTable::held() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [name, file] : files_) sum += file->reservations.size();
  return sum;
}

}  // namespace forebay::server
