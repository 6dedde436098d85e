#include "select/scorer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.hpp"
#include "base/named.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kMaxSubBlocks = 4096;

constexpr std::array kScorers = {
    Scorer{"pooled_softmax", "softmax mass between mean-pooled sub-blocks (DFSAttn)", kMaxSubBlocks,
           score_pooled_softmax},
    Scorer{"query_mass", "softmax mass of single queries over mean-pooled keys (PARK)", kMaxSubBlocks,
           score_pooled_softmax, Pooling::kToken},
    Scorer{"second_order", "pooled_softmax with the spread inside key sub-blocks to second order", kMaxSubBlocks,
           score_second_order, Pooling::kSubBlock, Pooling::kSubBlock, ScoreExtra::kVariances},
    Scorer{"sub_block_lse", "log-sum-exp over pairs of mean-pooled sub-blocks (SubBlock)", kMaxSubBlocks,
           score_sub_block_lse, Pooling::kSubBlock, Pooling::kSubBlock, ScoreExtra::kNone, false},
    Scorer{"representatives", "log-sum-exp over pairs of 4 tokens of each block", kMaxSubBlocks, score_sub_block_lse,
           Pooling::kRepresentatives, Pooling::kRepresentatives, ScoreExtra::kNone, false},
    Scorer{"sparge", "softmax mass between block means, unlike blocks always kept (SpargeAttention)", kMaxSubBlocks,
           score_sparge, Pooling::kBlock, Pooling::kBlock, ScoreExtra::kLikeness},
    Scorer{"clusters", "softmax mass between k-means centroids, spread over blocks (SVG2)", kMaxSubBlocks,
           score_clusters, Pooling::kToken, Pooling::kToken, ScoreExtra::kClusters},
    Scorer{"window", "a box around the query block (Sliding Tile Attention)", kMaxSubBlocks, score_window,
           Pooling::kNone, Pooling::kNone, ScoreExtra::kPlaces, false},
    Scorer{"radial", "a spatial window that halves as the frame distance doubles (Radial Attention)", kMaxSubBlocks,
           score_radial, Pooling::kNone, Pooling::kNone, ScoreExtra::kPlaces, false}};

// Tokens that one pooled row stands for. Representatives must divide the block as sub-blocks do, so a block that 4 does
// not divide has 3, 2 or 1.
std::int32_t pooled_tokens(Pooling pooling, std::int32_t block, std::int32_t sub_block) {
  if (pooling == Pooling::kToken) return 1;
  if (pooling == Pooling::kSubBlock) return sub_block;
  if (pooling == Pooling::kBlock) return block;
  std::int32_t count = 4;
  while (block % count != 0) --count;
  return block / count;
}

void check_places(const Scorer& scorer, const ScoreBlocks& blocks, const BlockPlaces* places) {
  require(places != nullptr, "scorer \"{}\" needs the places of blocks on the grid; pass place_blocks(order, ...)",
          scorer.name);
  const BlockPartition q{blocks.sequence, blocks.block_q}, k{blocks.sequence, blocks.block_k};
  const auto q_places = static_cast<std::int64_t>(places->q.size()),
             k_places = static_cast<std::int64_t>(places->k.size());
  require(places->grid == blocks.sequence.grid && q_places == q.video_blocks() && k_places == k.video_blocks(),
          "places of {} x {} blocks of grid {} were given for {} x {} blocks of grid {}; make them for this shape",
          q_places, k_places, to_string(places->grid), q.video_blocks(), k.video_blocks(),
          to_string(blocks.sequence.grid));
}

}  // namespace

std::span<const Scorer> scorers() { return kScorers; }

const Scorer& find_scorer(std::string_view name) { return find_named(kScorers, name, "scorer"); }

std::int64_t ScoreInput::q_blocks() const {
  if (places != nullptr) return static_cast<std::int64_t>(places->q.size());
  if (clusters != nullptr) return clusters->q_blocks;
  return ceil_div(static_cast<std::int64_t>(q_counts.size()), q_per_block);
}

std::int64_t ScoreInput::k_blocks() const {
  if (places != nullptr) return static_cast<std::int64_t>(places->k.size());
  if (clusters != nullptr) return clusters->k_blocks;
  return ceil_div(k_video_subs, k_per_block);
}

