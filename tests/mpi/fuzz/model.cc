#include "model.h"

#include <algorithm>

namespace fuzz {
namespace {

void add_span(Spans& spans, Span s) {
  if (!spans.empty() && spans.back().at + spans.back().length == s.at)
    spans.back().length += s.length;
  else
    spans.push_back(s);
}

bool overlap(const Spans& a, const Spans& b) {
  for (const Span& x : a)
    for (const Span& y : b)
      if (x.at < y.at + y.length && y.at < x.at + x.length) return true;
  return false;
}

}  // namespace

int64_t end_of(const Spans& spans) {
  int64_t end = 0;
  for (const Span& s : spans) end = std::max(end, s.at + s.length);
  return end;
}

bool same(const Bytes& expected, const Bytes& got, bool zeros) {
  return expected.size() == got.size() &&
         std::equal(expected.begin(), expected.end(), got.begin(),
                    [&](unsigned char e, unsigned char g) { return same(e, g, zeros); });
}

Spans View::spans(int64_t stream, int64_t length) const {
  Spans out;
  if (length == 0) return out;
  if (filetype->dense()) return {{disp + filetype->pieces[0].at + stream, length}};
  int64_t tile = stream / filetype->size, skip = stream % filetype->size;
  for (; length > 0; ++tile) {
    for (const Piece& p : filetype->pieces) {
      int64_t drop = std::min(skip, p.length);
      int64_t take = std::min(p.length - drop, length);
      if (take > 0) add_span(out, {disp + tile * filetype->extent() + p.at + drop, take});
      skip -= drop;
      length -= take;
    }
  }
  return out;
}

int64_t View::etypes_before(int64_t size) const {
  if (size < disp) return -1;
  int64_t bytes = 0;
  if (filetype->dense()) {
    bytes = std::max<int64_t>(0, size - disp - filetype->pieces[0].at);
  } else {
    for (int64_t at = disp; at < size; at += filetype->extent())
      for (const Piece& p : filetype->pieces)
        bytes += std::clamp<int64_t>(size - at - p.at, 0, p.length);
  }
  return bytes % etype->size ? -1 : bytes / etype->size;
}

void FileModel::write(const Spans& spans, const Bytes& data) {
  if (end_of(spans) > size()) resize(end_of(spans));
  auto from = data.begin();
  for (const Span& s : spans) {
    std::copy(from, from + s.length, bytes_.begin() + s.at);
    from += s.length;
  }
}

Bytes FileModel::read(const Spans& spans) const {
  Bytes out;
  for (const Span& s : spans) {
    int64_t end = std::min(s.at + s.length, size());
    if (end > s.at) out.insert(out.end(), bytes_.begin() + s.at, bytes_.begin() + end);
  }
  return out;
}

Conflicts::Conflicts(int64_t limit, int ranks, bool overlapping_reads)
    : writer_(static_cast<size_t>(limit), -1),
      readers_(static_cast<size_t>(limit), 0),
      extends_(static_cast<size_t>(ranks)),
      reads_beyond_(static_cast<size_t>(ranks)),
      overlapping_reads_(overlapping_reads) {}

void Conflicts::fence(int64_t file_size) {
  std::fill(writer_.begin(), writer_.end(), -1);
  std::fill(readers_.begin(), readers_.end(), 0);
  std::fill(extends_.begin(), extends_.end(), false);
  std::fill(reads_beyond_.begin(), reads_beyond_.end(), false);
  pending_.clear();
  fence_size_ = file_size;
}

bool Conflicts::beyond(int rank, bool write, const Spans& spans) const {
  for (const Span& s : spans)
    for (int64_t i = std::max(s.at, fence_size_); i < s.at + s.length; ++i)
      if (write || writer_[static_cast<size_t>(i)] != rank) return true;
  return false;
}

bool Conflicts::allows(int rank, bool write, const Spans& spans) const {
  if (end_of(spans) > static_cast<int64_t>(writer_.size())) return false;
  for (const Span& s : spans) {
    for (int64_t i = s.at; i < s.at + s.length; ++i) {
      size_t at = static_cast<size_t>(i);
      if (writer_[at] >= 0 && writer_[at] != rank) return false;
      if ((write || !overlapping_reads_) && (readers_[at] & ~(1u << rank))) return false;
    }
  }
  const std::vector<bool>& others = write ? reads_beyond_ : extends_;
  if (beyond(rank, write, spans))
    for (size_t r = 0; r < others.size(); ++r)
      if (others[r] && static_cast<int>(r) != rank) return false;
  for (const Pending& p : pending_) {
    if (p.rank != rank || !(write || p.write)) continue;
    if (overlap(spans, p.spans)) return false;
    if (write != p.write && beyond(rank, write, spans) && beyond(rank, p.write, p.spans))
      return false;
  }
  return true;
}

void Conflicts::add(int rank, bool write, const Spans& spans, int pending_id) {
  if (beyond(rank, write, spans))
    (write ? extends_ : reads_beyond_)[static_cast<size_t>(rank)] = true;
  for (const Span& s : spans)
    for (int64_t i = s.at; i < s.at + s.length; ++i) {
      if (write)
        writer_[static_cast<size_t>(i)] = static_cast<int8_t>(rank);
      else
        readers_[static_cast<size_t>(i)] |= static_cast<uint16_t>(1u << rank);
    }
  if (pending_id != 0) pending_.push_back({pending_id, rank, write, spans});
}

void Conflicts::complete(int pending_id) {
  std::erase_if(pending_, [&](const Pending& p) { return p.id == pending_id; });
}

bool Conflicts::size_known_to(int rank) const {
  for (size_t r = 0; r < extends_.size(); ++r)
    if (extends_[r] && static_cast<int>(r) != rank) return false;
  for (const Pending& p : pending_)
    if (p.write && beyond(p.rank, true, p.spans)) return false;
  return true;
}

bool Conflicts::size_known() const {
  return std::none_of(extends_.begin(), extends_.end(), [](bool b) { return b; });
}

}  // namespace fuzz
