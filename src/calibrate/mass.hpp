// Exact attention mass of key blocks, without a matrix of tokens x tokens: what calibration measures.
//
// The mass of a key block for a query row is the sum of the row's softmax over the block's keys; a row's masses sum to
// 1. It is the pooled softmax score of sub-blocks of one token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "select/scorer.hpp"
#include "tulle/grid.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// One head of one attention call, its keys packed. Needs 12 * tokens * head_dim bytes, and 16 * tokens a thread while
// it works. Results do not depend on the number of threads.
class HeadMass {
 public:
  // q, k: [1, tokens, heads, head_dim] in memory order, after norm and RoPE, f32 or bf16, without text.
  // Throws Error(kInvalidArgument) for shapes that do not fit the partitions.
  HeadMass(ConstTensorView q, ConstTensorView k, std::int64_t head, const BlockPartition& q_blocks,
           const BlockPartition& k_blocks, const Threads& threads);
  HeadMass(const HeadMass&) = delete;
  HeadMass& operator=(const HeadMass&) = delete;

  // Mean over the rows of each query block: out is [query blocks, key blocks]. NaN where q or k are not finite.
  void blocks(std::span<float> out, const Threads& threads) const;
  // Of single query rows (tokens in memory order): out is [rows, key blocks].
  void rows(std::span<const std::int64_t> rows, std::span<float> out, const Threads& threads) const;

 private:
  PooledTokens q_, k_;
  KeyPanels keys_;
  ScoreInput input_;
};

}  // namespace tulle
