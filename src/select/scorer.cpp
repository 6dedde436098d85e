#include "select/scorer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::array kScorers = {
    Scorer{"pooled_softmax", "softmax mass between mean-pooled sub-blocks (DFSAttn)", 4096, score_pooled_softmax}};

std::int64_t first_video_sub(const BlockPartition& subs) {
  return subs.sequence.placement == TextPlacement::kPrefix ? subs.text_blocks() : 0;
}

}  // namespace

std::span<const Scorer> scorers() { return kScorers; }

const Scorer& find_scorer(std::string_view name) {
  std::string known;
  for (const Scorer& s : kScorers) {
    if (name == s.name) return s;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", s.name);
  }
  fail(ErrorCode::kInvalidArgument, "there is no scorer \"{}\"; choose one of: {}", name, known);
}

std::int64_t ScoreInput::q_blocks() const { return ceil_div(static_cast<std::int64_t>(q_counts.size()), q_per_block); }
std::int64_t ScoreInput::k_blocks() const { return ceil_div(k_video_subs, k_per_block); }

KeyPanels pack_keys(const PooledTokens& keys, std::int64_t b, std::int64_t head) {
  const std::int64_t subs = keys.subs.count(), d = keys.head_dim, panels = ceil_div(subs, kPanel);
  KeyPanels out;
  out.values.assign(static_cast<std::size_t>(panels * d * kPanel), 0.0f);
  out.weights.assign(static_cast<std::size_t>(panels * kPanel), 0.0f);
  for (std::int64_t s = 0; s < subs; ++s) {
    const float* row = keys.row(b, head, s);
    float* column = out.values.data() + s / kPanel * d * kPanel + s % kPanel;
    for (std::int64_t c = 0; c < d; ++c) column[c * kPanel] = row[c];
    out.weights[static_cast<std::size_t>(s)] = static_cast<float>(keys.counts[static_cast<std::size_t>(b * subs + s)]);
  }
  return out;
}

ScoreInput make_score_input(const PooledTokens& queries, const KeyPanels& keys, const BlockPartition& key_subs,
                            std::int64_t b, std::int64_t head, std::int32_t block_q, std::int32_t block_k) {
  const BlockPartition& q_subs = queries.subs;
  const std::int64_t q_video = first_video_sub(q_subs);
  ScoreInput in;
  in.head_dim = queries.head_dim;
  in.scale = 1.0f / std::sqrt(static_cast<float>(queries.head_dim));
  in.q = queries.row(b, head, q_video);
  in.q_counts = std::span(queries.counts)
                    .subspan(static_cast<std::size_t>(b * q_subs.count() + q_video),
                             static_cast<std::size_t>(q_subs.video_blocks()));
  in.k = keys.values.data();
  in.k_weights = keys.weights;
  in.k_video = first_video_sub(key_subs);
  in.k_video_subs = key_subs.video_blocks();
  in.q_per_block = block_q / q_subs.block;
  in.k_per_block = block_k / key_subs.block;
  return in;
}

}  // namespace tulle
