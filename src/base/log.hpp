// Log: levelled lines to one sink (stderr by default). Quiet by default: a library does not chat.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

namespace tulle {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

using LogSink = std::function<void(LogLevel, const std::string&)>;

// Replaces the sink; an empty function restores stderr. Thread-safe.
void set_log_sink(LogSink sink);

bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tulle
