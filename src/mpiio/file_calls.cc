// Opening and closing, sizes, hints, views, pointers, consistency: the calls that move no data.
#include <fmt/format.h>

#include <climits>
#include <cstring>
#include <functional>

#include "mpiio/open.h"
#include "mpiio/process.h"
#include "mpiio/report.h"
#include "store/reserve.h"

using namespace forebay;
using namespace forebay::mpiio;

namespace {

// Runs `body` on the open file that the handle names, and reports what it returns.
template <class Body>
int on_file(const char* call, MPI_File handle, Body&& body) {
  auto file = Process::file(handle);
  if (!file) return report_no_file(call);
  return report(file.get(), call, body(*file));
}

Fault outcome(const Result<Reply>& reply) {
  return reply ? Fault{} : fault_of(reply.error());
}

// What rank 0 does for all, once everybody has come with the same value.
template <class Body>
Fault by_rank_0(File& file, Fault mine, long long value, Body&& body) {
  if (auto fault = file.agree(std::move(mine), value)) return fault;
  return file.agree(file.rank == 0 ? body() : Fault{});
}

Fault need_writing(const File& file) {
  if (file.writes()) return {};
  return {MPI_ERR_READ_ONLY, "the file is open for reading only"};
}

Fault not_negative(const char* what, MPI_Offset value) {
  if (value >= 0) return {};
  return {MPI_ERR_ARG, fmt::format("{} is {}", what, value)};
}

Result<MPI_Offset> shared_position(File& file) {
  auto state = file.meeting->state();
  if (!state) return state.error();
  auto value = (*state)->get(file.shared_pointer);
  if (!value) return value.error();
  return static_cast<MPI_Offset>(*value);
}

// Where a seek leads.
Fault target(File& file, MPI_Offset offset, int whence, const Result<MPI_Offset>& now,
             MPI_Offset& position) {
  Result<MPI_Offset> base = 0;
  if (whence == MPI_SEEK_CUR) {
    base = now;
  } else if (whence == MPI_SEEK_END) {
    auto size = file.size();
    base = size ? Result<MPI_Offset>(file.view.end(*size)) : Result<MPI_Offset>(size.error());
  } else if (whence != MPI_SEEK_SET) {
    return {MPI_ERR_ARG, fmt::format("whence is {}", whence)};
  }
  if (!base) return fault_of(base.error());
  if (__builtin_add_overflow(*base, offset, &position) || position < 0)
    return {MPI_ERR_ARG, fmt::format("a seek by {} leads before the beginning", offset)};
  return {};
}

Fault no_sequential(const File& file) {
  if (!file.sequential()) return {};
  return {MPI_ERR_UNSUPPORTED_OPERATION, "the file is open with MPI_MODE_SEQUENTIAL"};
}

// Where the shared pointer of a sequential file is, once nobody is using it: rank 0 says it to all.
Fault current_displacement(File& file, MPI_Offset& displacement) {
  struct {
    long long at = 0;
    int code = MPI_SUCCESS;
  } news;
  Fault fault;
  if (file.rank == 0) {
    auto position = shared_position(file);
    const auto at = position ? file.view.stream(*position) : std::nullopt;
    if (!position)
      fault = fault_of(position.error());
    else if (!at || *at >= file.view.map.total())
      fault = {MPI_ERR_ARG, "the shared pointer is beyond what a file can hold"};
    else
      news.at = static_cast<long long>(file.view.map.offset_of(*at).value);
    news.code = fault.code;
  }
  PMPI_Bcast(&news, sizeof news, MPI_BYTE, 0, file.comm);
  displacement = news.at;
  if (news.code == MPI_SUCCESS || fault) return fault;
  return {news.code, "rank 0 cannot tell where the shared pointer is"};
}

// All ranks of a sequential file take part, whatever they came with.
Fault find_displacement(File& file, MPI_Offset& displacement) {
  const bool current = displacement == MPI_DISPLACEMENT_CURRENT;
  if (!file.sequential()) {
    if (current) return {MPI_ERR_ARG, "MPI_DISPLACEMENT_CURRENT is for MPI_MODE_SEQUENTIAL only"};
    return not_negative("the displacement", displacement);
  }
  Fault mine;
  if (!current) mine = {MPI_ERR_ARG, "a sequential file takes MPI_DISPLACEMENT_CURRENT only"};
  if (auto fault = file.agree(std::move(mine))) return fault;
  return current_displacement(file, displacement);
}

Fault set_view(File& file, View::Wanted wanted, const char* representation, MPI_Info info) {
  View view;
  Fault mine = find_displacement(file, wanted.displacement);
  if (!mine && file.split)
    mine = {MPI_ERR_OTHER, "a split collective was begun on this file and has not ended"};
  const std::string name = representation ? representation : "";
  wanted.representation = Process::get().representations().find(name);
  if (!mine && !wanted.representation)
    mine = {MPI_ERR_UNSUPPORTED_DATAREP, fmt::format("no data representation is called {}", name)};
  if (!mine) mine = View::make(Process::get().decoder(), wanted, view);
  const auto next_pointer = Slot((static_cast<uint32_t>(file.shared_pointer) + 1) % kPointers);
  if (!mine && file.rank == 0) {
    auto state = file.meeting->state();
    auto reset = state ? (*state)->set(next_pointer, 0) : Result<void>(state.error());
    if (!reset) mine = fault_of(reset.error());
  }
  const size_t kind = std::hash<std::string>()(name) ^ view.etype_size;
  if (auto fault = file.agree(std::move(mine), static_cast<long long>(kind))) return fault;
  take_hints(info, file);
  file.view = std::move(view);
  ++file.view_number;
  file.shared_pointer = next_pointer;
  std::lock_guard lock(file.mutex);
  file.position = 0;
  return {};
}

Fault type_extent(File& file, MPI_Datatype type, MPI_Count& extent) {
  auto map = map_in_file(Process::get().decoder(), type, *file.view.representation);
  if (!map) return {MPI_ERR_TYPE, map.error().message()};
  extent = map->extent();
  return {};
}

Fault delete_file(const char* name) {
  if (!name || !*name) return {MPI_ERR_BAD_FILE, "the file name is empty"};
  auto place = Process::get().places().find(name, Follow::no);
  return place ? forebay::mpiio::remove(*place) : fault_of(place.error());
}

int add_representation(const char* call, const char* name, const Registered& functions) {
  if (!Process::possible()) return report_no_mpi(call);
  if (!name || !functions.extent)
    return report(nullptr, call, {MPI_ERR_ARG, "its name or extent function is NULL"});
  return report(nullptr, call, Process::get().representations().add(registered(name, functions)));
}

MPI_Info info_of(const Hints& hints) {
  MPI_Info info = MPI_INFO_NULL;
  PMPI_Info_create(&info);
  for (const auto& [key, value] : hints.all())
    if (value.size() < MPI_MAX_INFO_VAL)  // MPI would end the job
      PMPI_Info_set(info, key.c_str(), value.c_str());
  return info;
}

}  // namespace

