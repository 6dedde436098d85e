#include "tulle/grid.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/named.hpp"

namespace tulle {
namespace {

constexpr std::array kOrders = {OrderKind::kRaster, OrderKind::kTile, OrderKind::kMorton, OrderKind::kHilbert,
                                OrderKind::kGilbert};

// Reads digits up to `stop` (or the end) and moves `text` behind it; 0 when there is no number that fits.
std::int32_t take_extent(std::string_view& text, char stop) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::size_t used = static_cast<std::size_t>(end - text.data());
  const bool stopped = stop == '\0' ? used == text.size() : used < text.size() && text[used] == stop;
  if (error != std::errc{} || !stopped || value < 1) return 0;
  text.remove_prefix(stop == '\0' ? used : used + 1);
  return value;
}

bool fits(const TokenGrid& g) {
  if (g.frames < 1 || g.height < 1 || g.width < 1) return false;
  // 31 bits times 31 bits fits in 64, and the area is bounded before the third factor comes in.
  const std::int64_t area = std::int64_t{g.frames} * g.height;
  return area <= kMaxTokens && area * g.width <= kMaxTokens;
}

}  // namespace

TokenGrid parse_grid(std::string_view text) {
  std::string_view rest = text;
  TokenGrid grid;
  grid.frames = take_extent(rest, 'x');
  if (grid.frames > 0) grid.height = take_extent(rest, 'x');
  if (grid.height > 0) grid.width = take_extent(rest, '\0');
  require(grid.width > 0, "grid \"{}\" is not FRAMESxHEIGHTxWIDTH with three integers >= 1; write it like 13x20x24",
          text);
  check_grid(grid);
  return grid;
}

std::string to_string(const TokenGrid& g) { return fmt::format("{}x{}x{}", g.frames, g.height, g.width); }

void check_grid(const TokenGrid& grid) {
  require(fits(grid), "grid {} must have three extents >= 1 and at most {} tokens; use a smaller grid", to_string(grid),
          kMaxTokens);
}

const char* to_string(OrderKind kind) {
  switch (kind) {
    case OrderKind::kRaster:
      return "raster";
    case OrderKind::kTile:
      return "tile";
    case OrderKind::kMorton:
      return "morton";
    case OrderKind::kHilbert:
      return "hilbert";
    case OrderKind::kGilbert:
      return "gilbert";
  }
  return "?";
}

OrderKind parse_order(std::string_view name) { return find_named(kOrders, name, "token order"); }

std::span<const OrderKind> all_orders() { return kOrders; }

bool BlockPartition::is_text(std::int64_t i) const {
  return sequence.placement == TextPlacement::kPrefix ? i < text_blocks() : i >= video_blocks();
}

std::int64_t BlockPartition::begin(std::int64_t i) const {
  const bool prefix = sequence.placement == TextPlacement::kPrefix;
  const std::int64_t first_blocks = prefix ? text_blocks() : video_blocks();
  const std::int64_t first_tokens = prefix ? sequence.text_tokens : sequence.grid.tokens();
  if (i < first_blocks) return i * block;
  return std::min(first_tokens + (i - first_blocks) * block, tokens());
}

std::int64_t BlockPartition::end(std::int64_t i) const { return begin(i + 1); }

std::int64_t BlockPartition::block_of(std::int64_t token) const {
  const bool prefix = sequence.placement == TextPlacement::kPrefix;
  const std::int64_t first_tokens = prefix ? sequence.text_tokens : sequence.grid.tokens();
  if (token < first_tokens) return token / block;
  return (prefix ? text_blocks() : video_blocks()) + (token - first_tokens) / block;
}

void check_partition(const BlockPartition& p) {
  check_grid(p.sequence.grid);
  require(p.sequence.text_tokens >= 0 && p.sequence.text_tokens <= kMaxTokens,
          "{} text tokens lie outside [0, {}]; give a smaller text length", p.sequence.text_tokens, kMaxTokens);
  require(p.block >= 1, "a block of {} tokens is not possible; blocks hold at least 1 token", p.block);
}

}  // namespace tulle
