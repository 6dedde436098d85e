#include "base/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/env.hpp"

namespace tulle {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSilentSeconds = 2.0;
constexpr int kBarWidth = 28;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string bar(double fraction) {
  const int full = static_cast<int>(fraction * kBarWidth);
  return std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarWidth - full), '.');
}

}  // namespace

std::string human_seconds(double s) {
  if (s < 10) return fmt::format("{:.1f} s", s);
  if (s < 60) return fmt::format("{:.0f} s", s);
  const auto whole = static_cast<long>(s + 0.5);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

std::string human_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 || bytes >= 100 ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                                   : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

Progress::Progress(std::string label, std::int64_t total, bool quiet)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(1, total)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0 && !env().no_color),
      start_(Clock::now()),
      last_print_(start_) {}

Progress::~Progress() { finish(); }

void Progress::update(std::int64_t done, const std::string& note) {
  done_ = std::min(done, total_);
  note_ = note;
  const auto now = Clock::now();
  if (seconds(now - start_) < kSilentSeconds) return;
  if (shown_ && seconds(now - last_print_) < (terminal_ ? 0.1 : 10.0)) return;
  last_print_ = now;
  print(false);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (shown_) print(true);
}

void Progress::print(bool last) {
  if (quiet_) return;
  shown_ = true;
  const double spent = seconds(Clock::now() - start_);
  const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
  const std::string left =
      last || done_ == 0 ? human_seconds(spent) : human_seconds(spent / fraction - spent) + " left";
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{:<10} [{}] {}/{}  {}  {}{}", label_, bar(fraction), done_, total_, left, note_,
               last ? "\n" : "");
  } else {
    fmt::print(stderr, "{}: {}/{}, {}{}{}\n", label_, done_, total_, left, note_.empty() ? "" : ", ", note_);
  }
  std::fflush(stderr);
}

}  // namespace tulle
