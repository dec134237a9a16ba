#include "client/link.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

namespace forebay {

namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::seconds(1);

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return {};
  return name;
}

// A server that is starting, stopping or full may take us a moment later.
bool passing(const Error& refusal) {
  switch (refusal.code()) {
    case EAGAIN:
    case EBUSY:
    case ESHUTDOWN:
    case EUSERS:
      return true;
    default:
      return false;
  }
}

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

Link::Link(Loop& loop, Transport& transport, const RemoteOptions& options, User& user, bool patient)
    : loop_(loop), transport_(transport), options_(options), user_(user), patient_(patient) {}

Link::~Link() {
  clear_timer();
  descriptor_ = -1;
}

void Link::want() {
  if (state_ != State::idle && state_ != State::pausing) return;
  clear_timer();
  outage_start_ = loop_.now();
  backoff_ = Duration::zero();
  attempt();
}

void Link::send(std::string head, Memory payload, Connection::Sent sent) {
  FOREBAY_ASSERT(up());
  connection_->send(std::move(head), std::move(payload), std::move(sent));
}

void Link::leave() {
  if (up()) connection_->send(wire::encode_goodbye("done"));
}

uint64_t Link::unsent() const {
  return up() ? connection_->unsent() : 0;
}

void Link::attempt() {
  state_ = State::connecting;
  Result<Address> address = options_.address();
  std::weak_ptr<Link*> alive = alive_;
  if (!address) {
    address_.clear();
    // From the loop, as every answer: those who hear of it may want the connection again.
    return loop_.post([alive, why = address.error()] {
      if (const auto self = alive.lock()) (*self)->failed(why);
    });
  }
  address_ = address->text();
  transport_.connect(*address, loop_, options_.connect_timeout, [alive](auto connection) {
    const auto self = alive.lock();
    if (!self) return;
    // A server that has taken our key before is merely on its way up or down.
    if (!connection && connection.error().code() == EACCES && (*self)->connects_ == 0) {
      return (*self)->turned_away(connection.error());
    }
    if (!connection) return (*self)->failed(connection.error());
    (*self)->connected(std::move(connection).value());
  });
}

void Link::connected(std::unique_ptr<Connection> connection) {
  connection_ = std::move(connection);
  remember_socket();
  farewell_ = written_ = false;
  progress_ = false;
  refusal_.reset();
  state_ = State::greeting;
  connection_->start(*this);
  greet();
  set_timer(options_.connect_timeout,
            [this] { connection_->close(Error(ETIMEDOUT, "the server does not answer hello")); });
}

void Link::remember_socket() {
  const int fd = connection_->descriptor();
  struct stat st;
  if (fd < 0 || ::fstat(fd, &st) != 0) return;
  device_ = st.st_dev;
  inode_ = st.st_ino;
  descriptor_ = fd;
}

int Link::descriptor() const {
  const int fd = descriptor_;
  struct stat st;
  if (fd < 0 || ::fstat(fd, &st) != 0) return -1;
  return st.st_dev == device_ && st.st_ino == inode_ ? fd : -1;
}

void Link::greet() {
  self_ = this_process_caller();
  wire::Hello hello;
  hello.export_name = options_.export_name;
  hello.session = session_;
  hello.session_key = session_key_;
  hello.host = host_name();
  hello.program = options_.program;
  hello.job = options_.job;
  hello.pid = static_cast<uint32_t>(::getpid());
  hello.chunk = options_.chunk;
  if (const RelayIdentity* relay = options_.relay.get()) {
    hello.relay = relay->self;
    hello.home = relay->home;
    hello.servers = relay->servers;
    hello.root = relay->root;
  }
  connection_->send(wire::encode(hello));
}

Result<void> Link::welcomed(std::span<const std::byte> message) {
  Result<wire::Welcome> welcome = wire::decode_welcome(message);
  if (!welcome) return std::move(welcome).error();
  if (welcome->slots == 0 || welcome->chunk == 0) {
    return Error(EPROTO, "the server's welcome gives no slots or no chunk size");
  }
  const bool resumed = session_ != 0 && welcome->resumed && welcome->session == session_;
  clear_timer();
  session_ = welcome->session;
  session_key_ = welcome->session_key;
  state_ = State::up;
  patient_ = true;
  up_since_ = loop_.now();
  ++connects_;
  user_.on_up(*welcome, resumed);
  return {};
}

