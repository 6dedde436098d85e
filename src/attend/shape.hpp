// Small facts about the shapes of attention that every kernel here needs.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "tulle/attention.hpp"

namespace tulle {

constexpr std::int64_t kMaxHeadDim = 256;

inline double effective_scale(const AttentionArgs& args) {
  return args.scale != 0 ? static_cast<double>(args.scale) : 1.0 / std::sqrt(static_cast<double>(args.q.head_dim()));
}

// A mask of batch 1 serves every sample.
inline std::int64_t mask_batch(const BlockMask& mask, std::int64_t b) { return mask.batch() == 1 ? 0 : b; }

// Position of (b, head, token) in an LSE array [batch, heads, tokens] of a [batch, tokens, heads, d] tensor.
inline std::int64_t lse_index(const std::array<std::int64_t, 4>& shape, std::int64_t b, std::int64_t head,
                              std::int64_t token) {
  return (b * shape[2] + head) * shape[1] + token;
}

}  // namespace tulle
