#include "mpiio/representation.h"

#include <fmt/format.h>

#include <climits>
#include <cstring>
#include <utility>

#include "mpiio/external_form.h"
#include "mpiio/process.h"

namespace forebay::mpiio {
namespace {

Result<plan::TiledMap> memory_of(const Buffer& buffer) {
  auto type = Process::get().decoder().decode(buffer.type);
  if (!type) return type.error();
  return plan::TiledMap::buffer(buffer.address, static_cast<uint64_t>(buffer.count), *type);
}

// fn(address, length) for every run of the buffer's bytes, in their order. By our own map of the
// type: MPI's functions that pack count bytes in int.
template <class Fn>
void for_each_run(const plan::TiledMap& memory, Fn&& fn) {
  for (plan::TiledCursor cursor(memory, Length(), memory.total()); !cursor.done();) {
    const Extent run = cursor.take(memory.total());
    fn(reinterpret_cast<std::byte*>(run.offset.value), run.length.value);
  }
}

Fault cannot_convert(const Error& error) {
  return {MPI_ERR_CONVERSION, error.message()};
}

// fn(form, address, elements) for all elements of the buffer, in their order.
template <class Fn>
Fault for_each_row(const Buffer& buffer, Fn&& fn) {
  const auto memory = memory_of(buffer);
  if (!memory) return cannot_convert(memory.error());
  const auto signature = Process::get().decoder().signature(buffer.type);
  if (!signature) return cannot_convert(signature.error());
  plan::TiledCursor bytes(*memory, Length(), memory->total());
  SignatureCursor elements(*signature, static_cast<uint64_t>(buffer.count));
  while (!elements.done()) {
    const Signature::Run run = elements.next(UINT64_MAX);
    const auto form = external_form(run.primitive);
    if (!form) return cannot_convert(form.error());
    const uint64_t each = form->size_in_memory();
    for (uint64_t left = run.count; left > 0;) {
      const Extent piece = bytes.take(Length(left * each));
      const uint64_t count = piece.length.value / each;
      FOREBAY_ASSERT(count > 0 && count * each == piece.length.value);  // no value lies in two
      auto done = fn(*form, reinterpret_cast<std::byte*>(piece.offset.value), count);
      if (!done) return cannot_convert(done.error());
      left -= count;
    }
  }
  return {};
}

class External32 final : public Representation {
 public:
  External32() : Representation("external32") {}
  bool converts() const override { return true; }

  Result<int64_t> size_of(MPI_Datatype primitive) const override {
    const auto form = external_form(primitive);
    if (!form) return form.error();
    return static_cast<int64_t>(form->size_in_file());
  }

  Fault encode(const Buffer& buffer, std::vector<std::byte>& bytes) const override {
    std::byte* to = bytes.data();
    return for_each_row(buffer, [&](const ExternalForm& form, std::byte* from, uint64_t count) {
      std::byte* const at = std::exchange(to, to + count * form.size_in_file());
      return to_external(form, from, at, count);
    });
  }

  Fault decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const override {
    const std::byte* from = bytes.data();
    return for_each_row(buffer, [&](const ExternalForm& form, std::byte* to, uint64_t count) {
      const std::byte* const at = std::exchange(from, from + count * form.size_in_file());
      return from_external(form, at, to, count);
    });
  }
};

class Users final : public Representation {
 public:
  Users(std::string its_name, const Registered& functions)
      : Representation(std::move(its_name)), functions_(functions) {}
  bool converts() const override { return true; }

  Result<int64_t> size_of(MPI_Datatype primitive) const override {
    MPI_Aint extent = 0;
    if (functions_.extent(primitive, &extent, functions_.state) != MPI_SUCCESS || extent < 0)
      return Error(EINVAL, fmt::format("{}: its extent function failed", name));
    return extent;
  }

