#include "transport/sim_transport.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "transport/byte_stream.h"
#include "transport/frame_connection.h"
#include "transport/shared_region.h"

namespace forebay {

namespace {

struct Link;

// One end of a link: what a FrameConnection sees as its socket.
class SimBytes final : public ByteStream {
 public:
  SimBytes(std::shared_ptr<Link> link, int side, std::shared_ptr<SharedRegion> region)
      : link_(std::move(link)), side_(side), region_(std::move(region)) {}
  ~SimBytes() override;

  void attach(Loop& loop, User& user) override;
  void detach() override;
  ssize_t receive(std::span<iovec> space) override;
  ssize_t send(std::span<iovec> bytes) override;
  void post(uint64_t bits) override;
  void await_readable() override;
  void await_writable() override;
  void defer() override;
  void shut() override;
  std::shared_ptr<SharedRegion> shared() const override { return region_; }

 private:
  std::shared_ptr<Link> link_;
  int side_;
  const std::shared_ptr<SharedRegion> region_;  // null: none
};

// The bytes on their way in one direction, and whether their receiver has heard of an end.
struct Pipe {
  struct Piece {
    Time arrives;
    std::string bytes;
  };
  std::deque<Piece> pieces;
  uint64_t bytes = 0;
  size_t front_done = 0;  // of the first piece
  Time last;              // when the newest piece arrives
};

struct End {
  std::string host;
  ByteStream::User* user = nullptr;
  std::shared_ptr<bool> bound;  // false once the calls under way are void
  bool awaits_readable = false, awaits_writable = false;
  bool shut = false;
  bool heard_cut = false;
};

}  // namespace

struct SimNetwork::Impl : std::enable_shared_from_this<SimNetwork::Impl> {
  Impl(SimLoop& l, uint64_t seed, SimOptions o) : loop(l), random(seed), options(o) {}

  struct Bound {
    std::string host;
    Peer identity;
    Transport::Accept* accept;
  };

  SimLoop& loop;
  std::mt19937_64 random;
  SimOptions options;
  std::map<std::string, std::shared_ptr<Bound>> listeners;
  std::set<std::string> partitioned;
  std::vector<std::weak_ptr<Link>> links;

  uint64_t below(uint64_t n) { return random() % n; }
  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random) < p; }
  Duration delay() {
    const auto span = static_cast<uint64_t>((options.delay_max - options.delay_min).count());
    return options.delay_min + Duration(below(span + 1));
  }
  bool cut_off(const std::string& host) const { return partitioned.contains(host); }
  std::vector<std::shared_ptr<Link>> alive();
};

namespace {

struct Link : std::enable_shared_from_this<Link> {
  explicit Link(SimNetwork::Impl& n) : keep(n.shared_from_this()), network(n) {}

  // Dropped tasks of the loop may be the last to hold a link.
  std::shared_ptr<SimNetwork::Impl> keep;
  SimNetwork::Impl& network;
  std::array<End, 2> ends;
  std::array<Pipe, 2> pipes;  // pipes[s] carries what side s sends
  bool cut = false;
  bool silent = false;

  bool touches(const std::string& host) const {
    return ends[0].host == host || ends[1].host == host;
  }
  bool alive() const { return !cut && !(ends[0].shut && ends[1].shut); }

