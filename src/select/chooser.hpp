// Choosers: from the scores of one query block to the key blocks that are kept.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tulle {

// Scorers give scores in [0, 1], and this one to a block that they cannot judge and that should be kept whatever it
// costs: it stands before all others, and outside the sum of which top_p takes a share.
constexpr float kAlwaysKept = 2.0f;

struct ChooseRow {
  std::span<const float> scores;  // [video key blocks], finite; empty for a chooser that needs none
  std::int32_t permille = 1000;   // density asked for, [1, 1000]
  std::uint64_t seed = 0;         // for breaking ties: equal for equal (layer, head, query block), on every rank
  // Prior: only blocks whose rank is at most `envelope` are candidates. Empty: all are.
  std::span<const std::uint8_t> ranks = {};
  std::uint8_t envelope = 255;
  std::int32_t top_p = 1000;  // share of the scores' sum that is kept, in 1/1000
  std::int32_t floor = 0;     // density that a row keeps at least, in 1/1000; at least one block

  std::size_t blocks() const { return scores.empty() ? ranks.size() : scores.size(); }
};

// `choose` sets kept[i] to 1 for each kept block; all are 0 before. It must be pure. Every row keeps at least one
// block. A row whose envelope holds no block has its blocks of the lowest rank as candidates. Of equally good blocks
// those with the smallest hash of (seed, block) win: the same on every run and rank, and without favour for one part of
// the video.
struct Chooser {
  const char* name;
  const char* help;
  bool needs_scores;
  bool needs_ranks;
  void (*choose)(const ChooseRow& row, std::span<std::uint8_t> kept);
  bool needs_mass = false;  // scores must be shares of softmax mass (Scorer::is_mass), not just an order
};

std::span<const Chooser> choosers();
// Throws Error(kInvalidArgument) that lists the choosers.
const Chooser& find_chooser(std::string_view name);

// Blocks to keep out of `blocks` for a density in 1/1000: the nearest whole number, halves up, at least 1. Rounding to
// nearest keeps the density closest to what was asked; rounding up or down would shift every row the same way.
std::int64_t kept_count(std::int64_t blocks, std::int32_t permille);

// The kept_count() largest scores among the candidates, all candidates where there are fewer.
void choose_top_k(const ChooseRow& row, std::span<std::uint8_t> kept);

// All candidates of score kAlwaysKept, and of the others the fewest, best first, that hold top_p / 1000 of the others'
// sum of scores; at least kept_count(floor) in all. Scores must not be negative. top_p = 1000 keeps every candidate: a
// sum of floats reaches its total before the last small terms. `permille` is not used. The top-p cut with a top-k floor
// of Liu et al., "FVAttn" (2026).
void choose_top_p(const ChooseRow& row, std::span<std::uint8_t> kept);

// The blocks whose rank is at most rank_level(permille), whatever their scores: the mask of a rank map at one density
// (Zhou et al., "ScalingAttention", 2026). Needs ranks; the envelope is not used.
void choose_rank_threshold(const ChooseRow& row, std::span<std::uint8_t> kept);

// The blocks that `kept` ([blocks], 0 or 1) leaves out, best first: those inside the envelope before the others, then
// by score where the row has scores, else by rank, then by the hash. For adding blocks to a mask that was chosen.
// Replaces what `order` held. Pure.
void rank_rest(const ChooseRow& row, std::span<const std::uint8_t> kept, std::vector<std::int32_t>& order);

// Mixes a number into a hash (the finaliser of SplitMix64: Steele et al., 2014).
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

}  // namespace tulle
