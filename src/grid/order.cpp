// The named orders. Each function returns raster positions in memory order.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "grid/gilbert.hpp"
#include "tulle/grid.hpp"

namespace tulle {
namespace {

using Raster = std::vector<std::int32_t>;

std::int32_t raster_at(const TokenGrid& g, std::int32_t f, std::int32_t y, std::int32_t x) {
  return (f * g.height + y) * g.width + x;
}

Raster raster_order(const TokenGrid& g) {
  Raster order(static_cast<std::size_t>(g.tokens()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

constexpr std::int32_t kTileSide = 4;

void append_tile(const TokenGrid& g, std::array<std::int32_t, 3> corner, Raster& order) {
  const std::int32_t f_end = std::min(corner[0] + kTileSide, g.frames);
  const std::int32_t y_end = std::min(corner[1] + kTileSide, g.height);
  const std::int32_t x_end = std::min(corner[2] + kTileSide, g.width);
  for (std::int32_t f = corner[0]; f < f_end; ++f)
    for (std::int32_t y = corner[1]; y < y_end; ++y)
      for (std::int32_t x = corner[2]; x < x_end; ++x) order.push_back(raster_at(g, f, y, x));
}

Raster tile_order(const TokenGrid& g) {
  Raster order;
  order.reserve(static_cast<std::size_t>(g.tokens()));
  for (std::int32_t f = 0; f < g.frames; f += kTileSide)
    for (std::int32_t y = 0; y < g.height; y += kTileSide)
      for (std::int32_t x = 0; x < g.width; x += kTileSide) append_tile(g, {f, y, x}, order);
  return order;
}

// Position on a curve through a 2^24 cube: 72 bits, the upper 48 and the lower 24.
struct Code {
  std::uint64_t high = 0;
  std::uint32_t low = 0;
  std::int32_t raster = 0;
  bool operator<(const Code& o) const { return high != o.high ? high < o.high : low < o.low; }
};

constexpr int kLevels = 24;    // bits per coordinate: one axis may hold all kMaxTokens
constexpr int kLowLevels = 8;  // of them in Code::low

using Axes = std::array<std::uint32_t, 3>;

// Interleaves the coordinates from the top bit down; axes[0] gives the highest bit of each triple.
Code interleave(const Axes& axes) {
  Code code;
  for (int bit = kLevels - 1; bit >= 0; --bit) {
    const std::uint32_t triple = ((axes[0] >> bit) & 1u) << 2 | ((axes[1] >> bit) & 1u) << 1 | ((axes[2] >> bit) & 1u);
    if (bit >= kLowLevels)
      code.high = code.high << 3 | triple;
    else
      code.low = code.low << 3 | triple;
  }
  return code;
}

Code morton_code(const Axes& xyf, int) { return interleave({xyf[2], xyf[1], xyf[0]}); }

// J. Skilling, "Programming the Hilbert curve" (2004): coordinates to the transposed Hilbert index, in place.
Axes hilbert_transpose(Axes axes, int bits) {
  const std::uint32_t top = 1u << (bits - 1);
  // Undo the excess work: from the top bit down, each set bit flips axis 0, each clear one exchanges with axis 0.
  for (std::uint32_t q = top; q > 1; q >>= 1) {
    const std::uint32_t below = q - 1;
    for (std::uint32_t& axis : axes) {
      const std::uint32_t exchange = (axes[0] ^ axis) & below;
      if (axis & q)
        axes[0] ^= below;
      else
        axes[0] ^= exchange, axis ^= exchange;
    }
  }
  axes[1] ^= axes[0];
  axes[2] ^= axes[1];
  std::uint32_t flip = 0;
  for (std::uint32_t q = top; q > 1; q >>= 1) {
    if (axes[2] & q) flip ^= q - 1;
  }
  for (std::uint32_t& axis : axes) axis ^= flip;
  return axes;
}

Code hilbert_code(const Axes& xyf, int bits) { return interleave(hilbert_transpose(xyf, bits)); }

int cube_bits(const TokenGrid& g) {
  const auto longest = static_cast<std::uint32_t>(std::max({g.frames, g.height, g.width}));
  return std::max(1, static_cast<int>(std::bit_width(longest - 1)));
}

// Tokens sorted by their position on a curve through the enclosing cube.
Raster sorted_by(const TokenGrid& g, Code (*code_of)(const Axes& xyf, int bits)) {
  const int bits = cube_bits(g);
  std::vector<Code> codes(static_cast<std::size_t>(g.tokens()));
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(codes.size()); ++i) {
    const Axes xyf = {static_cast<std::uint32_t>(i % g.width), static_cast<std::uint32_t>(i / g.width % g.height),
                      static_cast<std::uint32_t>(i / g.width / g.height)};
    codes[static_cast<std::size_t>(i)] = code_of(xyf, bits);
    codes[static_cast<std::size_t>(i)].raster = i;
  }
  std::sort(codes.begin(), codes.end());
  Raster order(codes.size());
  std::transform(codes.begin(), codes.end(), order.begin(), [](const Code& c) { return c.raster; });
  return order;
}

Raster raster_of(OrderKind kind, const TokenGrid& grid) {
  switch (kind) {
    case OrderKind::kRaster:
      return raster_order(grid);
    case OrderKind::kTile:
      return tile_order(grid);
    case OrderKind::kMorton:
      return sorted_by(grid, morton_code);
    case OrderKind::kHilbert:
      return sorted_by(grid, hilbert_code);
    case OrderKind::kGilbert:
      return gilbert_order(grid);
  }
  return {};
}

}  // namespace

TokenOrder make_order(OrderKind kind, const TokenGrid& grid) {
  check_grid(grid);
  TokenOrder order{kind, grid, raster_of(kind, grid), {}};
  order.memory_of_raster.resize(order.raster_of_memory.size());
  for (std::size_t m = 0; m < order.raster_of_memory.size(); ++m) {
    order.memory_of_raster[static_cast<std::size_t>(order.raster_of_memory[m])] = static_cast<std::int32_t>(m);
  }
  return order;
}

}  // namespace tulle