  void put(int side, std::string bytes);
  void put_piece(Pipe& pipe, int to, std::string bytes);
  void arrived(int to);
  bool readable(int side) const;
  bool writable(int side) const;
  void wake(int side);
  void do_cut();
};

// Splits what was sent into pieces that arrive one after the other.
void Link::put(int side, std::string bytes) {
  Pipe& pipe = pipes[side];
  pipe.bytes += bytes.size();
  const uint64_t pieces = 1 + network.below(std::max(1u, network.options.pieces_max));
  for (uint64_t left = pieces; left > 1 && bytes.size() > 1; --left) {
    const size_t n = 1 + network.below(bytes.size() - 1);
    put_piece(pipe, 1 - side, bytes.substr(0, n));
    bytes.erase(0, n);
  }
  put_piece(pipe, 1 - side, std::move(bytes));
}

// An empty piece is the end of the stream.
void Link::put_piece(Pipe& pipe, int to, std::string bytes) {
  pipe.last = std::max(pipe.last, network.loop.now() + network.delay());
  pipe.pieces.push_back({pipe.last, std::move(bytes)});
  network.loop.after(pipe.last - network.loop.now(),
                     [link = shared_from_this(), to] { link->arrived(to); });
}

void Link::arrived(int to) {
  if (cut || silent) return;
  if (network.chance(network.options.cut_chance)) return do_cut();
  wake(to);
}

bool Link::readable(int side) const {
  const Pipe& pipe = pipes[1 - side];
  if (ends[side].heard_cut) return true;
  return !silent && !pipe.pieces.empty() && pipe.pieces.front().arrives <= network.loop.now();
}

bool Link::writable(int side) const {
  return ends[side].heard_cut || pipes[side].bytes <= network.options.window / 2;
}

// Calls back whoever waits at this end for what is so now; from the loop, as a reactor would.
void Link::wake(int side) {
  End& end = ends[side];
  if (end.awaits_readable && readable(side)) {
    end.awaits_readable = false;
    network.loop.post([link = shared_from_this(), side, bound = end.bound] {
      if (*bound && !link->ends[side].shut) link->ends[side].user->readable();
    });
  }
  if (end.awaits_writable && writable(side)) {
    end.awaits_writable = false;
    network.loop.post([link = shared_from_this(), side, bound = end.bound] {
      if (*bound && !link->ends[side].shut) link->ends[side].user->writable();
    });
  }
}

void Link::do_cut() {
  if (cut) return;
  cut = true;
  for (int side : {0, 1}) {
    pipes[side].pieces.clear();
    pipes[side].front_done = 0;
    network.loop.after(network.delay(), [link = shared_from_this(), side] {
      link->ends[side].heard_cut = true;
      link->wake(side);
    });
  }
}

SimBytes::~SimBytes() {
  shut();
  detach();
}

void SimBytes::attach(Loop&, User& user) {
  End& end = link_->ends[side_];
  end.user = &user;
  end.bound = std::make_shared<bool>(true);
}

void SimBytes::detach() {
  End& end = link_->ends[side_];
  if (end.bound) *end.bound = false;
  end.user = nullptr;
  end.awaits_readable = end.awaits_writable = false;
}

ssize_t fail(int code) {
  errno = code;
  return -1;
}

ssize_t SimBytes::receive(std::span<iovec> space) {
  Pipe& pipe = link_->pipes[1 - side_];
  if (link_->ends[side_].heard_cut) return fail(ECONNRESET);
  if (!link_->readable(side_)) return fail(EAGAIN);
  if (pipe.pieces.front().bytes.empty()) return 0;
  ssize_t got = 0;
  for (iovec& v : space) {
    for (size_t done = 0; done < v.iov_len && link_->readable(side_);) {
      Pipe::Piece& piece = pipe.pieces.front();
      if (piece.bytes.empty()) break;
      const size_t n = std::min(v.iov_len - done, piece.bytes.size() - pipe.front_done);
      std::memcpy(static_cast<char*>(v.iov_base) + done, piece.bytes.data() + pipe.front_done, n);
      done += n;
      got += n;
      pipe.front_done += n;
      if (pipe.front_done == piece.bytes.size()) {
        pipe.pieces.pop_front();
        pipe.front_done = 0;
      }
    }
  }
  pipe.bytes -= got;
  link_->wake(1 - side_);
  return got;
}

ssize_t SimBytes::send(std::span<iovec> bytes) {
  Pipe& pipe = link_->pipes[side_];
  if (link_->ends[side_].heard_cut) return fail(EPIPE);
  const uint64_t window = link_->network.options.window;
  std::string taken;
  for (const iovec& v : bytes) {
    const uint64_t room = window - std::min(window, pipe.bytes + taken.size());
    const size_t n = std::min<uint64_t>(v.iov_len, room);
    taken.append(static_cast<const char*>(v.iov_base), n);
  }
  if (taken.empty()) return fail(EAGAIN);
  const auto n = static_cast<ssize_t>(taken.size());
  const bool swallowed = link_->cut || link_->ends[1 - side_].shut;
  if (swallowed) return n;  // the sender does not know yet
  link_->put(side_, std::move(taken));
  return n;
}

// By a way of its own: before or after what was sent earlier.
void SimBytes::post(uint64_t bits) {
  if (!region_ || link_->cut || link_->ends[1 - side_].shut) return;
  link_->network.loop.after(link_->network.delay(), [link = link_, to = 1 - side_, bits] {
    const End& end = link->ends[to];
    if (!link->cut && !link->silent && !end.shut && end.user) end.user->posted(bits);
  });
}

void SimBytes::await_readable() {
  link_->ends[side_].awaits_readable = true;
  link_->wake(side_);
}

void SimBytes::await_writable() {
  link_->ends[side_].awaits_writable = true;
  link_->wake(side_);
}

void SimBytes::defer() {
  link_->network.loop.post([link = link_, side = side_, bound = link_->ends[side_].bound] {
    if (*bound) link->ends[side].user->deferred();
  });
}

void SimBytes::shut() {
  End& end = link_->ends[side_];
  if (std::exchange(end.shut, true)) return;
  if (link_->cut) return;
  link_->put_piece(link_->pipes[side_], 1 - side_, {});
}

}  // namespace

