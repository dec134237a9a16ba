// The fuzz target over shared memory (README.md, shared_world.h).
#include "core/fuzzing.h"
#include "shared_world.h"

namespace forebay::fuzz {
namespace {

// Writes one program.
class Program {
 public:
  explicit Program(unsigned mode = 0, OfferKind offer = OfferKind::good)
      : bytes_{static_cast<char>(mode), static_cast<char>(offer)} {}
  const std::string& bytes() const { return bytes_; }

  Program& step(Step what, unsigned how = 0, unsigned a = 0, unsigned b = 0) {
    for (const unsigned byte : {unsigned(what), how, a & 255, a >> 8, b & 255, b >> 8}) {
      bytes_ += static_cast<char>(byte);
    }
    return *this;
  }
  Program& raw(const std::string& bytes) {
    step(Step::raw, 0, static_cast<unsigned>(bytes.size()));
    bytes_ += bytes;
    return *this;
  }
  Program& times(unsigned n, Step what, unsigned how = 0, unsigned a = 0, unsigned b = 0) {
    while (n-- > 0) step(what, how, a, b);
    return *this;
  }

 private:
  std::string bytes_;
};

constexpr unsigned kBulk = 20000;
constexpr unsigned kLent = 1;

void make_corpus(const std::filesystem::path& folder) {
  const auto save = [&](const char* name, const Program& p) {
    write_seed(folder / name, p.bytes());
  };
  for (const unsigned mode : {0u, unsigned(kSlow), unsigned(kRush | kSlow), unsigned(kPosix),
                              unsigned(kPosix | kSlow), unsigned(kRestless), 64u, 128u}) {
    const std::string suffix = "-" + std::to_string(mode);
    save(("bulk" + suffix).c_str(), Program(mode)
                                        .step(Step::write, 64, 1, kBulk)
                                        .step(Step::honest, 1, 100, 5000)
                                        .times(5, Step::answer)
                                        .step(Step::read, 0, 1, kBulk)
                                        .times(5, Step::take));
    save(("lent" + suffix).c_str(), Program(mode)
                                        .step(Step::write, kLent, 4, kBulk)
                                        .step(Step::scribble_lent, 3, 0, 8000)
                                        .step(Step::honest, 2, 7, 9000)
                                        .step(Step::read, kLent, 64, 8192)
                                        .step(Step::read, 3, 64, 8192)
                                        .step(Step::read, 4, 64, 8192));
    save(("boxes" + suffix).c_str(), Program(mode)
                                         .times(3, Step::box, 0, 7)
                                         .step(Step::honest, 1, 100, 5000)
                                         .step(Step::settle)
                                         .step(Step::box, 2, 9)
                                         .step(Step::box, 3, 9)
                                         .step(Step::box, 7, 9));
    save(("gone" + suffix).c_str(), Program(mode)
                                        .step(Step::write, kLent, 4, kBulk)
                                        .step(Step::write, 64, 1, kBulk)
                                        .step(Step::answer)
                                        .step(Step::connect, 0, 0, 1)
                                        .step(Step::read, 0, 1, kBulk)
                                        .step(Step::hang_up));
  }
  save("list", Program()
                   .step(Step::write_list, 0, 7, 300)
                   .times(8, Step::answer, 0, 7)
                   .step(Step::read_list, 0, 7, 300)
                   .times(4, Step::answer, 0, 7)
                   .times(3, Step::take));
  save("wrong-answers", Program()
                            .step(Step::write, 64, 1, kBulk)
                            .step(Step::answer, 1, 4096)
                            .step(Step::write, 64, 1, kBulk)
                            .step(Step::answer, 2, 1)
                            .step(Step::write, 64, 1, kBulk)
                            .step(Step::answer, 9)
                            .step(Step::answer)
                            .step(Step::answer));
  save("wrong-takes", Program()
                          .step(Step::read, 0, 0, kBulk)
                          .step(Step::take, 2)
                          .step(Step::take)
                          .step(Step::read, 0, 0, kBulk)
                          .step(Step::take, 1, 4096));
  save("words", Program()
                    .step(Step::set_word, 0 | 1 << 3, 100)
                    .step(Step::set_word, 2 | 3 << 3, 5)
                    .step(Step::connect)
                    .step(Step::set_word, 1 | 3 << 3, 5)
                    .step(Step::connect)
                    .step(Step::set_word, 3 | 3 << 3, 5)
                    .step(Step::write, 0, 0, 100));
  save("scribbles", Program(kRush | kSlow)
                        .step(Step::write, 64, 1, kBulk)
                        .step(Step::scribble_area, 77, 0, 8000)
                        .step(Step::scribble_ring, 77, 0, 4000)
                        .step(Step::punch, 0, 0, 60000)
                        .step(Step::truncate, 1, 100));
  save("quiet", Program()
                    .step(Step::quiet, 1)
                    .step(Step::write, 0, 1, 100)
                    .step(Step::bell, 1)
                    .step(Step::bell, 3)
                    .step(Step::socket_bytes, 0, 0));
  save("lent-file", Program(kPosix)
                        .step(Step::open_honest, 1)
                        .step(Step::shortcut, 64)
                        .step(Step::shortcut, 3)
                        .step(Step::honest, 1, 100, 5000)
                        .times(2, Step::shortcut, 5)
                        .step(Step::shortcut, 15, 0, 63));
  save("raw", Program(kUnannounced).raw(std::string(40, 'r')));
  save("unwanted", Program()
                       .step(Step::cancel, 0, 0)
                       .step(Step::write, 64, 1, kBulk)
                       .step(Step::cancel, 0, 0)
                       .step(Step::answer)
                       .step(Step::commit)
                       .step(Step::close)
                       .step(Step::goodbye));
  for (uint8_t kind = 0; kind < static_cast<uint8_t>(OfferKind::count); ++kind) {
    save(("offer-" + std::to_string(kind)).c_str(), Program(0, static_cast<OfferKind>(kind))
                                                        .step(Step::write, 64, 1, kBulk)
                                                        .times(2, Step::answer)
                                                        .step(Step::write, kLent, 8, 4096)
                                                        .step(Step::read, kLent, 0, 8192)
                                                        .step(Step::connect));
  }
}

}  // namespace
}  // namespace forebay::fuzz

int main(int argc, char** argv) {
  using namespace forebay;
  return FuzzProgram({"shared_fuzz", fuzz::play_shared, fuzz::make_corpus}).main(argc, argv);
}
