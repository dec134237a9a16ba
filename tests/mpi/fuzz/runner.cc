#include "runner.h"

#include <algorithm>
#include <cstring>

#include "calls.h"

namespace fuzz {

Runner::Runner(MPI_Comm comm, std::string path, const Options& options, Watchdog& watchdog)
    : comm_(comm), path_(std::move(path)), options_(options), watchdog_(watchdog) {
  MPI_Comm_rank(comm, &rank_);
}

void Runner::fail(const std::string& what) {
  if (failure_.empty()) failure_ = "rank " + std::to_string(rank_) + ", " + doing_ + ": " + what;
}

bool Runner::ok(const char* what, int code) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(std::string(what) + " returned an error: " + text);
  return false;
}

void Runner::run(const Session& session) {
  race_reads_.clear();
  for (size_t i = 0; i < session.steps.size(); ++i) {
    doing_ = "step " + std::to_string(i);
    watchdog_.at(rank_, static_cast<int>(i));
    step(session.steps[i]);
  }
  flights_.clear();
  doing_ = "after close";
}

void Runner::step(const Step& s) {
  const Turn& turn = s.turns[static_cast<size_t>(rank_)];
  if (!turn.takes_part && s.verb != Verb::race_atomic) return;
  switch (s.verb) {
    case Verb::access:
      for (const AccessPtr& a : turn.accesses) access(a);
      break;
    case Verb::race_shared:
    case Verb::race_atomic:
      if (s.verb == Verb::race_atomic) MPI_Barrier(comm_);
      for (const AccessPtr& a : turn.accesses) access(a);
      collect_race(s);
      break;
    case Verb::wait:
      wait(turn);
      break;
    case Verb::end_split: {
      const auto found = flights_.find(turn.accesses[0]->id);
      if (found == flights_.end()) break;  // it could not begin
      Flight& flight = *found->second;
      MPI_Status status;
      if (ok("_end", end_split(*flight.access, file_, flight.buffer.address(), &status)))
        finish(flight, &status);
      flights_.erase(found);
      break;
    }
    case Verb::position:
    case Verb::position_shared:
    case Verb::byte_offset:
    case Verb::size:
      ask(s, turn);
      break;
    default:
      change(s, turn);
  }
}

void Runner::ask(const Step& s, const Turn& turn) {
  MPI_Offset got = -1;
  if (s.verb == Verb::position) {
    if (ok("get_position", MPI_File_get_position(file_, &got)))
      check_number("get_position", got, turn.expected);
  } else if (s.verb == Verb::position_shared) {
    if (ok("get_position_shared", MPI_File_get_position_shared(file_, &got)))
      check_number("get_position_shared", got, turn.expected);
  } else if (s.verb == Verb::byte_offset) {
    if (ok("get_byte_offset", MPI_File_get_byte_offset(file_, turn.number, &got)))
      check_number("get_byte_offset", got, turn.expected);
  } else {
    if (ok("get_size", MPI_File_get_size(file_, &got)))
      check_number("get_size", got, {turn.number});
  }
}

void Runner::change(const Step& s, const Turn& turn) {
  switch (s.verb) {
    case Verb::open:
      open(s);
      break;
    case Verb::close:
      ok("close", MPI_File_close(&file_));
      MPI_Barrier(comm_);
      break;
    case Verb::set_view:
      set_view(turn.view);
      break;
    case Verb::seek:
      ok("seek", MPI_File_seek(file_, turn.number, turn.whence));
      break;
    case Verb::seek_shared:
      ok("seek_shared", MPI_File_seek_shared(file_, turn.number, turn.whence));
      break;
    case Verb::set_size:
      ok("set_size", MPI_File_set_size(file_, turn.number));
      break;
    case Verb::preallocate:
      ok("preallocate", MPI_File_preallocate(file_, turn.number));
      break;
    case Verb::fence:
      if (s.flag) ok("sync", MPI_File_sync(file_));
      MPI_Barrier(comm_);
      if (s.flag) ok("sync", MPI_File_sync(file_));
      break;
    case Verb::barrier:
      MPI_Barrier(comm_);
      break;
    case Verb::atomicity: {
      ok("set_atomicity", MPI_File_set_atomicity(file_, s.flag));
      int flag = -1;
      if (ok("get_atomicity", MPI_File_get_atomicity(file_, &flag)))
        check_number("get_atomicity", flag ? 1 : 0, {s.flag ? 1 : 0});
      break;
    }
    default:
      break;
  }
}

