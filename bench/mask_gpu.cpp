// bench_mask_gpu: mask kernels at the size of all layers of Wan 2.1 14B at 720p, against a device-to-device copy of
// the same bytes in the same run. --record FILE writes the records.
#include <cuda_runtime.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>

#include "base/file.hpp"
#include "base/json.hpp"
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

OrderedJson record(const char* name, double bytes, const Spread& t, double copy_rate, const std::string& machine) {
  const double rate = bytes / t.median * 1e-6;
  return {{"bench", "mask_gpu"},
          {"name", name},
          {"metric", "bandwidth"},
          {"unit", "GB/s"},
          {"better", "higher"},
          {"value", rate},
          {"spread", {bytes / t.high * 1e-6, bytes / t.low * 1e-6}},
          {"n", kRuns},
          {"baseline", "device-to-device copy, bytes read and written"},
          {"baseline_value", copy_rate},
          {"ratio", rate / copy_rate},
          {"machine", machine},
          {"commit", commit()},
          {"date", fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)))},
          {"command", "bench_mask_gpu --record FILE"}};
}

std::string machine_name() {
  cudaDeviceProp facts{};
  int driver = 0;
  check_cuda(cudaGetDeviceProperties(&facts, 0), "device");
  check_cuda(cudaDriverGetVersion(&driver), "driver");
  return fmt::format("{}, CUDA driver {}.{}", facts.name, driver / 1000, driver % 1000 / 10);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t rows = kLayers * kHeads * kRows, words = rows * kWords;
  std::vector<std::uint32_t> host(static_cast<std::size_t>(words));
  std::mt19937 random(1);
  for (auto& w : host) w = static_cast<std::uint32_t>(random());
  DeviceArray<std::uint32_t> a(host), b(host), c(static_cast<std::size_t>(words));
  DeviceArray<std::int32_t> counts(static_cast<std::size_t>(rows));
  const std::string machine = machine_name();
  const double bytes = static_cast<double>(words) * 4;

  const Spread copy = time_of([&] {
    check_cuda(cudaMemcpyAsync(c.data(), a.data(), c.size() * 4, cudaMemcpyDeviceToDevice, nullptr), "copy");
  });
  const Spread unite = time_of([&] { combine_masks_cuda(MaskCombine::kUnite, a.data(), b.data(), words, nullptr); });
  const Spread count = time_of([&] { count_rows_cuda(b.data(), rows, kWords, counts.data(), nullptr); });
  const double copy_rate = 2 * bytes / copy.median * 1e-6;
  const OrderedJson records = {
      record("unite/wan14b_720p", 3 * bytes, unite, copy_rate, machine),
      record("count/wan14b_720p", bytes + static_cast<double>(rows) * 4, count, copy_rate, machine)};
  fmt::print("{}\n", records.dump(1));
  if (argc == 3 && std::string_view(argv[1]) == "--record") write_file_atomic(argv[2], records.dump(1) + "\n");
  return 0;
}
