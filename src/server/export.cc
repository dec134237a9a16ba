#include "server/export.h"

#include <fmt/format.h>

#include "wire/frame.h"

namespace forebay::server {
namespace {

Counter& counter(CounterSet& counters, const ExportOptions& options, std::string_view what) {
  return counters.get(fmt::format("export.{}.{}", options.name, what));
}

}  // namespace

Export::Export(ExportOptions o, Handle r, std::unique_ptr<Store> store,
               std::shared_ptr<SharedState> state, CounterSet& counters, uint64_t boot, bool relays)
    : options(std::move(o)),
      root(std::move(r)),
      pool(relays ? options.pool / 2 : options.pool, options.chunk, relays ? 2 : 4),
      away(relays ? std::make_unique<BufferPool>(options.pool / 2, options.chunk, 2) : nullptr),
      small(std::make_shared<SmallMemory>(options.small)),
      leases(std::make_shared<LeaseTable>(options.lease_marker, options.lease_time, boot)),
      errors(counter(counters, options, "errors")),
      bytes_in(counter(counters, options, "bytes_in")),
      bytes_out(counter(counters, options, "bytes_out")),
      flights(counter(counters, options, "flights")),
      sieved{
          counter(counters, options, "sieved_reads"), counter(counters, options, "sieved_writes"),
          counter(counters, options, "sieve_windows"), counter(counters, options, "sieve_bytes")},
      state_(std::move(state)),
      store_(std::make_unique<BehindStore>(
          std::make_unique<ScheduledStore>(
              std::make_unique<SievedStore>(std::move(store), options.sieve, pool, sieved),
              options.scheduler, pool),
          options.write_behind, boot)),
      prepared_(store_->prepare(pool.memory(), pool.buffer_size())),
      gathers_writes_(store_->concurrency() == 0 && options.sieve.writes != When::always &&
                      options.scheduler.policy != SchedulerOptions::Policy::fifo) {
  state_->begin({*store_, reservations, small_writes, holders});
  if (prepared_) pool.keep_pages();
  for (int i = 0; i < kOpCount; ++i) {
    ops[i] = &counter(counters, options, fmt::format("op.{}", op_info(static_cast<Op>(i)).name));
  }
}

BufferPool& Export::pool_for(bool here) {
  return here ? pool : *away;
}

Result<std::shared_ptr<Export>> Export::make(ExportOptions options, std::unique_ptr<Store> store,
                                             CounterSet& counters, uint64_t boot, bool relays) {
  if (options.name.empty()) return Error(EINVAL, "an export needs a name");
  if (options.chunk < 4_KiB || options.chunk > wire::kMaxPayload) {
    return Error(EINVAL, fmt::format("export '{}': chunk is {}, must be 4 KiB to {} MiB",
                                     options.name, options.chunk, wire::kMaxPayload >> 20));
  }
  if (options.in_flight == 0) {
    return Error(EINVAL, fmt::format("export '{}': in_flight must be at least 1", options.name));
  }
  Result<Handle> root = store->root();
  if (!root) return std::move(root).error().at(fmt::format("export '{}'", options.name));
  auto state = SharedState::open(options.state, *store, options.name, relays);
  if (!state) return std::move(state).error().at(fmt::format("export '{}'", options.name));
  return std::make_shared<Export>(std::move(options), std::move(*root), std::move(store),
                                  std::move(*state), counters, boot, relays);
}

}  // namespace forebay::server