void Runner::open(const Step& s) {
  MPI_Info info = MPI_INFO_NULL;
  if (!s.hints.empty()) MPI_Info_create(&info);
  for (const auto& [key, value] : s.hints) MPI_Info_set(info, key.c_str(), value.c_str());
  int code = MPI_File_open(comm_, path_.c_str(), s.amode, info, &file_);
  if (info != MPI_INFO_NULL) MPI_Info_free(&info);
  if (!ok("open", code)) return;
  int amode = 0;
  if (ok("get_amode", MPI_File_get_amode(file_, &amode)))
    check_number("get_amode", amode, {s.amode});
}

void Runner::set_view(const View& view) {
  Built etype(view.etype), filetype(view.filetype);
  char native[] = "native";
  if (ok("set_view",
         MPI_File_set_view(file_, view.disp, etype.get(), filetype.get(), native, MPI_INFO_NULL)))
    check_view(view);
}

namespace {

void free_if_derived(MPI_Datatype& type) {
  int integers, addresses, types, combiner;
  MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(&type);
}

}  // namespace

void Runner::check_view(const View& view) {
  MPI_Offset disp = -1;
  MPI_Datatype etype, filetype;
  char datarep[MPI_MAX_DATAREP_STRING] = "";
  if (!ok("get_view", MPI_File_get_view(file_, &disp, &etype, &filetype, datarep))) return;
  check_number("get_view's disp", disp, {view.disp});
  if (std::strcmp(datarep, "native") != 0)
    fail(std::string("get_view: expected native, got ") + datarep);
  int size = -1;
  MPI_Aint lb, extent = -1;
  MPI_Type_size(etype, &size);
  check_number("size of get_view's etype", size, {view.etype->size});
  MPI_Type_size(filetype, &size);
  check_number("size of get_view's filetype", size, {view.filetype->size});
  MPI_Type_get_extent(filetype, &lb, &extent);
  check_number("extent of get_view's filetype", extent, {view.filetype->extent()});
  free_if_derived(etype);
  free_if_derived(filetype);
}

void Runner::access(const AccessPtr& a) {
  auto flight = std::make_unique<Flight>(a);
  MPI_Status status;
  MPI_Status* at = a->ignore_status ? MPI_STATUS_IGNORE : &status;
  int code = start(*a, file_, flight->buffer.address(), flight->type.get(), at, &flight->request);
  if (!ok("the call", code)) return;
  if (a->how == How::blocking)
    finish(*flight, at);
  else
    flights_[a->id] = std::move(flight);
}

void Runner::check_number(const char* what, int64_t got, const std::vector<int64_t>& expected) {
  if (std::find(expected.begin(), expected.end(), got) != expected.end()) return;
  std::string s = std::string(what) + ": expected";
  for (int64_t e : expected) s += " " + std::to_string(e);
  fail(s + ", got " + std::to_string(got));
}

namespace {

// Whether a plain message of the same type has this many elements in its status: some MPIs count
// the elements of nested structs wrongly, and that is not the fault of their MPI-IO.
bool message_counts(const Access& a, MPI_Datatype type, int elements) {
  Buffer from(a), to(a);
  MPI_Status status;
  int n = static_cast<int>(a.count), got = -1;
  MPI_Sendrecv(from.address(), n, type, 0, 0, to.address(), n, type, 0, 0, MPI_COMM_SELF, &status);
  MPI_Get_elements(&status, type, &got);
  return a.memory->elements(a.bytes()) != got && got == elements;
}

// Whether the MPI's own packing takes the memory type as the oracle does.
bool pack_agrees(const Access& a, MPI_Datatype type, Buffer& buffer) {
  int n = static_cast<int>(a.count), size = 0, at = 0;
  MPI_Pack_size(n, type, MPI_COMM_SELF, &size);
  Bytes packed(static_cast<size_t>(size) + 1);
  MPI_Pack(buffer.address(), n, type, packed.data(), size, &at, MPI_COMM_SELF);
  packed.resize(static_cast<size_t>(at));
  return packed == buffer.packed();
}

}  // namespace

void Runner::fail_access(Flight& flight, const std::string& what) {
  const Access& a = *flight.access;
  bool agrees = pack_agrees(a, flight.type.get(), flight.buffer);
  fail(describe(a) + ": " + what + (agrees ? "" : " (MPI_Pack takes the type otherwise too)"));
}

void Runner::check_status(const Access& a, MPI_Datatype type, const MPI_Status& status) {
  int64_t bytes = a.race ? a.bytes() : static_cast<int64_t>(a.data.size());
  if (bytes < a.bytes() && !options_.with("partial-count")) return;
  if (a.count == 0 && !options_.with("zero-count")) return;
  std::string call = "#" + std::to_string(a.id) + ": ";
  int count = -1, elements = -1;
  MPI_Get_count(&status, type, &count);
  int64_t expected = bytes % a.memory->size ? MPI_UNDEFINED : bytes / a.memory->size;
  check_number((call + "Get_count").c_str(), count, {expected});
  if (!options_.with("get-elements")) return;
  MPI_Get_elements(&status, type, &elements);
  if (a.memory->elements(bytes) >= 0 && !message_counts(a, type, elements))
    check_number((call + "Get_elements").c_str(), elements, {a.memory->elements(bytes)});
}

