// Choosers: from the scores of one query block to the key blocks that are kept.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tulle {

struct ChooseRow {
  std::span<const float> scores;  // [video key blocks], finite
  std::int32_t permille = 1000;   // density asked for, [1, 1000]
  std::uint64_t seed = 0;         // for breaking ties: equal for equal (layer, head, query block), on every rank
};

// `choose` sets kept[i] to 1 for each kept block; all are 0 before. It must be pure.
struct Chooser {
  const char* name;
  const char* help;
  void (*choose)(const ChooseRow& row, std::span<std::uint8_t> kept);
};

std::span<const Chooser> choosers();
// Throws Error(kInvalidArgument) that lists the choosers.
const Chooser& find_chooser(std::string_view name);

// Blocks to keep out of `blocks` for a density in 1/1000: the nearest whole number, halves up, at least 1. Rounding to
// nearest keeps the density closest to what was asked; rounding up or down would shift every row the same way.
std::int64_t kept_count(std::int64_t blocks, std::int32_t permille);

// The kept_count() largest scores. Of equal scores at the threshold those with the smallest hash of (seed, block) are
// kept: the same on every run and rank, and without favour for one part of the video.
void choose_top_k(const ChooseRow& row, std::span<std::uint8_t> kept);

// Mixes a number into a hash (the finaliser of SplitMix64: Steele et al., 2014).
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

}  // namespace tulle
