#include "base/log.hpp"

#include <cstdio>
#include <mutex>

#include "base/env.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error", "off"};

LogLevel level_from_env() {
  const std::string& word = env().log_level;
  if (word.empty()) return LogLevel::kWarning;
  for (int i = 0; i < 5; ++i) {
    if (word == kNames[i]) return static_cast<LogLevel>(i);
  }
  fail(ErrorCode::kInvalidArgument, "TULLE_LOG is \"{}\": use debug, info, warning, error or off", word);
}

LogLevel least_level() {
  static const LogLevel level = level_from_env();
  return level;
}

struct Sink {
  std::mutex mutex;
  LogSink function;
};

Sink& sink() {
  static Sink s;
  return s;
}

}  // namespace

void set_log_sink(LogSink function) {
  const std::lock_guard lock(sink().mutex);
  sink().function = std::move(function);
}

bool log_enabled(LogLevel level) { return level >= least_level() && level != LogLevel::kOff; }

void log_line(LogLevel level, const std::string& line) {
  const std::lock_guard lock(sink().mutex);
  if (sink().function) return sink().function(level, line);
  fmt::print(stderr, "tulle {}: {}\n", kNames[static_cast<int>(level)], line);
}

}  // namespace tulle