void Runner::finish(Flight& flight, MPI_Status* status) {
  const Access& a = *flight.access;
  if (status != MPI_STATUS_IGNORE) check_status(a, flight.type.get(), *status);
  if (a.race && !a.write) {
    race_reads_[a.id] = flight.buffer.packed();
    if (auto d = flight.buffer.difference(race_reads_[a.id], true)) fail_access(flight, *d);
    return;
  }
  if (auto d = flight.buffer.difference(a.data, a.write || options_.zeros)) fail_access(flight, *d);
}

void Runner::wait_each(Flight& flight, WaitHow how) {
  MPI_Status status;
  int done = 0, code = MPI_SUCCESS;
  if (how == WaitHow::test) {
    while (!done && code == MPI_SUCCESS) code = MPI_Test(&flight.request, &done, &status);
  } else {
    if (how == WaitHow::get_status)
      while (!done && code == MPI_SUCCESS)
        code = MPI_Request_get_status(flight.request, &done, &status);
    code = MPI_Wait(&flight.request, &status);
  }
  if (ok("completion", code)) finish(flight, &status);
}

// The array has a null request in its middle, as the standard allows.
void Runner::wait(const Turn& turn) {
  std::vector<Flight*> flights;
  for (const AccessPtr& a : turn.accesses)
    if (auto it = flights_.find(a->id); it != flights_.end()) flights.push_back(it->second.get());
  bool each =
      turn.how != WaitHow::waitall && turn.how != WaitHow::waitany && turn.how != WaitHow::waitsome;
  if (each) {
    for (Flight* f : flights) wait_each(*f, turn.how);
  } else {
    flights.insert(flights.begin() + static_cast<int64_t>(flights.size() / 2), nullptr);
    int n = static_cast<int>(flights.size());
    std::vector<MPI_Request> requests;
    for (Flight* f : flights) requests.push_back(f ? f->request : MPI_REQUEST_NULL);
    std::vector<MPI_Status> statuses(flights.size());
    std::vector<int> which(flights.size());
    for (int left = n - 1; left > 0;) {
      int done = 1, code = MPI_SUCCESS;
      if (turn.how == WaitHow::waitall) {
        code = MPI_Waitall(n, requests.data(), statuses.data());
        done = n;
        for (int i = 0; i < n; ++i) which[static_cast<size_t>(i)] = i;
      } else if (turn.how == WaitHow::waitany) {
        code = MPI_Waitany(n, requests.data(), which.data(), statuses.data());
      } else {
        code = MPI_Waitsome(n, requests.data(), &done, which.data(), statuses.data());
      }
      if (!ok("completion", code)) break;
      if (done <= 0 || which[0] == MPI_UNDEFINED) {
        fail("completion of none though requests were active");
        break;
      }
      for (int i = 0; i < done; ++i) {
        Flight* f = flights[static_cast<size_t>(which[static_cast<size_t>(i)])];
        if (f) finish(*f, &statuses[static_cast<size_t>(i)]);
        if (f) --left;
      }
    }
  }
  for (const AccessPtr& a : turn.accesses) flights_.erase(a->id);
}

// Brings what the ranks have read to rank 0.
void Runner::collect_race(const Step& s) {
  Bytes mine;
  for (const AccessPtr& a : s.turns[static_cast<size_t>(rank_)].accesses)
    if (!a->write) {
      Bytes& read = race_reads_[a->id];
      read.resize(static_cast<size_t>(a->bytes()));
      mine.insert(mine.end(), read.begin(), read.end());
    }
  std::vector<int> counts, places;
  int total = 0;
  for (const Turn& turn : s.turns) {
    int count = 0;
    for (const AccessPtr& a : turn.accesses)
      if (!a->write) count += static_cast<int>(a->bytes());
    counts.push_back(count);
    places.push_back(total);
    total += count;
  }
  Bytes all(static_cast<size_t>(total) + 1);
  MPI_Gatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), counts.data(),
              places.data(), MPI_BYTE, 0, comm_);
  if (rank_ != 0) return;
  auto from = all.begin();
  for (const Turn& turn : s.turns)
    for (const AccessPtr& a : turn.accesses)
      if (!a->write) {
        race_reads_[a->id] = Bytes(from, from + a->bytes());
        from += a->bytes();
      }
}

}  // namespace fuzz
