// RankMap: for every head, query block and key block one byte, the smallest density at which the block is kept.
//
// One map holds the masks of all densities: the mask at density p is { blocks with rank <= rank_level(p) }. Ranks are
// quantised upwards on both sides, so that a larger density never loses a block (masks only grow).
// Zhou et al., "ScalingAttention" (2026), the threshold map of WEST.
// Video blocks only: text is not part of a map, its rule is the selector's. One map is of one layer.
// Thread safety: concurrent reads are safe; writes to different rows are safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tulle/grid.hpp"
#include "tulle/mask.hpp"

namespace tulle {

constexpr std::uint8_t kNeverRank = 255;  // the last level: kept at densities above 0.996 only

class RankMap {
 public:
  RankMap() = default;
  // Every rank kNeverRank. q and k partition the same grid without text. Throws Error(kInvalidArgument).
  RankMap(std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order);

  std::int64_t heads() const { return heads_; }
  std::int64_t q_blocks() const { return q_.count(); }
  std::int64_t k_blocks() const { return k_.count(); }
  const BlockPartition& q() const { return q_; }
  const BlockPartition& k() const { return k_; }
  OrderKind order() const { return order_; }

  std::span<std::uint8_t> row(std::int64_t head, std::int64_t q_block);              // k_blocks() bytes
  std::span<const std::uint8_t> row(std::int64_t head, std::int64_t q_block) const;  // each in [1, 255]
  std::span<const std::uint8_t> bytes() const { return ranks_; }                     // [heads][q blocks][k blocks]
  std::span<std::uint8_t> bytes() { return ranks_; }

  bool same_geometry(const RankMap& other) const;
  bool operator==(const RankMap&) const = default;

 private:
  std::int64_t heads_ = 0;
  BlockPartition q_, k_;
  OrderKind order_ = OrderKind::kRaster;
  std::vector<std::uint8_t> ranks_;
};

// ceil(255 * permille / 1000): the level that stands for a density. permille in [1, 1000], else
// Error(kInvalidArgument).
std::uint8_t rank_level(std::int32_t permille);

// The rank of the block that stands at place r (0 is the heaviest) among `blocks` blocks of a row: ceil(255 (r + 1) /
// blocks). At density p it is kept whenever r + 1 <= p * blocks.
std::uint8_t rank_of_place(std::int64_t place, std::int64_t blocks);

// Element-wise minimum, in place: a block is kept as soon as one of the two keeps it (the union over captions). Throws
// Error(kInvalidArgument) unless both have the same geometry.
void unite(RankMap& into, const RankMap& other);

// Kept query x key token pairs of one head at a level over all of the head's pairs, by real tokens, in [0, 1].
double density_at(const RankMap& map, std::int64_t head, std::uint8_t level);
// The mean over heads.
double density_at(const RankMap& map, std::uint8_t level);
// density_at of every level in one pass: entry l is density_at(map, head, l); entry 0 is 0, entry 255 is 1.
std::array<double, 256> density_by_level(const RankMap& map, std::int64_t head);

// The mask at one level a head ([heads]), batch 1; the map's geometry. Level 0 keeps nothing. Throws
// Error(kInvalidArgument) unless there is one level a head.
BlockMask mask_at(const RankMap& map, std::span<const std::uint8_t> levels);

// The map for another grid, order or block size. Both geometries are without text.
//
// A block is a set of boxes, one for each frame that it touches: the rectangle that bounds its tokens in that frame,
// rows and columns as fractions of the frame. (One box around a whole block would not do: a block of raster order that
// ends one frame and begins the next would span all rows of both.) A target pair (u, v) takes the smallest rank among
// the source pairs (u', v') that have boxes over those of u and of v at the same frame distance, k minus q. Distances
// are not scaled, because temporal RoPE angles are not; those beyond what the source has count as its longest. No
// active block gets lost: whatever source block is kept at a level, the target blocks that it covers are kept at that
// level too.
//
// No target row gets lost either: where the block that a source row ranks first lies in a frame that the target does
// not have, the first of the target row's lowest ranks is lowered to that rank. Work: about (source boxes over a target
// box) x (target boxes)^2 byte minima a head; lists are made once for all heads.
RankMap remap(const RankMap& map, const BlockPartition& q, const BlockPartition& k, OrderKind order);

// ScalingAttention's rule: a target block takes the smallest rank of the source blocks whose share of the sequence,
// widened by one row of tokens of the coarser grid, overlaps its own. Cheaper than remap(), and valid in raster order
// with the same number of frames: there a token's place in the sequence, as a fraction, moves by less than that row
// when height and width change. Throws Error(kInvalidArgument) where it is not valid; remap() always is.
RankMap remap_scaled(const RankMap& map, const BlockPartition& q, const BlockPartition& k);

}  // namespace tulle