Result<Memory> Link::on_message(const wire::FrameHeader& header,
                                std::span<const std::byte> message) {
  Result<Memory> taken = take(header, message);
  if (!taken) user_.on_parting();
  return taken;
}

Result<Memory> Link::take(const wire::FrameHeader& header, std::span<const std::byte> message) {
  if (header.type == wire::FrameType::refused) {
    Result<wire::Refused> refusal = wire::decode_refused(message);
    if (!refusal) return std::move(refusal).error();
    refusal_ = refusal->why;
    return refusal->why;  // the server closes; so do we
  }
  if (state_ == State::greeting) {
    if (header.type != wire::FrameType::welcome || header.payload_size != 0) {
      return Error(EPROTO, "the server answered hello with something else");
    }
    if (Result<void> ok = welcomed(message); !ok) return std::move(ok).error();
    return Memory{};
  }
  if (header.type == wire::FrameType::goodbye) {
    Result<wire::Goodbye> goodbye = wire::decode_goodbye(message);
    if (!goodbye) return std::move(goodbye).error();
    farewell_ = true;
    written_ = goodbye->written;
    return Error(ESHUTDOWN, "the server is stopping");
  }
  Result<Memory> taken = user_.on_frame(header, message);
  if (taken) progress_ = true;
  return taken;
}

void Link::on_posts(uint64_t bits) {
  if (!up()) return;
  progress_ = true;
  user_.on_posts(bits);
}

void Link::on_closed(const Error& why) {
  const bool was_up = state_ == State::up;
  const bool lived = was_up && loop_.now() - up_since_ > options_.connect_timeout;
  clear_timer();
  descriptor_ = -1;
  connection_.reset();
  state_ = State::closing;  // whoever wants it again in on_down() is served below
  if (farewell_) session_ = 0;
  if (was_up) user_.on_down(farewell_, written_);

  if (!was_up && refusal_ && !passing(*refusal_)) {
    return give_up(Error(*refusal_).at(fmt::format("server at {}", address_)));
  }
  // A connection that breaks each time before it has brought anything is still the same outage.
  if (was_up && (progress_ || lived)) {
    outage_start_ = loop_.now();
    backoff_ = Duration::zero();
  }
  failed(refusal_ ? *refusal_ : why);
}

// One of the two has another key, or none: trying again would not help.
void Link::turned_away(const Error& why) {
  state_ = State::idle;
  if (user_.waiting()) give_up(Error(EACCES, "cannot reach the server at " + why.what()));
}

void Link::failed(const Error& why) {
  state_ = State::idle;
  if (!user_.waiting()) return;
  const Duration left = options_.retry_for - (loop_.now() - outage_start_);
  if (!patient_ || left <= Duration::zero()) return give_up(unreachable(why));
  log::debug("server at {}: {}; trying again", address_, why.message());
  pause(left);
}

void Link::pause(Duration most) {
  state_ = State::pausing;
  const Duration d = std::min(backoff_, most);
  backoff_ = std::clamp(backoff_ * 2, kFirstPause, kLongestPause);
  set_timer(d, [this] { attempt(); });
}

void Link::give_up(const Error& why) {
  state_ = State::idle;
  session_ = 0;
  session_key_.clear();
  patient_ = false;
  user_.on_give_up(why);
}

Error Link::unreachable(const Error& why) const {
  const int code = why.code() == ETIMEDOUT ? ETIMEDOUT : ENOTCONN;
  const std::string tried =
      patient_ ? fmt::format(" (tried for {:g} s)", seconds(options_.retry_for)) : std::string();
  // Whoever finds no address says why in a whole sentence.
  if (address_.empty()) return Error(code, why.what() + tried);
  // A transport's error begins with the address.
  const std::string at = why.what().starts_with(address_) ? "" : address_ + ": ";
  return Error(code, fmt::format("cannot reach the server at {}{}{}", at, why.message(), tried));
}

void Link::set_timer(Duration d, Task then) {
  FOREBAY_ASSERT(!timer_);
  timer_ = loop_.after(d, [this, then = std::make_unique<Task>(std::move(then))] {
    timer_.reset();
    (*then)();
  });
}

void Link::clear_timer() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

}  // namespace forebay
