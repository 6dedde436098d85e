// Progress: a bar with time left on a terminal, one line every ten seconds elsewhere; nothing under two seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tulle {

class Progress {
 public:
  // `quiet` prints nothing at all (--json, tests).
  Progress(std::string label, std::int64_t total, bool quiet = false);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Marks `done` of `total`; `note` is shown behind the bar. Not thread-safe: call from one thread.
  void update(std::int64_t done, const std::string& note = {});
  void finish();

 private:
  void print(bool last);

  std::string label_, note_;
  std::int64_t total_, done_ = 0;
  bool quiet_, terminal_, shown_ = false, finished_ = false;
  std::chrono::steady_clock::time_point start_, last_print_;
};

// "1 m 40 s", "12 s", "0.8 s".
std::string human_seconds(double seconds);
// "1.5 GiB", "312 KiB".
std::string human_bytes(double bytes);

}  // namespace tulle
