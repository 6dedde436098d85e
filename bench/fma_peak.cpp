#include "fma_peak.hpp"

#include <atomic>
#include <cstdint>

#include "base/system.hpp"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fma_peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tulle::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // latency 4 x 2 units needs 8; 12 are what the kernel has

// Runs `count` rounds of kChains multiply-adds; returns the FLOPs done. The sum goes out, so that none can be left
// away.
double multiply_add(std::int64_t count, float& out) {
  const hn::CappedTag<float, 16> d;
  hn::Vec<decltype(d)> chain[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, 0.01f * static_cast<float>(i));
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  for (std::int64_t n = 0; n < count; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], x, y);
  }
  for (int i = 1; i < kChains; ++i) chain[0] = hn::Add(chain[0], chain[i]);
  out = hn::GetLane(hn::SumOfLanes(d, chain[0]));
  return 2.0 * kChains * static_cast<double>(count) * static_cast<double>(hn::Lanes(d));
}

}  // namespace tulle::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle::bench {

HWY_EXPORT(multiply_add);

double fma_peak_flops(const Threads& threads) {
  constexpr std::int64_t kRounds = 250'000;
  constexpr std::int64_t kPieces = 16;  // a thread; small enough that threads finish together
  std::atomic<double> flops{0};
  std::atomic<float> sink{0};
  const double begin = now_seconds();
  threads.parallel_for(threads.width() * kPieces, [&](std::int64_t) {
    float sum = 0;
    flops.fetch_add(HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, sum));
    sink.store(sum);
  });
  return flops.load() / (now_seconds() - begin);
}

}  // namespace tulle::bench
#endif
