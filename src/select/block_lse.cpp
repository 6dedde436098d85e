// Log-sum-exp over all pairs of sub-blocks of a block pair, compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/block_lse.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "select/score_simd.hpp"
#include "select/scorer.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float exp_of_difference(float small, float large) {
  const Floats f;
  return hn::GetLane(exp_of_negative(hn::Set(f, small - large)));
}

// Sums of one query block, relative to the largest logit so far: no logarithm is needed, and nothing overflows.
struct BlockSums {
  std::span<float> sums;
  float top = std::numeric_limits<float>::lowest();
  float taint = 0;  // NaN once a logit was not finite

  void add(const ScoreInput& in, std::span<const float> weights, float tokens, float* logits) {
    const float maximum = row_maximum(logits, weights);
    taint += maximum * 0.0f;
    if (maximum > top) {
      const float shrink = exp_of_difference(top, maximum);
      for (float& s : sums) s *= shrink;
      top = maximum;
    }
    to_mass(logits, weights, top);
    add_block_sums(logits + in.k_video, in.k_video_subs, in.k_per_block, tokens, sums.data());
  }

  void finish() {
    const float best = *std::ranges::max_element(sums) + taint;
    for (float& s : sums) s /= best;
  }
};

void score_block(const ScoreInput& in, std::int64_t block, std::span<const float> weights, float* scratch,
                 std::span<float> scores) {
  const auto stride = static_cast<std::int64_t>(weights.size());
  const std::int64_t begin = block * in.q_per_block;
  const std::int64_t end = std::min(static_cast<std::int64_t>(in.q_counts.size()), begin + in.q_per_block);
  std::ranges::fill(scores, 0.0f);
  BlockSums sums{scores};
  for (std::int64_t first = begin; first < end; first += kRows) {
    const float* rows[kRows];
    row_pointers(in, first, rows);
    for (std::int64_t p = 0; p < stride / kPanel; ++p) {
      panel_products(rows, in.k + p * in.head_dim * kPanel, in.head_dim, in.scale, stride, scratch + p * kPanel);
    }
    for (std::int64_t i = first; i < std::min(first + kRows, end); ++i) {
      sums.add(in, weights, static_cast<float>(in.q_counts[static_cast<std::size_t>(i)]),
               scratch + (i - first) * stride);
    }
  }
  sums.finish();
}

void sub_block_lse(const ScoreInput& in, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  // Text must not set the scale: against a strong text key all video would vanish.
  std::vector<float> weights(in.k_weights.size());
  std::copy_n(in.k_weights.begin() + in.k_video, in.k_video_subs, weights.begin() + in.k_video);
  std::vector<float> scratch(static_cast<std::size_t>(kRows) * weights.size());
  const auto blocks = static_cast<std::size_t>(in.k_blocks());
  for (std::int64_t block = q_begin; block < q_end; ++block, scores += blocks) {
    score_block(in, block, weights, scratch.data(), {scores, blocks});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle {

HWY_EXPORT(sub_block_lse);

void score_sub_block_lse(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  HWY_DYNAMIC_DISPATCH(sub_block_lse)(input, q_begin, q_end, scores);
}

}  // namespace tulle
#endif
