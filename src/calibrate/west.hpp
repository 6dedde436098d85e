// WEST: which blocks can matter to a head, whatever the caption.
//
// Of every caption, each query block's key blocks are ranked by their mean mass over the measured steps and branches; a
// block's rank in the map is its best over the captions. Zhou et al., "ScalingAttention" (2026). Rows are ranked one by
// one, so that no query block is ever left without keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tulle/rank_map.hpp"

namespace tulle {

// Density at which unions are compared and held-out mass is counted.
constexpr std::int32_t kWestPermille = 250;

// The ranks of one layer for one caption. mass: [heads][q blocks][k blocks], any positive factor. Equal masses are
// ordered by a hash of (layer, head, row, block), which favours no part of the video. Throws Error(kInvalidArgument)
// for a wrong size, Error(kNotFinite) naming layer, head and row.
RankMap rank_blocks(std::span<const float> mass, std::int64_t heads, const BlockPartition& q, const BlockPartition& k,
                    OrderKind order, std::int64_t layer);

// Share of the mass that the map keeps at a level, in [0, 1]: rows weigh by their tokens, heads alike.
double kept_share(const RankMap& map, std::span<const float> mass, std::uint8_t level);

// The rank maps of all layers, growing caption by caption.
class West {
 public:
  // Without any caption. Throws Error(kInvalidArgument) as RankMap does.
  West(std::int64_t layers, std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order);

  // Adds one call's block mass of one head: [q blocks][k blocks].
  void add(std::int64_t layer, std::int64_t head, std::span<const float> mass);
  // Ranks what was added, notes what the union so far keeps of it, and unites. Throws as rank_blocks.
  void end_caption();
  void drop_caption();  // forgets what was added since the last end_caption

  const std::vector<RankMap>& ranks() const { return ranks_; }          // [layers]
  const std::vector<float>& union_density() const { return density_; }  // [captions]
  // Share of the newest caption's mass that the union of those before it keeps at kWestPermille; 0 for the first.
  float held_out_mass() const { return held_out_; }

  // Takes up where another West of the same geometry was: bytes are [layers][heads][q blocks][k blocks].
  void restore(std::span<const std::uint8_t> ranks, std::vector<float> union_density, float held_out);

 private:
  std::span<float> sums(std::int64_t layer);

  std::vector<RankMap> ranks_;
  std::vector<float> sums_;  // [layers][heads][q blocks][k blocks] of this caption
  std::vector<float> density_;
  float held_out_ = 0;
};

}  // namespace tulle