  Fault encode(const Buffer& buffer, std::vector<std::byte>& bytes) const override {
#if MPI_VERSION >= 4
    if (functions_.write_c)
      return judged(functions_.write_c(buffer.address, buffer.type, buffer.count, bytes.data(), 0,
                                       functions_.state));
#endif
    if (!functions_.write) {
      const Fault fault = as_in_memory(buffer.type);
      return fault ? fault : Representation::encode(buffer, bytes);
    }
    if (buffer.count > INT_MAX) return too_many();
    return judged(functions_.write(buffer.address, buffer.type, static_cast<int>(buffer.count),
                                   bytes.data(), 0, functions_.state));
  }

  Fault decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const override {
    void* const from = const_cast<std::byte*>(bytes.data());
#if MPI_VERSION >= 4
    if (functions_.read_c)
      return judged(
          functions_.read_c(buffer.address, buffer.type, buffer.count, from, 0, functions_.state));
#endif
    if (!functions_.read) {
      const Fault fault = as_in_memory(buffer.type);
      return fault ? fault : Representation::decode(bytes, buffer);
    }
    if (buffer.count > INT_MAX) return too_many();
    return judged(functions_.read(buffer.address, buffer.type, static_cast<int>(buffer.count), from,
                                  0, functions_.state));
  }

 private:
  // Without a function that converts, data can have no other sizes than in memory.
  Fault as_in_memory(MPI_Datatype type) const {
    const auto signature = Process::get().decoder().signature(type);
    if (!signature) return cannot_convert(signature.error());
    bool same = true;
    signature->for_each_run(1, [&](const Signature::Run& run) {
      const auto in_file = size_of(run.primitive), native = Representation::size_of(run.primitive);
      return same = in_file && native && *in_file == *native;
    });
    if (same) return {};
    return {MPI_ERR_CONVERSION,
            fmt::format("{}: sizes differ from those in memory, and nothing converts", name)};
  }
  Fault judged(int code) const {
    if (code == MPI_SUCCESS) return {};
    return {MPI_ERR_CONVERSION, fmt::format("{}: its conversion function returned {}", name, code)};
  }
  Fault too_many() const {
    return {MPI_ERR_COUNT, fmt::format("{}: its conversion functions count in int", name)};
  }

  const Registered functions_;
};

}  // namespace

Result<int64_t> Representation::size_of(MPI_Datatype primitive) const {
  int size = 0;
  if (PMPI_Type_size(primitive, &size) != MPI_SUCCESS) return Error(EINVAL, "no such type");
  return size;
}

Fault Representation::encode(const Buffer& buffer, std::vector<std::byte>& bytes) const {
  const auto memory = memory_of(buffer);
  if (!memory) return cannot_convert(memory.error());
  FOREBAY_ASSERT(memory->total().value == bytes.size());
  std::byte* to = bytes.data();
  for_each_run(*memory, [&](const std::byte* run, uint64_t length) {
    std::memcpy(to, run, length);
    to += length;
  });
  return {};
}

Fault Representation::decode(const std::vector<std::byte>& bytes, const Buffer& buffer) const {
  const auto memory = memory_of(buffer);
  if (!memory) return cannot_convert(memory.error());
  FOREBAY_ASSERT(memory->total().value <= bytes.size());
  const std::byte* from = bytes.data();
  for_each_run(*memory, [&](std::byte* run, uint64_t length) {
    std::memcpy(run, from, length);
    from += length;
  });
  return {};
}

Representations::Representations() {
  for (const char* name : {"native", "internal"})
    known_[name] = std::make_shared<Representation>(name);
  known_["external32"] = std::make_shared<External32>();
}

Fault Representations::add(RepresentationRef one) {
  if (one->name.size() >= MPI_MAX_DATAREP_STRING)
    return {MPI_ERR_ARG, "the name of a data representation is too long"};
  std::lock_guard lock(mutex_);
  if (known_.emplace(one->name, one).second) return {};
  return {MPI_ERR_DUP_DATAREP, fmt::format("there is a data representation {} already", one->name)};
}

RepresentationRef Representations::find(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto it = known_.find(name);
  return it == known_.end() ? nullptr : it->second;
}

RepresentationRef registered(std::string name, const Registered& functions) {
  return std::make_shared<Users>(std::move(name), functions);
}

}  // namespace forebay::mpiio
