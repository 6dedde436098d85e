#include "base/system.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>

namespace tulle {
namespace {

// The value behind `key` in a "key : value" file of /proc, or "".
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// Bytes the cgroup still allows, or the largest integer when there is no limit.
std::int64_t cgroup_room() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  std::int64_t limit = 0, used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, limit - used);
}

}  // namespace

std::string cpu_name() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown processor" : name;
}

int cpu_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::int64_t available_memory() {
  std::istringstream value(proc_value("/proc/meminfo", "MemAvailable"));
  std::int64_t kib = 0;
  value >> kib;
  return std::min(kib * 1024, cgroup_room());
}

std::int64_t resident_memory() {
  std::istringstream value(proc_value("/proc/self/status", "VmRSS"));
  std::int64_t kib = 0;
  value >> kib;
  return kib * 1024;
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

bool cpu_has(const char* flag) {
  std::istringstream flags(proc_value("/proc/cpuinfo", "flags"));
  for (std::string word; flags >> word;) {
    if (word == flag) return true;
  }
  return false;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", std::gmtime(&now));
  return text.data();
}

}  // namespace tulle
