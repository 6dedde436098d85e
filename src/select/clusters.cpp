#include "select/clusters.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kTokensPerQueryCluster = 64, kTokensPerKeyCluster = 32;
constexpr int kRounds = 4;

// Centroids turned over, so that the distances of one token to all of them are one loop over contiguous numbers.
struct Turned {
  std::vector<float> values;       // [head_dim, count]
  std::vector<float> half_square;  // [count] |c|^2 / 2
};

Turned turn(const Clusters& c, std::int64_t head_dim) {
  Turned out{std::vector<float>(c.centroids.size()), std::vector<float>(static_cast<std::size_t>(c.count))};
  for (std::int64_t i = 0; i < c.count; ++i) {
    float square = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const float x = c.centroids[static_cast<std::size_t>(i * head_dim + d)];
      out.values[static_cast<std::size_t>(d * c.count + i)] = x;
      square += x * x;
    }
    out.half_square[static_cast<std::size_t>(i)] = square / 2;
  }
  return out;
}

// The nearest centroid maximises x . c - |c|^2 / 2.
std::int32_t nearest(const float* token, std::int64_t head_dim, const Turned& turned, std::vector<float>& near) {
  const std::size_t count = turned.half_square.size();
  for (std::size_t i = 0; i < count; ++i) near[i] = -turned.half_square[i];
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const float* row = turned.values.data() + static_cast<std::size_t>(d) * count;
    for (std::size_t i = 0; i < count; ++i) near[i] += token[d] * row[i];
  }
  return static_cast<std::int32_t>(std::ranges::max_element(near) - near.begin());
}

void assign(std::span<const float> tokens, std::int64_t head_dim, Clusters& c) {
  const Turned turned = turn(c, head_dim);
  std::vector<float> near(static_cast<std::size_t>(c.count));
  std::ranges::fill(c.tokens, 0);
  for (std::size_t t = 0; t < c.of_token.size(); ++t) {
    c.of_token[t] = nearest(tokens.data() + t * static_cast<std::size_t>(head_dim), head_dim, turned, near);
    ++c.tokens[static_cast<std::size_t>(c.of_token[t])];
  }
}

// A cluster without tokens stays where it is.
void move_to_means(std::span<const float> tokens, std::int64_t head_dim, Clusters& c) {
  std::vector<float> sums(c.centroids.size());
  for (std::size_t t = 0; t < c.of_token.size(); ++t) {
    float* sum = sums.data() + c.of_token[t] * head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d)
      sum[d] += tokens[t * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(d)];
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::int32_t count = c.tokens[i / static_cast<std::size_t>(head_dim)];
    if (count > 0) c.centroids[i] = sums[i] / static_cast<float>(count);
  }
}

// The video's, and for keys the seen text's, tokens of one head with the block of each (-1: text).
struct HeadTokens {
  std::vector<float> values;
  std::vector<std::int64_t> block;
};

HeadTokens tokens_of(const PooledTokens& x, std::int64_t b, std::int64_t head, std::int32_t block, bool text) {
  HeadTokens out;
  const std::int64_t video = x.subs.sequence.video_begin();
  for (std::int64_t t = 0; t < x.subs.count(); ++t) {
    const bool is_text = x.subs.is_text(t);
    if ((is_text && !text) || x.counts[static_cast<std::size_t>(b * x.subs.count() + t)] == 0) continue;
    const float* row = x.row(b, head, t);
    out.values.insert(out.values.end(), row, row + x.head_dim);
    out.block.push_back(is_text ? -1 : (t - video) / block);
  }
  return out;
}

Clusters cluster(const HeadTokens& tokens, std::int64_t head_dim, std::int64_t per_cluster, std::int64_t most) {
  const auto n = static_cast<std::int64_t>(tokens.block.size());
  return cluster_tokens(tokens.values, head_dim, cluster_count(n, per_cluster, most));
}

}  // namespace

std::int64_t cluster_count(std::int64_t n, std::int64_t per_cluster, std::int64_t most) {
  return std::min(ceil_div(n, per_cluster), most);
}

Clusters start_clusters(std::span<const float> tokens, std::int64_t head_dim, std::int64_t count) {
  const std::int64_t n = static_cast<std::int64_t>(tokens.size()) / head_dim;
  Clusters c{count,
             {},
             std::vector<std::int32_t>(static_cast<std::size_t>(n)),
             std::vector<std::int32_t>(static_cast<std::size_t>(count))};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = tokens.begin() + (2 * i + 1) * n / (2 * count) * head_dim;
    c.centroids.insert(c.centroids.end(), first, first + head_dim);
  }
  return c;
}

