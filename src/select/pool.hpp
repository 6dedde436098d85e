// Pooling: the mean of every sub-block of tokens, the small stand-ins that scorers work on.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tulle/grid.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// Half-open token ranges that are not seen, one per sample; an empty span hides nothing.
using HiddenTokens = std::span<const std::pair<std::int64_t, std::int64_t>>;

// What pool_tokens makes of each sub-block beside its mean.
struct PoolExtras {
  bool middle = false;     // the middle one of the seen tokens stands for the sub-block, instead of the mean
  bool variances = false;  // per channel
  bool likeness = false;   // how alike its tokens are
};

struct PooledTokens {
  BlockPartition subs;  // the sub-blocks: a partition of the same sequence
  std::int64_t batch = 0, heads = 0, head_dim = 0;
  std::vector<float> means;          // [batch, heads, subs.count(), head_dim]; 0 where no token is seen
  std::vector<std::int32_t> counts;  // [batch, subs.count()] tokens seen: a ragged sub-block weighs less
  std::vector<float> variances;      // as means: mean squared distance from `means`; empty unless asked for
  // [batch, heads, subs.count()] mean cosine between a token and the mean, 0 where either is 0; empty unless asked for.
  std::vector<float> likeness;

  const float* row(std::int64_t b, std::int64_t head, std::int64_t sub) const {
    return means.data() + at(b, head, sub);
  }
  std::int64_t at(std::int64_t b, std::int64_t head, std::int64_t sub) const {
    return ((b * heads + head) * subs.count() + sub) * head_dim;
  }
};

// x: [batch, tokens, heads, head_dim], f32 or bf16; sums in f32, in token order. Each head is pooled alone, so the
// result does not depend on how heads or work are split. Throws Error(kInvalidArgument): x does not have subs.tokens()
// tokens, or a hidden range is outside the text; Error(kUnsupported): f16.
PooledTokens pool_tokens(ConstTensorView x, const BlockPartition& subs, HiddenTokens hidden, const Threads& threads,
                         const PoolExtras& extras = {});

}  // namespace tulle
