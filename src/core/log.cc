#include "core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace forebay::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("forebay", std::move(sink));
  logger->set_level(spdlog::level::trace);  // enabled() decides
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ [%P] %v");
  logger->flush_on(spdlog::level::debug);
  return logger;
}

// The one piece of process-wide state: where a process writes its lines is a fact of the process.
struct Sink {
  std::atomic<Level> level{Level::warn};
  std::shared_ptr<spdlog::logger> logger =
      make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
};

// Never destroyed, so that threads which outlive main() may still log.
Sink& sink() {
  static Sink* const one = new Sink;
  return *one;
}

}  // namespace

Result<void> init(Level level, const std::string& path) {
  try {
    if (path.empty()) {
      sink().logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    } else {
      sink().logger = make_logger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    }
  } catch (const spdlog::spdlog_ex& e) {
    const int code = errno != 0 ? errno : EIO;
    return Error(code, fmt::format("cannot write the log file {}", path));
  }
  sink().level.store(level, std::memory_order_relaxed);
  return {};
}

bool enabled(Level level) {
  return level != Level::off && level >= sink().level.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view line) {
  sink().logger->log(to_spdlog(level), line);
}

}  // namespace forebay::log