extern "C" {

int MPI_File_open(MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* fh) {
  *fh = MPI_FILE_NULL;
  if (!Process::possible()) return report_no_mpi("MPI_File_open");
  std::shared_ptr<File> file;
  Fault fault = open(comm, filename, amode, info, file);
  if (fault) {
    fault.text = fmt::format("{}: {}", filename ? filename : "NULL", fault.text);
    return report(nullptr, "MPI_File_open", fault);
  }
  Process::get().handlers().acquire(file->handler);
  *fh = Process::get().files().add(std::move(file));
  return MPI_SUCCESS;
}

int MPI_File_close(MPI_File* fh) {
  constexpr const char* kName = "MPI_File_close";
  auto file = fh ? Process::file(*fh) : nullptr;
  if (!file) return report_no_file(kName);
  const Fault fault = close(*file);
  Process::get().files().remove(*fh);  // first, because a handler need not return
  file->release();
  *fh = MPI_FILE_NULL;
  const int code = report(file.get(), kName, fault);
  Process::get().handlers().release_for_good(file->handler);
  return code;
}

int MPI_File_delete(const char* filename, MPI_Info) {
  if (!Process::possible()) return report_no_mpi("MPI_File_delete");
  Fault fault = delete_file(filename);
  if (fault) fault.text = fmt::format("{}: {}", filename ? filename : "NULL", fault.text);
  return report(nullptr, "MPI_File_delete", fault);
}

int MPI_File_set_size(MPI_File fh, MPI_Offset size) {
  return on_file("MPI_File_set_size", fh, [&](File& file) {
    Fault mine = no_sequential(file);
    if (!mine) mine = need_writing(file);
    if (!mine) mine = not_negative("the size", size);
    return by_rank_0(file, std::move(mine), size, [&] {
      Request request = file.request(Op::resize);
      request.length = Length(static_cast<uint64_t>(size));
      auto fault = outcome(file.call(std::move(request)));
      if (!fault && file.kept()) file.kept()->truncate(Length(static_cast<uint64_t>(size)));
      return fault;
    });
  });
}

int MPI_File_preallocate(MPI_File fh, MPI_Offset size) {
  return on_file("MPI_File_preallocate", fh, [&](File& file) {
    Fault mine = no_sequential(file);
    if (!mine) mine = need_writing(file);
    if (!mine) mine = not_negative("the size", size);
    return by_rank_0(file, std::move(mine), size, [&] {
      if (size == 0) return Fault{};
      Request request = file.request(Op::fallocate);
      request.length = Length(static_cast<uint64_t>(size));
      const auto call = [&](Request&& one) { return file.call(std::move(one)); };
      const auto reserved = reserve(call, request);
      return reserved ? Fault{} : fault_of(reserved.error());
    });
  });
}

int MPI_File_get_size(MPI_File fh, MPI_Offset* size) {
  return on_file("MPI_File_get_size", fh, [&](File& file) {
    auto found = file.size();
    if (!found) return fault_of(found.error());
    *size = static_cast<MPI_Offset>(*found);
    return Fault{};
  });
}

int MPI_File_get_group(MPI_File fh, MPI_Group* group) {
  return on_file("MPI_File_get_group", fh, [&](File& file) {
    return Fault{PMPI_Comm_group(file.comm, group), "MPI_Comm_group"};
  });
}

int MPI_File_get_amode(MPI_File fh, int* amode) {
  return on_file("MPI_File_get_amode", fh, [&](File& file) {
    *amode = file.amode;
    return Fault{};
  });
}

int MPI_File_set_info(MPI_File fh, MPI_Info info) {
  return on_file("MPI_File_set_info", fh, [&](File& file) {
    take_hints(info, file);
    return file.agree({});
  });
}

int MPI_File_get_info(MPI_File fh, MPI_Info* info) {
  return on_file("MPI_File_get_info", fh, [&](File& file) {
    *info = info_of(file.hints);
    return Fault{};
  });
}

int MPI_File_set_view(MPI_File fh, MPI_Offset displacement, MPI_Datatype etype,
                      MPI_Datatype filetype, const char* datarep, MPI_Info info) {
  return on_file("MPI_File_set_view", fh, [&](File& file) {
    const View::Wanted wanted{displacement, etype, filetype, nullptr, file.writes(), file.comm};
    return set_view(file, wanted, datarep, info);
  });
}

int MPI_File_get_view(MPI_File fh, MPI_Offset* displacement, MPI_Datatype* etype,
                      MPI_Datatype* filetype, char* datarep) {
  return on_file("MPI_File_get_view", fh, [&](File& file) {
    *displacement = file.view.displacement;
    *etype = file.view.etype.duplicate();
    *filetype = file.view.filetype.duplicate();
    std::strcpy(datarep, file.view.representation->name.c_str());
    return Fault{};
  });
}

int MPI_File_seek(MPI_File fh, MPI_Offset offset, int whence) {
  return on_file("MPI_File_seek", fh, [&](File& file) {
    if (auto fault = no_sequential(file)) return fault;
    std::lock_guard lock(file.mutex);
    MPI_Offset position = 0;
    if (auto fault = target(file, offset, whence, file.position, position)) return fault;
    file.position = position;
    return Fault{};
  });
}

int MPI_File_get_position(MPI_File fh, MPI_Offset* offset) {
  return on_file("MPI_File_get_position", fh, [&](File& file) {
    if (auto fault = no_sequential(file)) return fault;
    std::lock_guard lock(file.mutex);
    *offset = file.position;
    return Fault{};
  });
}

int MPI_File_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset* displacement) {
  return on_file("MPI_File_get_byte_offset", fh, [&](File& file) {
    if (auto fault = not_negative("the offset", offset)) return fault;
    const auto at = file.view.stream(offset);
    if (!at || *at >= file.view.map.total())
      return Fault{MPI_ERR_ARG, fmt::format("offset {} lies beyond what a file can hold", offset)};
    *displacement = static_cast<MPI_Offset>(file.view.map.offset_of(*at).value);
    return Fault{};
  });
}