void refine_clusters(std::span<const float> tokens, std::int64_t head_dim, int rounds, Clusters& clusters) {
  for (int round = 0; round < rounds; ++round) {
    assign(tokens, head_dim, clusters);
    move_to_means(tokens, head_dim, clusters);
  }
}

Clusters cluster_tokens(std::span<const float> tokens, std::int64_t head_dim, std::int64_t count) {
  Clusters c = start_clusters(tokens, head_dim, count);
  refine_clusters(tokens, head_dim, kRounds, c);
  assign(tokens, head_dim, c);
  return c;
}

std::vector<float> centroid_mass(const Clusters& q, const Clusters& k, std::int64_t head_dim) {
  const BlockPartition subs{{{1, 1, static_cast<std::int32_t>(k.count)}, 0, TextPlacement::kSuffix}, 1};
  const KeyPanels panels = pack_keys({subs, 1, 1, head_dim, k.centroids, k.tokens, {}, {}}, 0, 0);
  const std::vector<std::int32_t> ones(static_cast<std::size_t>(q.count), 1);
  ScoreInput in;
  in.head_dim = head_dim;
  in.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  in.q = q.centroids.data();
  in.q_counts = ones;
  in.k = panels.values.data();
  in.k_weights = panels.weights;
  in.k_video_subs = k.count;
  in.q_per_block = in.k_per_block = 1;
  std::vector<float> mass(static_cast<std::size_t>(q.count * k.count));
  score_pooled_softmax(in, 0, q.count, mass.data());
  return mass;
}

HeadClusters cluster_head(const PooledTokens& queries, const PooledTokens& keys, std::int64_t b, std::int64_t head,
                          std::int32_t block_q, std::int32_t block_k) {
  const std::int64_t d = queries.head_dim;
  const HeadTokens q = tokens_of(queries, b, head, block_q, false), k = tokens_of(keys, b, head, block_k, true);
  const Clusters qc = cluster(q, d, kTokensPerQueryCluster, kMaxQueryClusters);
  const Clusters kc = cluster(k, d, kTokensPerKeyCluster, kMaxKeyClusters);
  const Sequence& s = queries.subs.sequence;
  HeadClusters out{
      BlockPartition{s, block_q}.video_blocks(), BlockPartition{s, block_k}.video_blocks(), qc.count, {}, {}};

  out.q_share.assign(static_cast<std::size_t>(out.q_blocks * qc.count), 0.0f);
  for (std::size_t t = 0; t < q.block.size(); ++t) {
    const std::int64_t size = std::min<std::int64_t>(block_q, s.grid.tokens() - q.block[t] * block_q);
    out.q_share[static_cast<std::size_t>(q.block[t] * qc.count + qc.of_token[t])] += 1.0f / static_cast<float>(size);
  }
  const std::vector<float> between = centroid_mass(qc, kc, d);
  out.mass.assign(static_cast<std::size_t>(qc.count * out.k_blocks), 0.0f);
  for (std::int64_t c = 0; c < qc.count; ++c) {
    for (std::size_t t = 0; t < k.block.size(); ++t) {
      if (k.block[t] < 0) continue;
      const auto g = static_cast<std::size_t>(kc.of_token[t]);
      out.mass[static_cast<std::size_t>(c * out.k_blocks + k.block[t])] +=
          between[static_cast<std::size_t>(c * kc.count) + g] / static_cast<float>(kc.tokens[g]);
    }
  }
  return out;
}

void score_clusters(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  const HeadClusters& h = *input.clusters;
  std::fill_n(scores, (q_end - q_begin) * h.k_blocks, 0.0f);
  for (std::int64_t u = q_begin; u < q_end; ++u, scores += h.k_blocks) {
    for (std::int64_t c = 0; c < h.q_clusters; ++c) {
      const float share = h.q_share[static_cast<std::size_t>(u * h.q_clusters + c)];
      const float* mass = h.mass.data() + c * h.k_blocks;
      for (std::int64_t v = 0; v < h.k_blocks; ++v) scores[v] += share * mass[v];
    }
  }
}

}  // namespace tulle
