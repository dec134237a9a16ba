#include "server/merge_keys.h"

namespace forebay::server {

size_t MergeKeys::Hash::operator()(const View& v) const {
  return std::hash<std::string_view>()(v.file) * 31 + v.caller->uid * 2 + v.write;
}

bool MergeKeys::Same::operator()(const View& a, const View& b) const {
  return a.write == b.write && a.file == b.file &&
         (a.caller == b.caller || a.caller->same_identity(*b.caller));
}

MergeKeys::Entered MergeKeys::enter(const Request& request, std::string_view identity) {
  const bool write = request.op == Op::write;
  const auto known = numbers_.find(View{identity, request.caller.get(), write});
  const plan::QueueId number = known == numbers_.end() ? make(request, identity) : known->second;
  Queue& queue = queues_[number];
  ++queue.uses;
  const auto right = rights_[write].find(std::string_view(request.right.bytes));
  return {number, right != rights_[write].end() && right->second == queue.serial};
}

plan::QueueId MergeKeys::make(const Request& request, std::string_view identity) {
  if (free_.empty()) {
    free_.push_back(static_cast<plan::QueueId>(queues_.size()));
    queues_.emplace_back();
  }
  const plan::QueueId number = free_.back();
  free_.pop_back();
  const auto made =
      numbers_.emplace(Key{std::string(identity), request.caller, request.op == Op::write}, number);
  queues_[number] = {&made.first->first, ++serials_, 0};
  return number;
}

void MergeKeys::leave(plan::QueueId number) {
  Queue& queue = queues_[number];
  FOREBAY_ASSERT(queue.uses > 0);
  if (--queue.uses > 0 || numbers_.size() <= kKeptQueues) return;
  numbers_.erase(numbers_.find(View(*queue.key)));
  queue = {};
  free_.push_back(number);
}

void MergeKeys::prove(plan::QueueId number, const Right& right) {
  const Queue& queue = queues_[number];
  FOREBAY_ASSERT(queue.uses > 0);
  Rights& rights = rights_[queue.key->write];
  if (rights.size() >= kMostRights) rights.clear();
  rights[right.bytes] = queue.serial;
}

void MergeKeys::forget(const Right& right) {
  for (Rights& rights : rights_) {
    const auto known = rights.find(std::string_view(right.bytes));
    if (known != rights.end()) rights.erase(known);
  }
}

}  // namespace forebay::server
