#include "attend/soften.hpp"

#include <algorithm>
#include <bit>
#include <limits>

// As in kernel_cpu.cpp.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attend/soften.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attend/exp2-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kPanelKeys = 32;

// The nearest bf16 of weights, which are not negative; NaN stays NaN.
HWY_INLINE void store_rounded(V weights, std::uint16_t* to) {
  const DI d;
  const hn::Rebind<std::uint32_t, D> wide;
  const hn::Rebind<std::uint16_t, D> narrow;
  const VI bits = hn::BitCast(d, weights), odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const VI rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7fff)));
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(wide, rounded)))), narrow, to);
}

HWY_INLINE float row_top(const float* scores, std::size_t keys) {
  const D d;
  V top = hn::Load(d, scores);
  for (std::size_t i = kLanes; i < keys; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

HWY_INLINE void hide(std::span<const Panel> run, float* scores, float value) {
  for (const Panel& panel : run) {
    for (std::uint32_t left = ~panel.lanes; left != 0; left &= left - 1) scores[std::countr_zero(left)] = value;
    scores += kPanelKeys;
  }
}

HWY_INLINE void scale_row(float factor, float* row, std::int64_t n) {
  const D d;
  const V f = hn::Set(d, factor);
  for (std::int64_t i = 0; i < n; i += kLanes) hn::Store(hn::Mul(f, hn::Load(d, row + i)), d, row + i);
}

// Weights of one row, and their sums.
HWY_INLINE void weigh_row(const float* scores, std::size_t keys, float scale, float top, std::uint16_t* weights,
                          float* sums) {
  const D d;
  const V vscale = hn::Set(d, scale), vtop = hn::Set(d, top);
  for (std::size_t i = 0; i < keys; i += kSumLanes) {
    for (std::size_t j = 0; j < kSumLanes; j += kLanes) {
      const V weight = exp2_vector(hn::MulSub(hn::Load(d, scores + i + j), vscale, vtop));
      store_rounded(weight, weights + i + j);
      hn::Store(hn::Add(hn::Load(d, sums + j), weight), d, sums + j);
    }
  }
}

// A key that is not seen got the smallest weight there is.
HWY_INLINE void hide_weights(std::span<const Panel> run, std::uint16_t* weights) {
  for (const Panel& panel : run) {
    for (std::uint32_t left = ~panel.lanes; left != 0; left &= left - 1) weights[std::countr_zero(left)] = 0;
    weights += kPanelKeys;
  }
}

void soften_rows_target(const Softening& s) {
  const std::size_t keys = s.run.size() * kPanelKeys;
  const bool all_seen = std::ranges::all_of(s.run, [](const Panel& p) { return p.lanes == ~std::uint32_t{0}; });
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float *scores = s.scores + r * s.score_stride, *sums = s.lane_sums + r * kSumLanes;
    auto* weights = reinterpret_cast<std::uint16_t*>(s.weights + r * s.weight_stride);
    if (!all_seen) hide(s.run, scores, -std::numeric_limits<float>::infinity());
    const float before = s.top_log2[r], top = std::max(before, s.scale_log2 * row_top(scores, keys));
    s.top_log2[r] = top;
    if (top != before) {  // the first time `before` is -inf, and sums and out are 0
      float decay[kSumLanes] = {before - top};
      exp2_array(decay, decay, 1);
      scale_row(decay[0], sums, kSumLanes);
      scale_row(decay[0], s.out + r * s.out_dim, s.out_dim);
    }
    weigh_row(scores, keys, s.scale_log2, top, weights, sums);
    if (!all_seen) hide_weights(s.run, weights);
  }
}

}  // namespace tulle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle::cpu {

HWY_EXPORT(soften_rows_target);

void soften_rows(const Softening& s) { HWY_DYNAMIC_DISPATCH(soften_rows_target)(s); }

}  // namespace tulle::cpu
#endif
