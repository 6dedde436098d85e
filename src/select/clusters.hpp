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

// Its start: centroids are evenly spaced tokens, and no token belongs to any yet. 1 <= count <= n.
Clusters start_clusters(std::span<const float> tokens, std::int64_t head_dim, std::int64_t count);
// `rounds` >= 1 of Lloyd's algorithm from the centroids as they are, which end as the means of the tokens assigned
// last. A cluster that loses all its tokens keeps its centroid.
void refine_clusters(std::span<const float> tokens, std::int64_t head_dim, int rounds, Clusters& clusters);
// Softmax of each query centroid over the key centroids, each weighted by its tokens (0: not there): rows of [query
// clusters, key clusters] sum to 1. The same bits on all CPUs.
std::vector<float> centroid_mass(const Clusters& q, const Clusters& k, std::int64_t head_dim);
// How many clusters of about `per_cluster` tokens n tokens make, at most `most`; 0 for none.
std::int64_t cluster_count(std::int64_t n, std::int64_t per_cluster, std::int64_t most);

// The paper's numbers of clusters at 10^4 to 10^5 tokens.
constexpr std::int64_t kMaxQueryClusters = 400, kMaxKeyClusters = 1000;

}  // namespace tulle
