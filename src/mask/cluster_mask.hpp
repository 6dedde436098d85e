// ClusterMask: which clusters of tokens see each other, where every head has clusters of its own.
//
// A BlockMask cuts all heads into the same runs of memory. Here the blocks of one (sample, head) are clusters: of any
// size, of tokens from anywhere in the sequence, other ones for queries and for keys. Text is one cluster more on each
// side. Thread safety: plain values; concurrent reads are safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tulle {

// One side of one (sample, head): cluster i holds tokens[begin[i]] to tokens[begin[i + 1] - 1]. It may be empty.
struct TokenClusters {
  std::vector<std::int32_t> tokens;       // positions in the sequence, every token once
  std::vector<std::int32_t> begin = {0};  // [count() + 1], from 0 to tokens.size(), never falling

  std::int64_t count() const { return static_cast<std::int64_t>(begin.size()) - 1; }
  std::int64_t size(std::int64_t i) const {
    return begin[static_cast<std::size_t>(i) + 1] - begin[static_cast<std::size_t>(i)];
  }
  std::span<const std::int32_t> cluster(std::int64_t i) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(begin[static_cast<std::size_t>(i)]),
                                     static_cast<std::size_t>(size(i)));
  }
  bool operator==(const TokenClusters&) const = default;
};

// Clusters of `count` groups: token first + t belongs to group_of[t], in [0, count).
TokenClusters sort_into_clusters(std::span<const std::int32_t> group_of, std::int64_t count, std::int64_t first);

// One (sample, head).
struct ClusterMap {
  TokenClusters q, k;
  std::vector<std::uint8_t> kept;  // [q.count(), k.count()], 1 where a query cluster sees a key cluster

  std::span<const std::uint8_t> row(std::int64_t q_cluster) const {
    const auto width = static_cast<std::size_t>(k.count());
    return std::span(kept).subspan(static_cast<std::size_t>(q_cluster) * width, width);
  }
  bool operator==(const ClusterMap&) const = default;
};

struct ClusterMask {
  std::int64_t batch = 0, heads = 0;
  std::int64_t q_tokens = 0, k_tokens = 0;
  std::vector<ClusterMap> maps;  // [batch, heads]

  const ClusterMap& map(std::int64_t b, std::int64_t head) const {
    return maps[static_cast<std::size_t>(b * heads + head)];
  }
  bool operator==(const ClusterMask&) const = default;
};

// Throws Error(kInvalidArgument) unless there is a map for every (sample, head) whose clusters hold every token of the
// sequence once and whose rows fit them. O(tokens + pairs of clusters) a map.
void check_cluster_mask(const ClusterMask& mask);

// Kept query x key token pairs of one map.
std::int64_t kept_pairs(const ClusterMap& map);

// Kept pairs over all pairs, in [0, 1]; 1 where there are none.
double density(const ClusterMask& mask);

}  // namespace tulle
