// Messages that move a request's bytes, and the pulled lists of extents.
#include <fmt/format.h>

#include "wire/little_endian.h"
#include "wire/message.h"

namespace forebay::wire {
namespace {

// A list is moved in whole blocks.
void check_place(Part part, uint64_t position, uint64_t length, Fields& fields) {
  if (part == Part::list && (position % kBlockBytes != 0 || length % kBlockBytes != 0))
    fields.fail(0, fmt::format("bytes {}+{} of an extent list are not whole blocks of {}", position,
                               length, kBlockBytes));
}

void check_area(uint64_t area, Part part, Fields& fields, uint64_t& to) {
  if (area == kNoArea) return;
  if (part != Part::stream) fields.fail(0, "only a stream goes through the shared area");
  fields.number("place in the shared area", area, kMaxOffset - kMaxPayload, to);
}

}  // namespace

std::string encode(const Pull& m) {
  Builder& b = scratch();
  return finish(b, FrameType::pull,
                fbs::CreatePull(b, m.id.slot, m.id.sequence, static_cast<uint8_t>(m.part),
                                m.position, m.length, m.area));
}

Result<Pull> decode_pull(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Pull>(message, bytes.size(), "pull", 1);
  if (!opened) return opened.error();
  const fbs::Pull& t = **opened;
  Fields fields("pull");
  Pull m;
  m.id = {t.slot(), t.sequence()};
  fields.enumeration("part", t.what(), Part::list, m.part);
  fields.number("length", t.length(), kMaxPayload, m.length);
  fields.number("position", t.position(), kMaxOffset - kMaxPayload, m.position);
  if (t.length() == 0) fields.fail(0, "it asks for no bytes");
  check_place(m.part, m.position, m.length, fields);
  check_area(t.area(), m.part, fields, m.area);
  return checked(m, fields);
}

std::string encode(const Data& m, uint32_t payload_size) {
  Builder& b = scratch();
  return finish(b, FrameType::data,
                fbs::CreateData(b, m.id.slot, m.id.sequence, static_cast<uint8_t>(m.part),
                                m.position, m.area, m.length),
                payload_size);
}

Result<Data> decode_data(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Data>(message, bytes.size(), "data", 1);
  if (!opened) return opened.error();
  const fbs::Data& t = **opened;
  Fields fields("data");
  Data m;
  m.id = {t.slot(), t.sequence()};
  fields.enumeration("part", t.what(), Part::list, m.part);
  fields.number("position", t.position(), kMaxOffset - kMaxPayload, m.position);
  fields.number("length", t.length(), kMaxPayload, m.length);
  check_place(m.part, m.position, 0, fields);
  check_area(t.area(), m.part, fields, m.area);
  if ((m.area == kNoArea) != (m.length == 0))
    fields.fail(0, "a place without bytes, or the reverse");
  return checked(m, fields);
}

std::string encode(const Cancel& m) {
  Builder& b = scratch();
  return finish(b, FrameType::cancel, fbs::CreateCancel(b, m.id.slot, m.id.sequence));
}

Result<Cancel> decode_cancel(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Cancel>(message, bytes.size(), "cancel", 1);
  if (!opened) return opened.error();
  return Cancel{{(*opened)->slot(), (*opened)->sequence()}};
}

std::string encode(const Taken& m) {
  Builder& b = scratch();
  return finish(b, FrameType::taken, fbs::CreateTaken(b, m.area));
}

Result<Taken> decode_taken(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Taken>(message, bytes.size(), "taken", 1);
  if (!opened) return opened.error();
  return Taken{(*opened)->area()};
}

std::string encode(const Recall& m) {
  Builder& b = scratch();
  return finish(b, FrameType::recall, fbs::CreateRecall(b, m.lease));
}

Result<Recall> decode_recall(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Recall>(message, bytes.size(), "recall", 1);
  if (!opened) return opened.error();
  return Recall{(*opened)->lease()};
}

std::string encode(const Released& m) {
  Builder& b = scratch();
  return finish(b, FrameType::released, fbs::CreateReleased(b, m.lease));
}

Result<Released> decode_released(Bytes bytes) {
  const Aligned message(bytes);
  const auto opened = open_message<fbs::Released>(message, bytes.size(), "released", 1);
  if (!opened) return opened.error();
  return Released{(*opened)->lease()};
}

void encode_blocks(std::span<const Extent> blocks, std::span<std::byte> out) {
  FOREBAY_ASSERT(out.size() == blocks.size() * kBlockBytes);
  std::byte* to = out.data();
  for (const Extent& block : blocks) {
    put_number<uint64_t>(block.offset.value, to);
    put_number<uint64_t>(block.length.value, to + 8);
    to += kBlockBytes;
  }
}

std::vector<Extent> decode_blocks(Bytes in) {
  std::vector<Extent> blocks(in.size() / kBlockBytes);
  const std::byte* from = in.data();
  for (Extent& block : blocks) {
    block = {Offset(get_number<uint64_t>(from)), Length(get_number<uint64_t>(from + 8))};
    from += kBlockBytes;
  }
  return blocks;
}

}  // namespace forebay::wire
