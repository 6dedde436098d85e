// The pooled softmax score, compiled once per instruction set. The matrix of sub-block scores never exists as a whole:
// a group of kRows query sub-blocks at a time is scored, normalised and summed into block scores.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/pooled_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "select/scorer.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kRows = 4;

using Floats = hn::CappedTag<float, kPanel>;
using Vec = hn::Vec<Floats>;

// exp(x) for x <= 0, relative error below 3e-7; 0 where e^x is below the smallest normal number. Multiplies and adds
// only, one after the other, so that every instruction set rounds alike.
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
HWY_INLINE void panel_products(const float* const* q, const float* k, const ScoreInput& in, std::int64_t stride,
                               float* out) {
  const Floats f;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(f));
  for (std::int64_t c = 0; c < kPanel; c += lanes) {
    Vec s0 = hn::Zero(f), s1 = s0, s2 = s0, s3 = s0;
    for (std::int64_t t = 0; t < in.head_dim; ++t) {
      const Vec key = hn::LoadU(f, k + t * kPanel + c);
      s0 = hn::Add(s0, hn::Mul(hn::Set(f, q[0][t]), key));
      s1 = hn::Add(s1, hn::Mul(hn::Set(f, q[1][t]), key));
      s2 = hn::Add(s2, hn::Mul(hn::Set(f, q[2][t]), key));
      s3 = hn::Add(s3, hn::Mul(hn::Set(f, q[3][t]), key));
    }
    const Vec scale = hn::Set(f, in.scale);
    hn::StoreU(hn::Mul(s0, scale), f, out + c);
    hn::StoreU(hn::Mul(s1, scale), f, out + stride + c);
    hn::StoreU(hn::Mul(s2, scale), f, out + 2 * stride + c);
    hn::StoreU(hn::Mul(s3, scale), f, out + 3 * stride + c);
  }
}

// Largest score of the keys that are there; NaN when any score is not finite.
float row_maximum(const float* row, std::span<const float> weights) {
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
float to_mass(float* row, std::span<const float> weights, float maximum) {
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

void add_block_sums(const float* mass, std::int64_t subs, std::int64_t per_block, float share, float* scores) {
  for (std::int64_t begin = 0; begin < subs; begin += per_block, ++scores) {
    float sum = 0;
    const std::int64_t end = std::min(subs, begin + per_block);
    for (std::int64_t j = begin; j < end; ++j) sum += mass[j];
    *scores += share * sum;
  }
}

void score_block(const ScoreInput& in, std::int64_t block, float* scratch, float* scores) {
  const auto q_subs = static_cast<std::int64_t>(in.q_counts.size());
  const std::int64_t begin = block * in.q_per_block, end = std::min(q_subs, begin + in.q_per_block);
  const auto stride = static_cast<std::int64_t>(in.k_weights.size());
  std::fill_n(scores, in.k_blocks(), 0.0f);
  float tokens = 0;
  for (std::int64_t i = begin; i < end; ++i) tokens += static_cast<float>(in.q_counts[static_cast<std::size_t>(i)]);
  for (std::int64_t first = begin; first < end; first += kRows) {
    const float* rows[kRows];
    for (std::int64_t r = 0; r < kRows; ++r) rows[r] = in.q + std::min(first + r, end - 1) * in.head_dim;
    for (std::int64_t p = 0; p < stride / kPanel; ++p) {
      panel_products(rows, in.k + p * in.head_dim * kPanel, in, stride, scratch + p * kPanel);
    }
    for (std::int64_t r = 0; r < std::min(kRows, end - first); ++r) {
      float* row = scratch + r * stride;
      const float total = to_mass(row, in.k_weights, row_maximum(row, in.k_weights));
      const float count = static_cast<float>(in.q_counts[static_cast<std::size_t>(first + r)]);
      add_block_sums(row + in.k_video, in.k_video_subs, in.k_per_block, count / (tokens * total), scores);
    }
  }
}

void score_blocks(const ScoreInput& in, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  std::vector<float> scratch(static_cast<std::size_t>(kRows) * in.k_weights.size());
  for (std::int64_t block = q_begin; block < q_end; ++block, scores += in.k_blocks()) {
    score_block(in, block, scratch.data(), scores);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle {

HWY_EXPORT(score_blocks);

void score_pooled_softmax(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  HWY_DYNAMIC_DISPATCH(score_blocks)(input, q_begin, q_end, scores);
}

}  // namespace tulle
#endif
