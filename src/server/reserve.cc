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

bool ReservationTable::add(Reservation& out, std::string_view name, Mode mode, Extents extents,
                           Loop& loop, Task granted) {
  FOREBAY_ASSERT(!out);
  std::lock_guard lock(mutex_);
  std::string key(name);
  auto& file = files_[key];
  if (!file) file = std::make_unique<File>();
  out.table_ = this;
  out.file_ = std::move(key);
  out.id_ = next_id_++;
  if (file->reservations.add(out.id_, mode, std::move(extents))) return true;
  file->waiting.emplace(out.id_, Waiter{&loop, std::move(granted)});
  return false;
}

void ReservationTable::release(const std::string& name, plan::Reservations::Id id) {
  std::vector<Waiter> granted;
  Task dropped;  // destroyed outside the lock: it may own the last reference to a flight
  {
    std::lock_guard lock(mutex_);
    auto found = files_.find(name);
    FOREBAY_ASSERT(found != files_.end());
    File& file = *found->second;
    if (auto own = file.waiting.find(id); own != file.waiting.end()) {
      dropped = std::move(own->second.granted);
      file.waiting.erase(own);
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

size_t ReservationTable::held() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [name, file] : files_) sum += file->reservations.size();
  return sum;
}

}  // namespace forebay::server
