// Where tokens are: the grid, the order in memory, and the partition into blocks.
//
//     TokenGrid 13x20x24 ──► TokenOrder "hilbert" ──► BlockPartition of 64 tokens
//
// Raster position of (f, y, x) is (f * height + y) * width + x. Text tokens stand before (prefix) or after (suffix)
// the video tokens; they are never permuted and never share a block with video.
// Thread safety: all types are immutable values once made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tulle {

// Latent tokens after patch embedding. Any extent >= 1; at most kMaxTokens in all.
struct TokenGrid {
  std::int32_t frames = 0, height = 0, width = 0;

  std::int64_t tokens() const { return std::int64_t{frames} * height * width; }
  bool operator==(const TokenGrid&) const = default;
};

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

// Parses "13x20x24" (frames x height x width). Throws Error(kInvalidArgument): not three integers >= 1, or more than
// kMaxTokens tokens.
TokenGrid parse_grid(std::string_view text);
std::string to_string(const TokenGrid& grid);
// Throws Error(kInvalidArgument) as parse_grid does.
void check_grid(const TokenGrid& grid);

enum class TextPlacement : std::uint8_t { kPrefix, kSuffix };

// What self-attention runs over: a grid plus `text_tokens` (possibly 0) joint text tokens.
struct Sequence {
  TokenGrid grid;
  std::int64_t text_tokens = 0;
  TextPlacement placement = TextPlacement::kSuffix;

  std::int64_t tokens() const { return grid.tokens() + text_tokens; }
  std::int64_t video_begin() const { return placement == TextPlacement::kPrefix ? text_tokens : 0; }
  std::int64_t video_end() const { return video_begin() + grid.tokens(); }
  bool operator==(const Sequence&) const = default;
};

// kRaster  as it is
// kTile    boxes of 4x4x4 tokens in raster order, ragged boxes at the far sides
// kMorton  bits of (x, y, f) interleaved, codes sorted
// kHilbert Skilling's transform in the smallest enclosing 2^b cube, digits (x, y, f), codes sorted (DFSAttn's order)
// kGilbert generalised Hilbert curve: neighbours in the order are at most 2 apart on any grid
enum class OrderKind : std::uint8_t { kRaster, kTile, kMorton, kHilbert, kGilbert };

const char* to_string(OrderKind kind);
// Throws Error(kInvalidArgument) that lists the orders there are.
OrderKind parse_order(std::string_view name);
std::span<const OrderKind> all_orders();

// A bijection raster position -> memory position of the video tokens.
struct TokenOrder {
  OrderKind kind = OrderKind::kRaster;
  TokenGrid grid;
  std::vector<std::int32_t> raster_of_memory;  // [tokens]: raster position of the token at a memory position
  std::vector<std::int32_t> memory_of_raster;  // [tokens]: the inverse
};

// Deterministic; O(tokens log tokens).
TokenOrder make_order(OrderKind kind, const TokenGrid& grid);

// Blocks of at most `block` tokens in memory order: video blocks, and text blocks before or after them; the last
// block of either part is ragged. Small and cheap to copy; positions are computed, not stored.
struct BlockPartition {
  Sequence sequence;
  std::int32_t block = 0;  // tokens per full block, >= 1; 0 is the empty partition of no blocks

  std::int64_t video_blocks() const { return block < 1 ? 0 : (sequence.grid.tokens() + block - 1) / block; }
  std::int64_t text_blocks() const { return block < 1 ? 0 : (sequence.text_tokens + block - 1) / block; }
  std::int64_t count() const { return video_blocks() + text_blocks(); }
  std::int64_t tokens() const { return sequence.tokens(); }
  std::int64_t first_video_block() const { return sequence.placement == TextPlacement::kPrefix ? text_blocks() : 0; }
  bool is_text(std::int64_t i) const;
  std::int64_t begin(std::int64_t i) const;  // first token of block i; begin(count()) == tokens()
  std::int64_t end(std::int64_t i) const;    // one behind its last token
  std::int64_t size(std::int64_t i) const { return end(i) - begin(i); }
  std::int64_t block_of(std::int64_t token) const;
  bool operator==(const BlockPartition&) const = default;
};

// Throws Error(kInvalidArgument) unless grid, text (0 <= text_tokens <= kMaxTokens) and block (>= 1) are usable.
void check_partition(const BlockPartition& partition);

}  // namespace tulle
