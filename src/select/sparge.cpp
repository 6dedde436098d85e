// The guarded block softmax of SpargeAttention.
#include <algorithm>
#include <span>
#include <vector>

#include "select/chooser.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

// Weights of the keys that take part in the softmax.
std::vector<float> alike_weights(const ScoreInput& in) {
  std::vector<float> weights(in.k_weights.begin(), in.k_weights.end());
  for (std::size_t v = 0; v < in.k_likeness.size(); ++v) {
    if (in.k_likeness[v] < kAlike) weights[static_cast<std::size_t>(in.k_video) + v] = 0;
  }
  return weights;
}

// Adding keeps a NaN, by which the softmax tells of input that is not finite; guarded blocks have no mass.
void raise_guarded(std::span<const float> likeness, std::span<float> row) {
  for (std::size_t v = 0; v < row.size(); ++v) {
    if (likeness[v] < kAlike) row[v] += kAlwaysKept;
  }
}

}  // namespace

void score_sparge(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  const std::vector<float> weights = alike_weights(input);
  const auto blocks = static_cast<std::size_t>(input.k_blocks());
  const std::span<float> all(scores, blocks * static_cast<std::size_t>(q_end - q_begin));
  if (std::ranges::none_of(weights, [](float w) { return w > 0; })) {
    std::ranges::fill(all, kAlwaysKept);
    return;
  }
  ScoreInput alike = input;
  alike.k_weights = weights;
  score_pooled_softmax(alike, q_begin, q_end, scores);
  for (std::int64_t u = q_begin; u < q_end; ++u) {
    const std::span<float> row = all.subspan(blocks * static_cast<std::size_t>(u - q_begin), blocks);
    if (input.q_likeness[static_cast<std::size_t>(u)] < kAlike)
      for (float& s : row) s = kAlwaysKept + s * 0.0f;
    else
      raise_guarded(input.k_likeness, row);
  }
}

}  // namespace tulle