KeyPanels pack_keys(const PooledTokens& keys, std::int64_t b, std::int64_t head) {
  const std::int64_t subs = keys.subs.count(), d = keys.head_dim, panels = ceil_div(subs, kPanel);
  const auto pack = [&](const std::vector<float>& rows) {
    std::vector<float> out(static_cast<std::size_t>(panels * d * kPanel));
    for (std::int64_t s = 0; s < subs; ++s) {
      const float* row = rows.data() + keys.at(b, head, s);
      float* column = out.data() + s / kPanel * d * kPanel + s % kPanel;
      for (std::int64_t c = 0; c < d; ++c) column[c * kPanel] = row[c];
    }
    return out;
  };
  KeyPanels out;
  out.values = pack(keys.means);
  out.weights.assign(static_cast<std::size_t>(panels * kPanel), 0.0f);
  for (std::int64_t s = 0; s < subs; ++s) {
    out.weights[static_cast<std::size_t>(s)] = static_cast<float>(keys.counts[static_cast<std::size_t>(b * subs + s)]);
  }
  if (!keys.variances.empty()) out.variances = pack(keys.variances);
  if (!keys.likeness.empty()) {
    const auto first = keys.likeness.begin() + (b * keys.heads + head) * subs;
    out.likeness.assign(first, first + subs);
  }
  return out;
}

ScoreInput make_score_input(const PooledTokens& queries, const KeyPanels& keys, const BlockPartition& key_subs,
                            std::int64_t b, std::int64_t head, std::int32_t block_q, std::int32_t block_k) {
  const BlockPartition& q_subs = queries.subs;
  const std::int64_t q_video = q_subs.first_video_block();
  const auto q_video_subs = static_cast<std::size_t>(q_subs.video_blocks());
  ScoreInput in;
  in.head_dim = queries.head_dim;
  in.scale = 1.0f / std::sqrt(static_cast<float>(queries.head_dim));
  in.q = queries.row(b, head, q_video);
  in.q_counts = std::span(queries.counts).subspan(static_cast<std::size_t>(b * q_subs.count() + q_video), q_video_subs);
  in.k = keys.values.data();
  in.k_weights = keys.weights;
  in.k_video = key_subs.first_video_block();
  in.k_video_subs = key_subs.video_blocks();
  in.q_per_block = block_q / q_subs.block;
  in.k_per_block = block_k / key_subs.block;
  if (!keys.variances.empty()) in.k_variances = keys.variances.data();
  if (!queries.likeness.empty()) {
    const std::int64_t row = (b * queries.heads + head) * q_subs.count() + q_video;
    in.q_likeness = std::span(queries.likeness).subspan(static_cast<std::size_t>(row), q_video_subs);
  }
  if (!keys.likeness.empty()) {
    in.k_likeness = std::span(keys.likeness)
                        .subspan(static_cast<std::size_t>(in.k_video), static_cast<std::size_t>(in.k_video_subs));
  }
  return in;
}

ScoreInput ScoreData::input(std::int64_t b, std::int64_t head) const {
  ScoreInput in;
  in.places = places;
  if (places != nullptr) return in;
  const auto map = static_cast<std::size_t>(b * heads + head);
  if (clusters.empty()) return make_score_input(queries, keys[map], key_subs, b, head, blocks.block_q, blocks.block_k);
  in.clusters = &clusters[map];
  return in;
}

ScoreData prepare_scores(const Scorer& scorer, const ScoreBlocks& blocks, const BlockPlaces* places, ConstTensorView q,
                         ConstTensorView k, HiddenTokens hidden_keys, const Threads& threads) {
  ScoreData out;
  out.blocks = blocks;
  if (scorer.needs_places()) {
    check_places(scorer, blocks, places);
    out.places = places;
  }
  if (!scorer.needs_tokens()) return out;

  PoolExtras extras{.likeness = scorer.extra == ScoreExtra::kLikeness};
  const auto pool = [&](ConstTensorView x, Pooling pooling, std::int32_t block, HiddenTokens hidden) {
    extras.middle = pooling == Pooling::kRepresentatives;
    return pool_tokens(x, {blocks.sequence, pooled_tokens(pooling, block, blocks.sub_block)}, hidden, threads, extras);
  };
  out.queries = pool(q, scorer.q_pooling, blocks.block_q, {});
  extras.variances = scorer.extra == ScoreExtra::kVariances;
  const PooledTokens keys = pool(k, scorer.k_pooling, blocks.block_k, hidden_keys);
  out.key_subs = keys.subs;
  out.heads = q.heads();
  const std::int64_t maps = q.batch() * q.heads();
  const bool clustered = scorer.extra == ScoreExtra::kClusters;
  out.keys.resize(static_cast<std::size_t>(clustered ? 0 : maps));
  out.clusters.resize(static_cast<std::size_t>(clustered ? maps : 0));
  threads.parallel_for(maps, [&](std::int64_t m) {
    const std::int64_t b = m / q.heads(), head = m % q.heads();
    const auto at = static_cast<std::size_t>(m);
    if (clustered)
      out.clusters[at] = cluster_head(out.queries, keys, b, head, blocks.block_q, blocks.block_k);
    else
      out.keys[at] = pack_keys(keys, b, head);
  });
  if (clustered) out.queries = {};  // all that is asked of them stands in the clusters
  return out;
}

}  // namespace tulle
