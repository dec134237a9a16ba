#include "transport/shared_bytes.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "core/log.h"
#include "loop/epoll_loop.h"
#include "loop/marked.h"
#include "transport/fd_watch.h"
#include "transport/shared_offer.h"

namespace forebay {

namespace {

// The rings and who is told of them. Shared with the calls under way, because the user may destroy
// the stream inside any of them.
class Rings final : public EpollLoop::Poller,
                    public EpollLoop::Ready,
                    public std::enable_shared_from_this<Rings> {
 public:
  // `bell`: the server's eventfd. The server watches it, the client writes to it.
  Rings(std::shared_ptr<SharedRegion> region, bool server, Fd bell)
      : region_(std::move(region)),
        server_(server),
        bell_(std::move(bell)),
        reader_(server ? region_->to_server() : region_->to_client(),
                server ? region_->ring_to_server() : region_->ring_to_client()),
        writer_(server ? region_->to_client() : region_->to_server(),
                server ? region_->ring_to_client() : region_->ring_to_server()) {}

  ~Rings() {
    if (adopted_ && !is_marked(bell_.get())) bell_.release();  // it is not ours to close
  }

  const std::shared_ptr<SharedRegion>& region() const { return region_; }

  void attach(Loop& loop, ByteStream::User& user, int socket) {
    loop_ = &epoll_loop(loop);
    user_ = &user;
    socket_ = socket;
    // Edge-triggered: nobody needs to read what was written to it.
    if (server_) return loop_->watch(bell_.get(), EPOLLIN | EPOLLET, *this, false);
    loop_->adopt(bell_.get());
    adopted_ = is_marked(bell_.get());
  }
  void detach() {
    if (!loop_) return;
    if (server_) loop_->unwatch(bell_.get(), *this);
    loop_->forget(*this);
    loop_ = nullptr;
    user_ = nullptr;
    wants_bytes_ = wants_room_ = false;
  }

  ssize_t receive(std::span<iovec> space) {
    const ssize_t n = reader_.take(space);
    if (n > 0 && reader_.must_ring()) ring();
    if (!server_) loop_->set_crowd(reader_.crowd());
    return n < 0 && errno == EAGAIN && end_ ? (errno = *end_, *end_ == 0 ? 0 : -1) : n;
  }
  ssize_t send(std::span<iovec> bytes) {
    if (end_) return errno = EPIPE, -1;
    if (server_) writer_.say_crowd(loop_->crowd());
    const ssize_t n = writer_.put(bytes);
    // If it is to make room, at once.
    n > 0 ? tell() : turn_ended();
    return n;
  }
  void post(uint64_t bits) {
    if (!loop_ || end_) return;
    if (server_) writer_.say_crowd(loop_->crowd());
    writer_.post(bits);
    tell();
  }
  // An empty ring that is rung is news of news.
  void announce() {
    loop_->expect();
    turn_ended();
  }
  void turn_ended() override {
    if (writer_.must_ring()) ring();
  }
  void await_bytes() {
    wants_bytes_ = true;
    loop_->poll(*this);
  }
  void await_room() {
    wants_room_ = true;
    loop_->poll(*this);
  }
  // The socket has ended, with an errno or orderly (0).
  void ended(int code) {
    if (!end_) end_ = code;
    if (loop_) loop_->poll(*this);
  }

  bool poll() override {
    wake();
    const bool bytes = wants_bytes_ && (reader_.has_bytes() || end_);
    const bool posts = wants_bytes_ && reader_.has_posts();
    if (!posts && !bytes && !wants_room_) return false;
    const auto alive = shared_from_this();
    bool did = posts;
    if (posts) {
      if (!server_) loop_->set_crowd(reader_.crowd());
      user_->posted(reader_.take_posts());
    }
    if (user_ && bytes && wants_bytes_) {
      wants_bytes_ = false;
      did = true;
      user_->readable();
    }
    if (user_ && wants_room_ && (writer_.has_room() || end_)) {
      wants_room_ = false;
      did = true;
      user_->writable();
    }
    return did;
  }
  bool rest() override {
    resting_ = true;
    const bool no_bytes = !wants_bytes_ || (reader_.rest() && !end_);
    const bool no_room = !wants_room_ || (writer_.rest() && !end_);
    if (no_bytes && no_room) return true;
    wake();
    return false;
  }
  // The client's way: its news is the server's, and little else.
  bool sleep(Duration most) override {
    if (server_ || !resting_ || wants_room_ || !wants_bytes_ || !reader_.sleep(most)) return false;
    if (!reader_.has_bytes() && !reader_.has_posts()) loop_->expect();
    return true;
  }
  void interrupt() override { reader_.interrupt(); }
  void ready(uint32_t) override { rung(); }
  void rung() {
    const auto alive = shared_from_this();
    if (loop_) loop_->poll(*this);
    if (loop_ && !poll() && loop_) loop_->expect();
  }

 private:
  // The other side is woken when all that this turn has for it is there; if nobody runs the loop
  // just now, at once.
  void tell() { loop_->on_loop() ? loop_->tell_at_end(*this) : turn_ended(); }
  void wake() {
    if (!std::exchange(resting_, false)) return;
    reader_.wake();
    writer_.wake();
  }
  void ring() {
    if (server_) {
      // If it is full the client has not heard the bytes before.
      [[maybe_unused]] const ssize_t n = ::send(socket_, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (adopted_ && !is_marked(bell_.get())) {
      ended(EBADF);
    } else {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(bell_.get(), &one, sizeof one);
    }
  }

  const std::shared_ptr<SharedRegion> region_;
  const bool server_;
  Fd bell_;
  bool adopted_ = false;  // it has our mark (loop/marked.h)
  RingReader reader_;
  RingWriter writer_;
  EpollLoop* loop_ = nullptr;
  ByteStream::User* user_ = nullptr;
  int socket_ = -1;
  std::optional<int> end_;
  bool wants_bytes_ = false, wants_room_ = false;
  bool resting_ = false;
};

// A Unix socket that is, or may become, the lesser half of shared memory.
class SharedBytes final : public ByteStream, public FdUser {
 public:
  SharedBytes(Fd socket, uint64_t max_area)
      : parked_(std::move(socket)), server_(true), max_area_(max_area) {}
  SharedBytes(Fd socket, std::shared_ptr<Rings> rings)
      : parked_(std::move(socket)), rings_(std::move(rings)), undecided_(false) {}
  ~SharedBytes() override {
    if (rings_) rings_->detach();
  }

  void attach(Loop& loop, User& user) override {
    loop_ = &loop;
    user_ = &user;
    watch_.emplace(loop, std::move(parked_), *this);
    if (rings_) start_rings();
    if (undecided_) watch_->await_readable();  // the client waits for an answer to its offer
  }
  void detach() override {
    if (rings_) rings_->detach();
    parked_ = watch_->release();
    watch_.reset();
  }

  ssize_t receive(std::span<iovec> space) override {
    if (undecided_) return errno = EAGAIN, -1;
    if (broken_) return errno = *broken_, -1;
    if (rings_) return rings_->receive(space);
    msghdr message{};
    message.msg_iov = space.data();
    message.msg_iovlen = space.size();
    return ::recvmsg(watch_->fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  ssize_t send(std::span<iovec> bytes) override {
    if (rings_) return rings_->send(bytes);
    msghdr message{};
    message.msg_iov = bytes.data();
    message.msg_iovlen = bytes.size();
    return ::sendmsg(watch_->fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  bool calls_are_dear() const override { return !rings_; }
  void announce() override {
    if (rings_) rings_->announce();
  }
  void post(uint64_t bits) override {
    if (rings_) rings_->post(bits);
  }
  bool hand(int descriptor) override {
    // It rings, too.
    return rings_ && watch_ && shared::send_with(watch_->fd(), "", 1, {descriptor, -1}).has_value();
  }
  // It was sent before the frame that speaks of it.
  Fd take_handed(uint64_t inode) override {
    const auto is_it = [&](const Fd& fd) {
      struct stat st;
      return ::fstat(fd.get(), &st) == 0 && st.st_ino == inode;
    };
    for (;;) {
      const auto found = std::ranges::find_if(handed_, is_it);
      if (found != handed_.end()) {
        Fd it = std::move(*found);
        handed_.erase(found);
        return it;
      }
      if (!rings_ || !watch_ || take_rings() <= 0) return {};
    }
  }

  void await_readable() override {
    wants_bytes_ = undecided_;
    if (undecided_) return;
    rings_ ? rings_->await_bytes() : watch_->await_readable();
  }
  void await_writable() override { rings_ ? rings_->await_room() : watch_->await_writable(); }
  void defer() override { watch_->defer(); }
  void shut() override {
    if (rings_) rings_->detach();
    watch_->shut();
  }
  int descriptor() const override { return watch_ ? watch_->fd() : -1; }
  std::shared_ptr<SharedRegion> shared() const override {
    return rings_ ? rings_->region() : nullptr;
  }

 private:
  void readable() override {
    if (undecided_) return decide();
    if (!rings_) return user_->readable();
    // Rung, or the end.
    const ssize_t n = take_rings();
    if (n == 0) {
      rings_->ended(0);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      rings_->ended(errno);
    } else {
      watch_->await_readable();
    }
    rings_->rung();  // last: it may destroy us
  }
  void writable() override { user_->writable(); }
  void deferred() override { user_->deferred(); }

  // As recv. The server's end takes no descriptors: clients hand it none.
  ssize_t take_rings() {
    std::array<char, 256> rung;
    if (server_) return ::recv(watch_->fd(), rung.data(), rung.size(), MSG_DONTWAIT);
    shared::Received handed;
    const Result<size_t> n =
        shared::receive_some_with(watch_->fd(), rung.data(), rung.size(), handed);
    if (!n) return errno = n.error().code(), -1;
    for (Fd& fd : handed) {
      if (fd) handed_.push_back(std::move(fd));
      if (handed_.size() > kMostHanded) handed_.pop_front();
    }
    return static_cast<ssize_t>(*n);
  }

  void start_rings() {
    rings_->attach(*loop_, *user_, watch_->fd());
    watch_->await_readable();
  }

  // Does it begin with an offer?
  void decide() {
    char first;
    const ssize_t n = ::recv(watch_->fd(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return watch_->await_readable();
    undecided_ = false;
    if (n == 1 && first == shared::kMagic[0]) {
      if (auto taken = take_offer(); !taken) broken_ = taken.error().code();
    }
    if (!std::exchange(wants_bytes_, false)) return;
    broken_ ? user_->readable() : await_readable();
  }

  // An error if the client broke the rules; an offer that is merely refused is none.
  Result<void> take_offer() {
    shared::Offer offer;
    Result<shared::Received> memory = shared::receive_with(watch_->fd(), &offer, sizeof offer);
    if (!memory) return std::move(memory).error();
    shared::Answer answer;
    Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    Result<std::shared_ptr<SharedRegion>> region = adopt(std::move(*memory), offer);
    if (offer.magic != shared::kMagic) return Error(EPROTO);
    if (!bell) region = Error(errno, "no eventfd");
    if (!region) {
      log::info("a client's shared memory is refused: {}", region.error().message());
      answer.refused = region.error().code();
    }
    const auto sent =
        shared::send_with(watch_->fd(), &answer, sizeof answer, {region ? bell.get() : -1, -1});
    if (!sent || !region) return sent;
    (*region)->drop_descriptor();
    rings_ = std::make_shared<Rings>(std::move(*region), true, std::move(bell));
    start_rings();
    return {};
  }

  Result<std::shared_ptr<SharedRegion>> adopt(shared::Received memory,
                                              const shared::Offer& offer) const {
    if (!memory[0]) return Error(EINVAL, "no memory came with the offer");
    // Each goes through adopt(), which knows how to close what is no memory.
    Result<SharedRegion::Lent> lent = SharedRegion::Lent();
    if (memory[1]) lent = SharedPages::adopt(std::move(memory[1]), offer.lent);
    if (lent && *lent) (*lent)->drop_descriptor();
    auto region = SharedRegion::adopt(std::move(memory[0]), {offer.ring, offer.area},
                                      lent ? *lent : SharedRegion::Lent());
    if (!lent) return std::move(lent).error();
    if (region && (offer.area > max_area_ || offer.lent > max_area_)) {
      return Error(E2BIG, "the area is larger than the server allows");
    }
    return region;
  }

  Loop* loop_ = nullptr;
  User* user_ = nullptr;
  Fd parked_;  // while no loop watches it
  const bool server_ = false;
  std::optional<FdWatch> watch_;
  std::shared_ptr<Rings> rings_;
  bool undecided_ = true;     // the server's end, until the first byte comes
  bool wants_bytes_ = false;  // meanwhile
  std::optional<int> broken_;
  uint64_t max_area_ = 0;
  static constexpr size_t kMostHanded = 16;
  std::deque<Fd> handed_;
};

}  // namespace

std::unique_ptr<ByteStream> make_unix_server_bytes(Fd socket, uint64_t max_area) {
  return std::make_unique<SharedBytes>(std::move(socket), max_area);
}

std::unique_ptr<ByteStream> make_shared_client_bytes(Fd socket, Fd bell,
                                                     std::shared_ptr<SharedRegion> region) {
  return std::make_unique<SharedBytes>(
      std::move(socket), std::make_shared<Rings>(std::move(region), false, std::move(bell)));
}

}  // namespace forebay
