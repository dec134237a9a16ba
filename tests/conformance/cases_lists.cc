// List I/O: file sides and memory sides of many shapes. The oracle is a plain array of bytes.
#include <numeric>
#include <random>

#include "env.h"

namespace forebay::conformance {

namespace {

Extents extents(std::vector<Extent> blocks, std::vector<Stride> loops = {}) {
  return Extents::make(std::move(blocks), std::move(loops)).value();
}
Extent at(uint64_t offset, uint64_t length) {
  return {Offset(offset), Length(length)};
}

// Shapes of 240 bytes in all, within [0, 4096).
std::vector<Extents> shapes() {
  return {extents({at(0, 240)}),
          extents({at(100, 80), at(300, 80), at(20, 80)}),
          extents({at(7, 10)}, {{24, 17}}),
          extents({at(4000, 10)}, {{24, -100}}),                 // backwards
          extents({at(3, 5)}, {{4, 1000}, {12, 20}}),            // a plane of a cube
          extents({at(3000, 5)}, {{4, -700}, {12, 20}}),         // backwards planes
          extents({at(0, 3), at(10, 0), at(5, 5)}, {{30, 64}}),  // an empty block among others
          extents({at(50, 120), at(170, 120)})};                 // neighbours
}

std::string pattern(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

void scatter(const Extents& where, std::string_view stream, std::string& image) {
  size_t k = 0;
  for (ExtentCursor c(where); !c.done();) {
    const Extent piece = c.take(Length(UINT32_MAX));
    for (uint64_t i = 0; i < piece.length.value; ++i) image[piece.offset.value + i] = stream[k++];
  }
}

std::string gather(const Extents& where, std::string_view image) {
  std::string stream;
  for (ExtentCursor c(where); !c.done();) {
    const Extent piece = c.take(Length(UINT32_MAX));
    stream += image.substr(piece.offset.value, piece.length.value);
  }
  return stream;
}

void every_shape_against_every_shape(Env& e) {
  const File f = e.create("f");
  std::string image(4096, '\0');
  e.write(f, 0, image);
  unsigned seed = 1;
  for (const Extents& file : shapes()) {
    for (const Extents& memory : shapes()) {
      std::string source = pattern(4200, seed++);
      const Memory from = {reinterpret_cast<std::byte*>(source.data()), memory};
      MUST(e.ok(e.data_request(Op::write, f, file, from)).count == 240);
      scatter(file, gather(memory, source), image);
      std::string got(4200, '?'), want = got;
      const Memory to = {reinterpret_cast<std::byte*>(got.data()), memory};
      MUST(e.ok(e.data_request(Op::read, f, file, to)).count == 240);
      scatter(memory, gather(file, image), want);
      MUST(got == want);
    }
  }
  MUST(e.read(f, 0, 5000) == image);
}

void later_bytes_of_a_request_win(Env& e) {
  const File f = e.create("f");
  std::string bytes = "aaaabbbbcc";
  const Memory memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  e.ok(e.data_request(Op::write, f, extents({at(0, 4), at(2, 4), at(1, 2)}), memory));
  MUST(e.read(f, 0, 100) == "accbbb");
  MUST(e.ok(e.data_request(Op::read, f, extents({at(0, 4), at(2, 4), at(1, 2)}), memory)).count ==
       10);
  MUST(bytes == "accbcbbbcc");
}

void a_list_stops_at_the_end_of_file(Env& e) {
  const File f = e.create("f");
  e.write(f, 0, "0123456789");
  std::string bytes(12, '?');
  const Memory memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  const Extents crossing = extents({at(2, 4), at(8, 4), at(0, 4)});
  MUST(e.ok(e.data_request(Op::read, f, crossing, memory)).count == 6);
  MUST(bytes.substr(0, 6) == "234589");
  const Extents beyond = extents({at(2, 4), at(50, 4), at(0, 4)});
  MUST(e.ok(e.data_request(Op::read, f, beyond, memory)).count == 4);
}

void sides_must_be_equal(Env& e) {
  const File f = e.create("f");
  std::string bytes(12, 'x');
  const Memory memory = Memory::of(std::as_writable_bytes(std::span(bytes)));
  e.fails(EINVAL, e.data_request(Op::write, f, extents({at(0, 11)}), memory));
  MUST(e.attr(f.handle).size == 0);
}

void a_hundred_thousand_extents(Env& e) {
  constexpr uint64_t kPieces = 100'000;
  const File f = e.create("f");
  std::string bytes = pattern(kPieces, 5), got(kPieces, '?');
  std::vector<Extent> blocks;
  for (uint64_t i = 0; i < kPieces; ++i) blocks.push_back(at(3 * i, 1));
  const Extents list = extents(std::move(blocks));
  const Memory from = Memory::of(std::as_bytes(std::span(std::as_const(bytes))));
  const Memory to = Memory::of(std::as_writable_bytes(std::span(got)));
  MUST(e.ok(e.data_request(Op::write, f, list, from)).count == kPieces);
  MUST(e.attr(f.handle).size == 3 * (kPieces - 1) + 1);
  MUST(e.ok(e.data_request(Op::read, f, list, to)).count == kPieces);
  MUST(got == bytes);
  // The same as a view of three numbers.
  const Extents view = extents({at(0, 1)}, {{kPieces, 3}});
  got.assign(kPieces, '?');
  MUST(e.ok(e.data_request(Op::read, f, view, to)).count == kPieces);
  MUST(got == bytes);
}

void large_transfers(Env& e) {
  const File f = e.create("f");
  const std::string bytes = pattern(9 * 1024 * 1024 + 17, 6);
  e.write(f, 333, bytes);
  MUST(e.read(f, 333, bytes.size() + 5) == bytes);
}

}  // namespace

std::vector<Case> list_cases() {
  const std::vector<Feature> content = {Feature::content};
  return {{"list_every_shape_against_every_shape", content, every_shape_against_every_shape},
          {"list_later_bytes_win", content, later_bytes_of_a_request_win},
          {"list_stops_at_the_end_of_file", content, a_list_stops_at_the_end_of_file},
          {"list_sides_must_be_equal", {}, sides_must_be_equal},
          {"list_a_hundred_thousand_extents", content, a_hundred_thousand_extents},
          {"large_transfers", content, large_transfers}};
}

}  // namespace forebay::conformance
