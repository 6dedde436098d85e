// The pooled softmax score, compiled once per instruction set. The matrix of sub-block scores never exists as a whole:
// a group of kRows query sub-blocks at a time is scored, normalised and summed into block scores.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/pooled_softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "select/score_simd.hpp"
#include "select/scorer.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Logits of kRows query rows over all keys. `squares` [kRows, head_dim] holds the rows' squares, for `spread` alone.
template <bool spread>
void logits_of(const ScoreInput& in, const float* const* rows, float* squares, float* out, float* added) {
  const auto stride = static_cast<std::int64_t>(in.k_weights.size());
  const float* square_rows[kRows];
  if constexpr (spread) {
    for (std::int64_t r = 0; r < kRows; ++r) {
      square_rows[r] = squares + r * in.head_dim;
      for (std::int64_t c = 0; c < in.head_dim; ++c) squares[r * in.head_dim + c] = rows[r][c] * rows[r][c];
    }
  }
  for (std::int64_t p = 0; p < stride / kPanel; ++p) {
    const std::int64_t at = p * in.head_dim * kPanel, column = p * kPanel;
    panel_products(rows, in.k + at, in.head_dim, in.scale, stride, out + column);
    if constexpr (spread) {
      panel_products(square_rows, in.k_variances + at, in.head_dim, in.scale * in.scale / 2, stride, added + column);
      for (std::int64_t i = 0; i < kRows * kPanel; ++i) {
        const std::int64_t place = i / kPanel * stride + column + i % kPanel;
        out[place] += added[place];
      }
    }
  }
}

float block_tokens(const ScoreInput& in, std::int64_t block) {
  const auto begin = static_cast<std::size_t>(block * in.q_per_block);
  const std::size_t end = std::min(in.q_counts.size(), begin + static_cast<std::size_t>(in.q_per_block));
  float tokens = 0;
  for (std::size_t i = begin; i < end; ++i) tokens += static_cast<float>(in.q_counts[i]);
  return tokens;
}

// Query sub-blocks are taken in groups across block borders; a row comes out the same in any group.
template <bool spread>
void score_range(const ScoreInput& in, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  const auto stride = static_cast<std::int64_t>(in.k_weights.size());
  const auto row_floats = static_cast<std::size_t>(kRows * stride);
  std::vector<float> logits(row_floats), added(spread ? row_floats : 0);
  std::vector<float> squares(spread ? static_cast<std::size_t>(kRows * in.head_dim) : 0);
  const std::int64_t begin = q_begin * in.q_per_block;
  const std::int64_t end = std::min(static_cast<std::int64_t>(in.q_counts.size()), q_end * in.q_per_block);
  std::fill_n(scores, (q_end - q_begin) * in.k_blocks(), 0.0f);
  for (std::int64_t first = begin; first < end; first += kRows) {
    const float* rows[kRows];
    row_pointers(in, first, rows);
    logits_of<spread>(in, rows, squares.data(), logits.data(), added.data());
    for (std::int64_t i = first; i < std::min(first + kRows, end); ++i) {
      float* row = logits.data() + (i - first) * stride;
      const std::int64_t block = i / in.q_per_block;
      const float total = to_mass(row, in.k_weights, row_maximum(row, in.k_weights));
      const float count = static_cast<float>(in.q_counts[static_cast<std::size_t>(i)]);
      add_block_sums(row + in.k_video, in.k_video_subs, in.k_per_block, count / (block_tokens(in, block) * total),
                     scores + (block - q_begin) * in.k_blocks());
    }
  }
}

void pooled_softmax(const ScoreInput& in, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  score_range<false>(in, q_begin, q_end, scores);
}

void second_order(const ScoreInput& in, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  score_range<true>(in, q_begin, q_end, scores);
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle {

HWY_EXPORT(pooled_softmax);
HWY_EXPORT(second_order);

void score_pooled_softmax(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  HWY_DYNAMIC_DISPATCH(pooled_softmax)(input, q_begin, q_end, scores);
}

void score_second_order(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  HWY_DYNAMIC_DISPATCH(second_order)(input, q_begin, q_end, scores);
}

}  // namespace tulle
#endif
