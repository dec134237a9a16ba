#include "mpiio/data_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mpiio/collective.h"
#include "mpiio/operation.h"
#include "mpiio/ordered.h"
#include "mpiio/plain_call.h"
#include "mpiio/process.h"
#include "mpiio/report.h"

namespace forebay::mpiio {
namespace {

enum class When : uint8_t { now, later };

void set_status(MPI_Status* status, uint64_t bytes) {
  if (status == MPI_STATUS_IGNORE) return;
  PMPI_Status_set_elements_x(status, MPI_BYTE, static_cast<MPI_Count>(bytes));
  PMPI_Status_set_cancelled(status, 0);
}

// Moves the shared pointer on by as many etypes, and says where it was.
Fault take_shared(File& file, MPI_Offset etypes, MPI_Offset& position) {
  auto state = file.meeting->state();
  if (!state) return fault_of(state.error());
  auto before = (*state)->fetch_and_add(file.shared_pointer, static_cast<uint64_t>(etypes));
  if (!before) return fault_of(before.error());
  position = static_cast<MPI_Offset>(*before);
  return {};
}

// As take_place_in_order(), on several nodes, where nobody writes for others.
Fault take_ordered_far(File& file, MPI_Offset etypes, MPI_Offset& position) {
  long long mine = etypes, up_to_mine = 0;
  PMPI_Scan(&mine, &up_to_mine, 1, MPI_LONG_LONG, MPI_SUM, file.comm);
  const int last = file.ranks - 1;
  struct {
    long long base = 0;
    int code = MPI_SUCCESS;
  } news;
  Fault fault;
  if (file.rank == last) {
    MPI_Offset base = 0;
    fault = take_shared(file, up_to_mine, base);
    news = {base, fault.code};
  }
  PMPI_Bcast(&news, sizeof news, MPI_BYTE, last, file.comm);
  position = news.base + up_to_mine - mine;
  if (news.code == MPI_SUCCESS || fault) return fault;
  return {news.code, "the last rank could not move the shared pointer"};
}

// All ranks take part, and agree on the outcome later, unless all is done.
OrderedPlace take_ordered(File& file, Transfer& transfer, bool write) {
  if (file.meeting->gathering()) return take_place_in_order(file, transfer, write);
  OrderedPlace place;
  place.fault = take_ordered_far(file, transfer.fault() ? 0 : transfer.etypes(), place.position);
  return place;
}

Fault take_individual(File& file, MPI_Offset etypes, MPI_Offset& position) {
  std::lock_guard lock(file.mutex);
  position = file.position;
  MPI_Offset after = 0;
  if (__builtin_add_overflow(position, etypes, &after) || !file.view.stream(after))
    return {MPI_ERR_ARG,
            fmt::format("{} etypes from position {} on lie beyond what a file can hold", etypes,
                        position)};
  file.position = after;
  return {};
}

Fault allowed(const File& file, Pointer pointer) {
  const bool by_shared = pointer == Pointer::shared || pointer == Pointer::ordered;
  if (!file.sequential() || by_shared) return {};
  return {MPI_ERR_UNSUPPORTED_OPERATION,
          "a file opened with MPI_MODE_SEQUENTIAL is used by its shared pointer only"};
}

// But for ordered calls.
Fault take_place(File& file, const DataCall& call, const Transfer& transfer, MPI_Offset offset,
                 MPI_Offset& position) {
  switch (call.pointer) {
    case Pointer::explicit_offset:
      position = offset;
      return {};
    case Pointer::individual:
      return take_individual(file, transfer.etypes(), position);
    case Pointer::shared:
      return take_shared(file, transfer.etypes(), position);
    case Pointer::ordered:
      break;
  }
  return {};
}

bool make_ready(File& file, const DataCall& call, MPI_Offset offset, const Buffer& buffer,
                Transfer& transfer, When when) {
  Fault fault = allowed(file, call.pointer);
  if (!fault) {
    transfer.guarded([&] { fault = transfer.measure(buffer); });
  }
  if (fault) transfer.fail(std::move(fault));
  OrderedPlace place;
  if (call.pointer == Pointer::ordered) {
    const bool write = when == When::now && call.direction == Direction::write;
    place = take_ordered(file, transfer, write);
    if (place.written) return true;
  }
  if (transfer.fault()) return false;
  fault = call.pointer == Pointer::ordered
              ? std::move(place.fault)
              : take_place(file, call, transfer, offset, place.position);
  if (!fault) fault = transfer.prepare(place.position);
  if (fault) transfer.fail(std::move(fault));
  return false;
}

// Everything up to the moving of bytes. On return the transfer can run, or has a fault; or, if
// true, it has been done, and all ranks know what became of it.
bool ready(File& file, const DataCall& call, MPI_Offset offset, const Buffer& buffer,
           Transfer& transfer, When when = When::later) {
  bool done = false;
  transfer.guarded([&] { done = make_ready(file, call, offset, buffer, transfer, when); });
  return done;
}

void move(File& file, const DataCall& call, Transfer& transfer) {
  if (!call.collective || file.ranks == 1) {
    file.begin_operation();
    if (call.pointer != Pointer::shared || !transfer.write_record()) transfer.run();
    return file.end_operation();
  }
  if (!file.collective) file.collective = std::make_unique<Collective>(file);
  file.collective->run(transfer);
}

std::shared_ptr<File> find(MPI_File handle) {
  return Process::file(handle);
}

Fault split_pending(const File& file) {
  return {MPI_ERR_OTHER,
          fmt::format("{} was begun on this file and has not ended", file.split_call)};
}

}  // namespace

int blocking(DataCall call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
             MPI_Status* status) {
  auto file = find(handle);
  if (!file) return report_no_file(call.name);
  if (const auto moved = move_plainly(*file, call, offset, buffer)) {
    set_status(status, *moved);
    return MPI_SUCCESS;
  }
  Transfer transfer(*file, call.direction);
  bool done = false;
  if (call.collective && file->split)
    transfer.fail(split_pending(*file));
  else
    done = ready(*file, call, offset, buffer, transfer, When::now);
  if (!done) move(*file, call, transfer);
  transfer.finish();
  set_status(status, transfer.moved());
  const bool agree = call.collective && !done;
  return report(file.get(), call.name, agree ? file->agree(transfer.fault()) : transfer.fault());
}

int nonblocking(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer,
                MPI_Request* request) {
  auto file = find(handle);
  if (!file) return report_no_file(call.name);
  auto operation = std::make_shared<Operation>(file, call.direction, call.name);
  if (call.collective) operation->be_collective();
  ready(*file, call, offset, buffer, operation->transfer());
  *request = MPI_REQUEST_NULL;
  if (!operation->transfer().fault()) {
    if (Process::get().requests().start(operation, request) == MPI_SUCCESS) return MPI_SUCCESS;
    operation->transfer().fail({MPI_ERR_OTHER, "MPI cannot make a request"});
  }
  if (call.collective) Operation::begin(operation);  // the others learn of it
  return report(file.get(), call.name, operation->transfer().fault());
}

int begin(const DataCall& call, MPI_File handle, MPI_Offset offset, const Buffer& buffer) {
  auto file = find(handle);
  if (!file) return report_no_file(call.name);
  if (file->split) return report(file.get(), call.name, split_pending(*file));
  auto operation = std::make_shared<Operation>(file, call.direction, call.name);
  ready(*file, call, offset, buffer, operation->transfer());
  file->split = operation;
  file->split_call = call.name;
  move(*file, call, operation->transfer());
  operation->was_done();
  return MPI_SUCCESS;  // an error is everybody's at the end
}

int end(const char* name, MPI_File handle, MPI_Status* status) {
  auto file = find(handle);
  if (!file) return report_no_file(name);
  if (!file->split ||
      !std::string_view(file->split_call)
           .starts_with(std::string_view(name).substr(0, std::string_view(name).rfind('_'))))
    return report(file.get(), name,
                  {MPI_ERR_OTHER, "no split collective of this kind was begun on this file"});
  const auto operation = std::move(file->split);
  file->split = nullptr;
  operation->wait();
  operation->settle();
  set_status(status, operation->transfer().moved());
  return report(file.get(), name, file->agree(operation->transfer().fault()));
}

}  // namespace forebay::mpiio