std::vector<std::shared_ptr<Link>> SimNetwork::Impl::alive() {
  std::vector<std::shared_ptr<Link>> out;
  std::erase_if(links, [](const std::weak_ptr<Link>& l) { return l.expired(); });
  for (const auto& weak : links) {
    if (auto link = weak.lock(); link && link->alive()) out.push_back(std::move(link));
  }
  return out;
}

namespace {

class SimListener final : public Listener {
 public:
  SimListener(SimNetwork::Impl& network, Address address, std::string host, Peer identity,
              Transport::Accept accept)
      : network_(network), address_(std::move(address)), accept_(std::move(accept)) {
    bound_ = std::make_shared<SimNetwork::Impl::Bound>();
    *bound_ = {std::move(host), std::move(identity), &accept_};
    network_.listeners[address_.host] = bound_;
  }
  ~SimListener() override {
    const auto it = network_.listeners.find(address_.host);
    if (it != network_.listeners.end() && it->second == bound_) network_.listeners.erase(it);
  }
  const Address& address() const override { return address_; }

 private:
  SimNetwork::Impl& network_;
  const Address address_;
  Transport::Accept accept_;
  std::shared_ptr<SimNetwork::Impl::Bound> bound_;
};

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimNetwork::Impl> network, std::string host, Peer identity,
               uint64_t shared_area)
      : network_(std::move(network)),
        host_(std::move(host)),
        identity_(std::move(identity)),
        shared_area_(shared_area) {}

  Result<std::unique_ptr<Listener>> listen(const Address& address, Loop&, Accept accept) override {
    if (address.kind != Address::Kind::simulated) {
      return Error(EAFNOSUPPORT, address.text() + ": not a simulated address");
    }
    if (network_->listeners.contains(address.host)) {
      return Error(EADDRINUSE, address.text() + ": a server listens there already");
    }
    return std::unique_ptr<Listener>(
        std::make_unique<SimListener>(*network_, address, host_, identity_, std::move(accept)));
  }

  void connect(const Address& address, Loop& loop, Duration timeout, Connected done) override;
  void lend(std::shared_ptr<SharedPages> memory) override { lent_ = std::move(memory); }

 private:
  std::shared_ptr<SimNetwork::Impl> network_;
  const std::string host_;
  const Peer identity_;
  const uint64_t shared_area_;
  SharedRegion::Lent lent_;
};

// The client's and the server's view of memory that they share, of nothing if `area` is 0. Two
// mappings, because the client may exchange the pages under its own.
using Views = std::array<std::shared_ptr<SharedRegion>, 2>;
Views share(uint64_t area, const SharedRegion::Lent& lent) {
  if (area == 0) return {};
  SharedRegion::Lent seen;
  if (lent) {
    seen = SharedPages::adopt(Fd(::dup(lent->descriptor())), lent->bytes().size()).value();
    seen->drop_descriptor();
  }
  const SharedRegion::Layout layout{SharedRegion::kMinRing, area};
  Views views;
  views[0] = SharedRegion::create(layout, lent).value();
  views[1] = SharedRegion::adopt(Fd(::dup(views[0]->descriptor())), layout, seen).value();
  for (const auto& view : views) view->drop_descriptor();
  return views;
}

// A connect under way: the request travels, then the answer.
struct SimAttempt : std::enable_shared_from_this<SimAttempt> {
  SimAttempt(SimNetwork::Impl& n, Loop& l) : keep(n.shared_from_this()), network(n), loop(l) {}