int MPI_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence) {
  return on_file("MPI_File_seek_shared", fh, [&](File& file) {
    const auto both =
        static_cast<unsigned long long>(offset) * 1009 + static_cast<unsigned long long>(whence);
    return by_rank_0(file, no_sequential(file), static_cast<long long>(both), [&] {
      MPI_Offset position = 0;
      if (auto fault = target(file, offset, whence, shared_position(file), position)) return fault;
      auto state = file.meeting->state();
      auto set = state ? (*state)->set(file.shared_pointer, static_cast<uint64_t>(position))
                       : Result<void>(state.error());
      return set ? Fault{} : fault_of(set.error());
    });
  });
}

int MPI_File_get_position_shared(MPI_File fh, MPI_Offset* offset) {
  return on_file("MPI_File_get_position_shared", fh, [&](File& file) {
    if (auto fault = no_sequential(file)) return fault;
    auto position = shared_position(file);
    if (!position) return fault_of(position.error());
    *offset = *position;
    return Fault{};
  });
}

int MPI_File_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint* extent) {
  return on_file("MPI_File_get_type_extent", fh, [&](File& file) {
    MPI_Count found = 0;
    auto fault = type_extent(file, type, found);
    if (!fault) *extent = static_cast<MPI_Aint>(found);
    return fault;
  });
}

