// What the vectorised scorers share; included once per instruction set.
// Multiplies and adds only, one after the other, and sums in fixed columns: every instruction set rounds alike.
#if defined(TULLE_SELECT_SCORE_SIMD) == defined(HWY_TARGET_TOGGLE)
#ifdef TULLE_SELECT_SCORE_SIMD
#undef TULLE_SELECT_SCORE_SIMD
#else
#define TULLE_SELECT_SCORE_SIMD
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "select/scorer.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kRows = 4;

using Floats = hn::CappedTag<float, kPanel>;
using Vec = hn::Vec<Floats>;

// exp(x) for x <= 0, relative error below 3e-7; 0 where e^x is below the smallest normal number.
HWY_INLINE Vec exp_of_negative(Vec x) {
  const Floats f;
  const hn::RebindToSigned<Floats> i32;
  const auto in_range = hn::Ge(x, hn::Set(f, -87.3f));
  const Vec safe = hn::Max(x, hn::Set(f, -87.3f));
  const Vec n = hn::Round(hn::Mul(safe, hn::Set(f, 1.44269504f)));
  // ln 2 in two parts: the first has few bits, so that n times it is exact.
  const Vec r = hn::Sub(hn::Sub(safe, hn::Mul(n, hn::Set(f, 0.693359375f))), hn::Mul(n, hn::Set(f, -2.12194440e-4f)));
  Vec p = hn::Set(f, 1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = hn::Add(hn::Mul(p, r), hn::Set(f, c));
  }
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(i32, n), hn::Set(i32, 127)));
  return hn::IfThenElseZero(in_range, hn::Mul(p, hn::BitCast(f, exponent)));
}

// Products of kRows query rows with one panel of keys: out[r * stride + c] = scale * q_r . k_c.
HWY_INLINE void panel_products(const float* const* q, const float* k, std::int64_t head_dim, float scale,
                               std::int64_t stride, float* out) {
  const Floats f;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(f));
  for (std::int64_t c = 0; c < kPanel; c += lanes) {
    Vec s0 = hn::Zero(f), s1 = s0, s2 = s0, s3 = s0;
    for (std::int64_t t = 0; t < head_dim; ++t) {
      const Vec key = hn::LoadU(f, k + t * kPanel + c);
      s0 = hn::Add(s0, hn::Mul(hn::Set(f, q[0][t]), key));
      s1 = hn::Add(s1, hn::Mul(hn::Set(f, q[1][t]), key));
      s2 = hn::Add(s2, hn::Mul(hn::Set(f, q[2][t]), key));
      s3 = hn::Add(s3, hn::Mul(hn::Set(f, q[3][t]), key));
    }
    const Vec factor = hn::Set(f, scale);
    hn::StoreU(hn::Mul(s0, factor), f, out + c);
    hn::StoreU(hn::Mul(s1, factor), f, out + stride + c);
    hn::StoreU(hn::Mul(s2, factor), f, out + 2 * stride + c);
    hn::StoreU(hn::Mul(s3, factor), f, out + 3 * stride + c);
  }
}

// The query sub-blocks [first, first + kRows), the last one again where there are fewer.
HWY_INLINE void row_pointers(const ScoreInput& in, std::int64_t first, const float** rows) {
  const std::int64_t last = static_cast<std::int64_t>(in.q_counts.size()) - 1;
  for (std::int64_t r = 0; r < kRows; ++r) rows[r] = in.q + std::min(first + r, last) * in.head_dim;
}

// Largest score of the keys that are there; NaN when any score is not finite.
HWY_INLINE float row_maximum(const float* row, std::span<const float> weights) {
  const Floats f;
  const Vec lowest = hn::Set(f, std::numeric_limits<float>::lowest());
  Vec best = lowest, taint = hn::Zero(f);
  for (std::size_t c = 0; c < weights.size(); c += hn::Lanes(f)) {
    const Vec s = hn::LoadU(f, row + c);
    const auto there = hn::Gt(hn::LoadU(f, weights.data() + c), hn::Zero(f));
    best = hn::Max(best, hn::IfThenElse(there, s, lowest));
    taint = hn::Add(taint, hn::Mul(s, hn::Zero(f)));  // 0 for finite s, NaN otherwise
  }
  return hn::GetLane(hn::MaxOfLanes(f, best)) + hn::GetLane(hn::SumOfLanes(f, taint));
}

// Replaces scores by weight * exp(score - maximum) and returns their sum, added up in kPanel fixed columns.
HWY_INLINE float to_mass(float* row, std::span<const float> weights, float maximum) {
  const Floats f;
  HWY_ALIGN float columns[kPanel] = {};
  const std::size_t lanes = hn::Lanes(f);
  for (std::size_t c = 0; c < weights.size(); c += lanes) {
    const Vec e = exp_of_negative(hn::Sub(hn::LoadU(f, row + c), hn::Set(f, maximum)));
    // Keys that are not there may lie above the maximum: their exponential is no number to multiply by 0.
    const Vec w = hn::LoadU(f, weights.data() + c);
    const Vec mass = hn::IfThenElseZero(hn::Gt(w, hn::Zero(f)), hn::Mul(e, w));
    hn::StoreU(mass, f, row + c);
    float* column = columns + c % static_cast<std::size_t>(kPanel);
    hn::Store(hn::Add(hn::Load(f, column), mass), f, column);
  }
  float sum = 0;
  for (float column : columns) sum += column;
  return sum;
}

HWY_INLINE void add_block_sums(const float* mass, std::int64_t subs, std::int64_t per_block, float share,
                               float* scores) {
  for (std::int64_t begin = 0; begin < subs; begin += per_block, ++scores) {
    float sum = 0;
    const std::int64_t end = std::min(subs, begin + per_block);
    for (std::int64_t j = begin; j < end; ++j) sum += mass[j];
    *scores += share * sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#endif
