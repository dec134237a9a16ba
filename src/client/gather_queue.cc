#include "client/gather_queue.h"

#include <algorithm>

namespace forebay {

GatherQueue::Added GatherQueue::add(Request& request, Completion& done) {
  if (!Shortcuts::may_write_here(request) || !check(request)) return Added::no;
  const Extent bounds = request.file.bounds();
  if (end_of_last_.exchange(bounds.end().value) == bounds.offset.value) return Added::no;
  if (sender_.sent.load() != 0) return Added::no;
  std::lock_guard lock(mutex_);
  const auto meets = [&](const Entry& e) { return may_overlap(e.request.file, request.file); };
  if (sender_.sent.load() != 0 || entries_.size() == kMost || std::ranges::any_of(entries_, meets))
    return Added::no;
  Shortcuts::Gathered write;
  if (!shortcuts_.gather(request, write)) return Added::no;
  entries_.push_back({std::move(request), std::move(done)});
  writes_.push_back(std::move(write));
  size_ = entries_.size();
  return entries_.size() == 1 ? Added::first : Added::yes;
}

void GatherQueue::settle() {
  if (settles_.load() == std::this_thread::get_id()) return settle_now();
  std::unique_lock settling(settling_);
  if (!any()) return;
  settles_ = std::this_thread::get_id();
  settle_now(&settling);
}

// Lets go of the lock, if there is one, as soon as nothing of it is to be sent any more.
void GatherQueue::settle_now(std::unique_lock<std::mutex>* settling) {
  std::vector<Entry> entries;
  std::vector<Shortcuts::Written> written;
  {
    std::lock_guard lock(mutex_);
    std::vector<const Request*> requests;
    for (const Entry& e : entries_) requests.push_back(&e.request);
    written = shortcuts_.settle(requests, writes_);
    entries.swap(spare_);
    entries.swap(entries_);
    writes_.clear();
    size_ = 0;
    sender_.sent +=
        static_cast<uint64_t>(std::ranges::count_if(written, [](auto& w) { return !w; }));
  }
  for (size_t i = 0; i < entries.size(); ++i)
    if (!written[i]) sender_.send(std::move(entries[i].request), std::move(entries[i].done));
  if (settling) {
    settles_ = std::thread::id();
    settling->unlock();
  }
  for (size_t i = 0; i < entries.size(); ++i)
    if (written[i]) sender_.complete(std::move(entries[i].done), std::move(*written[i]));
  entries.clear();
  std::lock_guard lock(mutex_);
  spare_.swap(entries);
}

}  // namespace forebay
