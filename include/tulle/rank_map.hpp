// RankMap: for every head, query block and key block one byte, the smallest density at which the block is kept.
//
// One map holds the masks of all densities: the mask at density p is { blocks with rank <= rank_level(p) }. Ranks are
// quantised upwards on both sides, so that a larger density never loses a block (masks only grow).
// Zhou et al., "ScalingAttention" (2026), the threshold map of WEST.
// Video blocks only: text is not part of a map, its rule is the selector's. One map is of one layer.
// Thread safety: concurrent reads are safe; writes to different rows are safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tulle/grid.hpp"
#include "tulle/mask.hpp"

namespace tulle {

constexpr std::uint8_t kNeverRank = 255;  // kept at density 1 only

class RankMap {
 public:
  RankMap() = default;
  // Every rank kNeverRank. q and k partition the same sequence without text. Throws Error(kInvalidArgument).
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

// The mask at one level a head ([heads]), batch 1; the map's geometry.
BlockMask mask_at(const RankMap& map, std::span<const std::uint8_t> levels);

// The map for another grid, order or block size. Both geometries are without text.
//
// Each block is the box that bounds its tokens: frames as they are, rows and columns as fractions of the frame. A target
// pair (u, v) takes the smallest rank among the source pairs (u', v') whose row and column boxes overlap those of u and
// v, and whose frame distance, k minus q, overlaps that of (u, v). Distances are not scaled, because temporal RoPE
// angles are not; those beyond what the source has count as its longest. No active block gets lost: whatever source
// block is kept at a level, the target blocks that it covers are kept at that level too.
RankMap remap(const RankMap& map, const BlockPartition& q, const BlockPartition& k, OrderKind order);

// ScalingAttention's rule, valid in raster order with the same number of frames and heights and widths in one ratio: a
// target block takes the smallest rank of the source blocks whose share of the sequence, widened by one row of tokens,
// overlaps its own. Throws Error(kInvalidArgument) where it is not valid; remap() always is.
RankMap remap_scaled(const RankMap& map, const BlockPartition& q, const BlockPartition& k);

}  // namespace tulle
