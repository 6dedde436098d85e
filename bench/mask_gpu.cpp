// bench_mask_gpu: mask kernels at the size of all layers of Wan 2.1 14B at 720p, against a device-to-device copy of
// the same bytes in the same run. Records: one JSON object a line on stdout.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "mask/mask_ops.hpp"
#include "tests/gpu/device_array.hpp"
#include "tulle/version.hpp"

namespace {

using namespace tulle;

constexpr std::int64_t kLayers = 40, kHeads = 40, kRows = 591, kWords = 19;
constexpr int kRuns = 101;

struct Spread {
  double median, low, high;
};

// Milliseconds by device events, each run on its own, after a warm-up.
Spread time_of(const std::function<void()>& work) {
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "event");
  check_cuda(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int i = 0; i < kRuns + 5; ++i) {
    check_cuda(cudaEventRecord(begin), "record");
    work();
    check_cuda(cudaEventRecord(end), "record");
    check_cuda(cudaEventSynchronize(end), "synchronise");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (i >= 5) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return {times[kRuns / 2], times[kRuns / 10], times[kRuns - 1 - kRuns / 10]};
}

void record(const char* name, double bytes, const Spread& t, double copy_rate, const std::string& machine) {
  const double rate = bytes / t.median * 1e-6;
  fmt::print(
      "{{\"bench\":\"mask_gpu\",\"name\":\"{}\",\"metric\":\"bandwidth\",\"unit\":\"GB/s\",\"better\":\"higher\","
      "\"value\":{:.1f},\"spread\":[{:.1f},{:.1f}],\"n\":{},\"baseline\":\"device copy, bytes read and written\","
      "\"baseline_value\":{:.1f},\"ratio\":{:.3f},\"machine\":\"{}\",\"commit\":\"{}\",\"date\":\"{}\","
      "\"command\":\"bench_mask_gpu\"}}\n",
      name, rate, bytes / t.high * 1e-6, bytes / t.low * 1e-6, kRuns, copy_rate, rate / copy_rate, machine, commit(),
      [] { char d[16]; const std::time_t now = std::time(nullptr); std::strftime(d, sizeof d, "%F", std::gmtime(&now)); return std::string(d); }());
}

std::string machine_name() {
  cudaDeviceProp facts{};
  int driver = 0;
  check_cuda(cudaGetDeviceProperties(&facts, 0), "device");
  check_cuda(cudaDriverGetVersion(&driver), "driver");
  return fmt::format("{}, CUDA driver {}.{}", facts.name, driver / 1000, driver % 1000 / 10);
}

}  // namespace

int main() {
  const std::int64_t rows = kLayers * kHeads * kRows, words = rows * kWords;
  std::vector<std::uint32_t> host(static_cast<std::size_t>(words));
  std::mt19937 random(1);
  for (auto& w : host) w = static_cast<std::uint32_t>(random());
  DeviceArray<std::uint32_t> a(host), b(host), c(static_cast<std::size_t>(words));
  DeviceArray<std::int32_t> counts(static_cast<std::size_t>(rows));
  const std::string machine = machine_name();
  const double bytes = static_cast<double>(words) * 4;

  const Spread copy = time_of([&] {
    check_cuda(cudaMemcpyAsync(c.data(), a.data(), static_cast<std::size_t>(words) * 4, cudaMemcpyDeviceToDevice, nullptr), "copy");
  });
  const double copy_rate = 2 * bytes / copy.median * 1e-6;
  record("unite/wan14b_720p", 3 * bytes, time_of([&] { combine_masks_cuda(MaskCombine::kUnite, a.data(), b.data(), words, nullptr); }), copy_rate, machine);
  record("count/wan14b_720p", bytes + static_cast<double>(rows) * 4, time_of([&] { count_rows_cuda(b.data(), rows, kWords, counts.data(), nullptr); }), copy_rate, machine);
  return 0;
}
