// Scorers: how much each key block matters to each query block, estimated from pooled tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "select/pool.hpp"

namespace tulle {

// Pooled keys are packed in panels of this many sub-blocks, so that one panel fills whole SIMD vectors.
constexpr std::int64_t kPanel = 16;

// What a scorer sees of one sample and one head. Sub-blocks past the last one fill the panels up, with weight 0.
struct ScoreInput {
  std::int64_t head_dim = 0;
  float scale = 0;                         // of q.k, 1 / sqrt(head_dim)
  const float* q = nullptr;                // [video query sub-blocks, head_dim]
  std::span<const std::int32_t> q_counts;  // [video query sub-blocks] tokens in each
  const float* k = nullptr;                // [panels, head_dim, kPanel] all key sub-blocks, text included
  std::span<const float> k_weights;        // [panels * kPanel] tokens seen in each; 0: not there, must not count
  std::int64_t k_video = 0;                // first video sub-block among the key sub-blocks
  std::int64_t k_video_subs = 0;
  std::int64_t q_per_block = 0, k_per_block = 0;  // sub-blocks of a full block

  std::int64_t q_blocks() const;  // video query blocks
  std::int64_t k_blocks() const;  // video key blocks
};

// `score` fills scores [q_end - q_begin, k_blocks()] for video query blocks [q_begin, q_end). Larger means more worth
// keeping; only the order within a row counts for choosers, but every score must be finite (a scorer writes NaN when
// its input is not). It must be pure: rows must not depend on q_begin, q_end or the thread.
struct Scorer {
  const char* name;
  const char* help;
  std::int64_t max_sub_blocks;  // of one block
  void (*score)(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);
};

std::span<const Scorer> scorers();
// Throws Error(kInvalidArgument) that lists the scorers.
const Scorer& find_scorer(std::string_view name);

// DFSAttn's block score: softmax over all pooled keys, each weighted by its token count, summed over the key
// sub-blocks of a block and averaged over the query tokens of a block. Scores of a row and of the text sum to 1.
// Multiplies and adds are kept apart and sums have a fixed order, so all CPUs give the same bits.
void score_pooled_softmax(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores);

// Keys of one (sample, head) as ScoreInput wants them.
struct KeyPanels {
  std::vector<float> values;   // [panels, head_dim, kPanel]
  std::vector<float> weights;  // [panels * kPanel]
};
KeyPanels pack_keys(const PooledTokens& keys, std::int64_t b, std::int64_t head);

// Joins queries and packed keys; the result refers to both. block_q and block_k are in tokens.
ScoreInput make_score_input(const PooledTokens& queries, const KeyPanels& keys, const BlockPartition& key_subs,
                            std::int64_t b, std::int64_t head, std::int32_t block_q, std::int32_t block_k);

}  // namespace tulle