  std::shared_ptr<SimNetwork::Impl> keep;
  SimNetwork::Impl& network;
  Loop& loop;
  Address address;
  std::string host;
  Peer identity;
  uint64_t shared_area = 0;
  SharedRegion::Lent lent;
  Transport::Connected done;
  Loop::TimerId deadline = 0;

  void reach();
  void answer(Result<std::unique_ptr<Connection>> result);
};

void SimAttempt::reach() {
  if (network.cut_off(host)) return;
  const auto it = network.listeners.find(address.host);
  if (it == network.listeners.end()) {
    Error refused(ECONNREFUSED,
                  address.text() + ": nobody listens there; forebay start starts a server");
    network.loop.after(network.delay(),
                       [self = shared_from_this(), refused] { self->answer(refused); });
    return;
  }
  const auto bound = it->second;
  if (network.cut_off(bound->host)) return;
  auto link = std::make_shared<Link>(network);
  link->ends[0].host = host;
  link->ends[1].host = bound->host;
  network.links.push_back(link);
  Views views = share(shared_area, lent);
  auto ours = std::make_shared<std::unique_ptr<Connection>>(std::make_unique<FrameConnection>(
      loop, std::make_unique<SimBytes>(link, 0, std::move(views[0])), bound->identity));
  network.loop.after(network.delay(),
                     [self = shared_from_this(), ours] { self->answer(std::move(*ours)); });
  (*bound->accept)(std::make_unique<FrameConnection>(
      loop, std::make_unique<SimBytes>(std::move(link), 1, std::move(views[1])), identity));
}

void SimAttempt::answer(Result<std::unique_ptr<Connection>> result) {
  if (!done) return;  // too late
  network.loop.cancel(deadline);
  std::exchange(done, {})(std::move(result));
}

void SimTransport::connect(const Address& address, Loop& loop, Duration timeout, Connected done) {
  auto attempt = std::make_shared<SimAttempt>(*network_, loop);
  attempt->address = address;
  attempt->host = host_;
  attempt->identity = identity_;
  attempt->shared_area = shared_area_;
  attempt->lent = lent_;
  attempt->done = std::move(done);
  attempt->deadline = loop.after(timeout, [attempt] {
    attempt->answer(Error(ETIMEDOUT, attempt->address.text() + ": no answer to a connect"));
  });
  loop.after(network_->delay(), [attempt] { attempt->reach(); });
}

}  // namespace

SimNetwork::SimNetwork(SimLoop& loop, uint64_t seed, SimOptions options)
    : impl_(std::make_shared<Impl>(loop, seed, options)) {}

SimNetwork::~SimNetwork() = default;

std::unique_ptr<Transport> SimNetwork::transport(std::string host, uint64_t shared_area) {
  Peer identity;
  identity.caller = this_process_caller();
  identity.where = "sim " + host;
  return transport(std::move(host), std::move(identity), shared_area);
}

std::unique_ptr<Transport> SimNetwork::transport(std::string host, Peer identity,
                                                 uint64_t shared_area) {
  return std::make_unique<SimTransport>(impl_, std::move(host), std::move(identity), shared_area);
}

bool SimNetwork::cut() {
  const auto links = impl_->alive();
  if (links.empty()) return false;
  links[impl_->below(links.size())]->do_cut();
  return true;
}

void SimNetwork::cut(const std::string& host) {
  for (const auto& link : impl_->alive()) {
    if (link->touches(host)) link->do_cut();
  }
}

void SimNetwork::kill(const std::string& host) {
  std::erase_if(impl_->listeners, [&](const auto& entry) { return entry.second->host == host; });
  cut(host);
}

void SimNetwork::partition(const std::string& host) {
  impl_->partitioned.insert(host);
  for (const auto& link : impl_->alive()) link->silent = link->silent || link->touches(host);
}

void SimNetwork::heal(const std::string& host) {
  impl_->partitioned.erase(host);
  for (const auto& link : impl_->alive()) {
    if (link->silent && link->touches(host)) link->do_cut();
  }
}

void SimNetwork::set_cut_chance(double chance) {
  impl_->options.cut_chance = chance;
}

size_t SimNetwork::connections() const {
  return impl_->alive().size();
}

}  // namespace forebay