#if MPI_VERSION >= 4
int MPI_File_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count* extent) {
  return on_file("MPI_File_get_type_extent_c", fh,
                 [&](File& file) { return type_extent(file, type, *extent); });
}
#endif

int MPI_File_set_atomicity(MPI_File fh, int flag) {
  return on_file("MPI_File_set_atomicity", fh, [&](File& file) {
    // Also a barrier: whatever was written before is there, for all.
    auto fault = file.agree({}, flag != 0);
    std::lock_guard none_begins(file.beginning);
    file.wait_for_operations();
    std::unique_lock lock(file.kept_lock);
    if (!fault && flag && file.kept()) fault = file.kept()->settle();
    if (!fault) file.atomic = flag != 0;
    return fault;
  });
}

int MPI_File_get_atomicity(MPI_File fh, int* flag) {
  return on_file("MPI_File_get_atomicity", fh, [&](File& file) {
    *flag = file.atomic;
    return Fault{};
  });
}

int MPI_File_sync(MPI_File fh) {
  return on_file("MPI_File_sync", fh, [&](File& file) {
    Fault mine = file.kept() ? file.kept()->settle() : Fault{};
    if (!mine && file.writes()) mine = outcome(file.call(file.request(Op::commit)));
    return file.agree(std::move(mine));
  });
}

MPI_Fint MPI_File_c2f(MPI_File fh) {
  auto file = Process::file(fh);
  return file ? file->number : 0;
}

MPI_File MPI_File_f2c(MPI_Fint number) {
  return Process::possible() ? Process::get().files().numbered(number) : MPI_FILE_NULL;
}

int MPI_Register_datarep(const char* name, MPI_Datarep_conversion_function* read,
                         MPI_Datarep_conversion_function* write,
                         MPI_Datarep_extent_function* extent, void* state) {
  Registered functions;
  functions.extent = extent;
  functions.state = state;
  functions.read = read;
  functions.write = write;
  return add_representation("MPI_Register_datarep", name, functions);
}

#if MPI_VERSION >= 4
int MPI_Register_datarep_c(const char* name, MPI_Datarep_conversion_function_c* read,
                           MPI_Datarep_conversion_function_c* write,
                           MPI_Datarep_extent_function* extent, void* state) {
  Registered functions;
  functions.extent = extent;
  functions.state = state;
  functions.read_c = read;
  functions.write_c = write;
  return add_representation("MPI_Register_datarep_c", name, functions);
}
FOREBAY_ALSO_PMPI(File_get_type_extent_c);
FOREBAY_ALSO_PMPI(Register_datarep_c);
#endif
}

FOREBAY_ALSO_PMPI(File_open);
FOREBAY_ALSO_PMPI(File_close);
FOREBAY_ALSO_PMPI(File_delete);
FOREBAY_ALSO_PMPI(File_set_size);
FOREBAY_ALSO_PMPI(File_preallocate);
FOREBAY_ALSO_PMPI(File_get_size);
FOREBAY_ALSO_PMPI(File_get_group);
FOREBAY_ALSO_PMPI(File_get_amode);
FOREBAY_ALSO_PMPI(File_set_info);
FOREBAY_ALSO_PMPI(File_get_info);
FOREBAY_ALSO_PMPI(File_set_view);
FOREBAY_ALSO_PMPI(File_get_view);
FOREBAY_ALSO_PMPI(File_seek);
FOREBAY_ALSO_PMPI(File_get_position);
FOREBAY_ALSO_PMPI(File_get_byte_offset);
FOREBAY_ALSO_PMPI(File_seek_shared);
FOREBAY_ALSO_PMPI(File_get_position_shared);
FOREBAY_ALSO_PMPI(File_get_type_extent);
FOREBAY_ALSO_PMPI(File_set_atomicity);
FOREBAY_ALSO_PMPI(File_get_atomicity);
FOREBAY_ALSO_PMPI(File_sync);
FOREBAY_ALSO_PMPI(File_c2f);
FOREBAY_ALSO_PMPI(File_f2c);
FOREBAY_ALSO_PMPI(Register_datarep);
