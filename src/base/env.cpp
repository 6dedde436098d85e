#include "base/env.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr EnvVariable kVariables[] = {
    {"TULLE_LOG", "debug|info|warning|error|off", "warning", "least level of log lines on stderr"},
    {"TULLE_THREADS", "integer", "all cores", "threads that a process may use, all ranks together"},
    {"TULLE_TIMEOUT_S", "seconds", "300", "longest wait of one rank for another"},
    {"TULLE_VIDEO_MODULE", "path", "beside the library", "shared object that writes MP4 files"},
    {"NO_COLOR", "any", "unset", "no colour and no bars in terminal output"},
};

const char* get(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

template <class T>
T number(const char* name, T fallback) {
  const char* text = get(name);
  if (*text == '\0') return fallback;
  T value{};
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0' || value < T{0}) {
    fail(ErrorCode::kInvalidArgument, "the environment variable {} is \"{}\": a number of at least 0 is needed", name,
         text);
  }
  return value;
}

Env read() {
  Env e;
  e.log_level = get("TULLE_LOG");
  e.threads = number<int>("TULLE_THREADS", 0);
  e.timeout_s = number<double>("TULLE_TIMEOUT_S", 300.0);
  e.video_module = get("TULLE_VIDEO_MODULE");
  e.no_color = *get("NO_COLOR") != '\0';
  e.path = get("PATH");
  return e;
}

}  // namespace

const Env& env() {
  static const Env e = read();
  return e;
}

std::span<const EnvVariable> env_variables() { return kVariables; }

}  // namespace tulle
