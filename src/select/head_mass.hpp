// Exact attention mass of key blocks, without a matrix of tokens x tokens: what calibration measures, and what recall
// is counted from.
//
// The mass of a video key block for a query is the sum of the query's softmax over the block's keys; what a query's
// masses lack to 1 is the mass of the text. It is the pooled softmax score of sub-blocks of one token, exact up to f32
// rounding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "select/scorer.hpp"
#include "tulle/grid.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// One sample and head of one attention call, its keys packed. Needs 12 * tokens * head_dim bytes, and 16 * tokens a
// thread while it works. Results do not depend on the number of threads.
class HeadMass {
 public:
  // q, k: [batch, tokens, heads, head_dim] in memory order, after norm and RoPE, f32 or bf16; hidden_keys as in
  // SelectCall, of all samples. Throws Error(kInvalidArgument) for shapes that do not fit each other or the partitions.
  HeadMass(ConstTensorView q, ConstTensorView k, std::int64_t b, std::int64_t head, const BlockPartition& q_blocks,
           const BlockPartition& k_blocks, HiddenTokens hidden_keys, const Threads& threads);
  HeadMass(const HeadMass&) = delete;
  HeadMass& operator=(const HeadMass&) = delete;

  // Mean over the queries of each video query block: out is [video query blocks, video key blocks]. NaN where q or k
  // are not finite.
  void blocks(std::span<float> out, const Threads& threads) const;
  // Of single queries, counted from the first video token: out is [rows, video key blocks].
  void rows(std::span<const std::int64_t> rows, std::span<float> out, const Threads& threads) const;

 private:
  PooledTokens q_, k_;
  KeyPanels keys_;
  ScoreInput input_;
};

}  // namespace tulle
