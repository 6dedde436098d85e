// Clusters: k-means over the tokens of one head, and the softmax mass between centroids spread over blocks.
//
// Sparse VideoGen 2 (Yang et al., 2025) groups tokens by what they hold, permutes them so that groups are contiguous,
// and keeps pairs of groups. Blocks here are fixed, so groups only inform the score: with P(c, g) the share of key
// cluster g in the softmax of query centroid c over all key centroids (weighted by tokens),
//   score(u, v) = sum_c share of u's tokens in c * sum_g P(c, g) * share of g's tokens that lie in v.
// Rows sum to 1 with the text. The counts follow the tokens (one query cluster for 64, at most 400, one key cluster for
// 32, at most 1,000: the paper's numbers at its sizes); 4 rounds of Lloyd's algorithm from evenly spaced tokens.
// Deterministic: no random seed, fixed order of sums. O(tokens * clusters * head_dim) a head: a baseline for quality.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "select/pool.hpp"

namespace tulle {

struct HeadClusters {
  std::int64_t q_blocks = 0, k_blocks = 0, q_clusters = 0;
  std::vector<float> q_share;  // [q_blocks, q_clusters] share of a query block's tokens in each cluster
  std::vector<float> mass;     // [q_clusters, k_blocks] mass of each video key block
};

// queries, keys: pooled by single tokens. block_q and block_k are in tokens. Pure.
HeadClusters cluster_head(const PooledTokens& queries, const PooledTokens& keys, std::int64_t b, std::int64_t head,
                          std::int32_t block_q, std::int32_t block_k);

// k-means on tokens [n, head_dim].
struct Clusters {
  std::int64_t count = 0;
  std::vector<float> centroids;        // [count, head_dim]
  std::vector<std::int32_t> of_token;  // [n]; of equally near centroids the first
  std::vector<std::int32_t> tokens;    // [count] tokens of each, possibly 0
};
Clusters cluster_tokens(std::span<const float> tokens, std::int64_t head_dim, std::int64_t count);

}  // namespace tulle
