#include "attend/tiles.hpp"

#include <cmath>

#include "attend/tile_loop.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"
#include "base/system.hpp"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tulle::cpu {
namespace {

// AMX's arithmetic (Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS): the even and the odd
// elements of a row are summed apart by fused multiply-adds, the two sums are added, then added to C; rounded to
// nearest, and subnormal numbers count as zeros, before and after.
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

struct Emulated {
  struct Tile {
    std::uint8_t bytes[16][64];
  };
  inline static thread_local std::array<Tile, 8> tiles;

  static void begin() {}
  static void end() {}
  template <int kTile>
  static void zero() {
    tiles[kTile] = {};
  }
  template <int kTile>
  static void load(const void* at, std::int64_t row) {
    for (int i = 0; i < 16; ++i) std::memcpy(tiles[kTile].bytes[i], static_cast<const char*>(at) + i * row, 64);
  }
  template <int kTile>
  static void store(void* at, std::int64_t row) {
    for (int i = 0; i < 16; ++i) std::memcpy(static_cast<char*>(at) + i * row, tiles[kTile].bytes[i], 64);
  }
  static float factor(int tile, int row, int at) {
    Bf16 x;
    std::memcpy(&x, tiles[static_cast<std::size_t>(tile)].bytes[row] + 2 * at, 2);
    return flushed(to_f32(x));
  }
  static float dot(int a, int b, int m, int n) {
    float sums[2] = {};
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 2; ++i)
        sums[i] = flushed(std::fma(factor(a, m, 2 * k + i), factor(b, k, 2 * n + i), sums[i]));
    }
    return flushed(sums[0] + sums[1]);
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float c;
        std::memcpy(&c, tiles[kC].bytes[m] + 4 * n, 4);
        c = flushed(flushed(c) + dot(kA, kB, m, n));
        std::memcpy(tiles[kC].bytes[m] + 4 * n, &c, 4);
      }
    }
  }
};

#if defined(__linux__) && defined(__x86_64__)
// Linux hands out the tile registers on request, for the whole process.
bool ask_for_tiles() {
  constexpr long kRequestFeature = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestFeature, kTileData) == 0;
}
#else
bool ask_for_tiles() { return false; }
#endif

TileUnit& chosen_unit() {
  static TileUnit unit = has_amx() ? TileUnit::kAmx : TileUnit::kNone;
  return unit;
}

constexpr std::array<Bf16, kMaxOutDim> kNothing{};

// The row of a token, zeros at and beyond the end.
const Bf16* row_of(const Rows& from, std::int64_t token, std::int64_t end) {
  return token < std::min(end, from.view.tokens()) ? from.view.row<Bf16>(from.batch, token, from.head)
                                                   : kNothing.data();
}

std::uint32_t pair_of(Bf16 low, Bf16 high) { return low.bits | static_cast<std::uint32_t>(high.bits) << 16; }

}  // namespace

bool has_amx() {
  static const bool has = amx_compiled() && cpu_has("amx_tile") && cpu_has("amx_bf16") && ask_for_tiles();
  return has;
}

const char* to_string(TileUnit unit) {
  switch (unit) {
    case TileUnit::kNone:
      return "vectors alone";
    case TileUnit::kAmx:
      return "AMX";
    case TileUnit::kEmulated:
      return "AMX emulated";
  }
  return "?";
}

TileUnit tile_unit() { return chosen_unit(); }

void use_tile_unit(TileUnit unit) {
  require(unit != TileUnit::kAmx || has_amx(), "attention: this machine or build has no AMX for bf16");
  chosen_unit() = unit;
}

void attend_tile_emulated(const TileArgs& args) { attend_tile_by<Emulated>(args); }

void attend_tile_with_unit(const TileArgs& args) {
  if (tile_unit() == TileUnit::kAmx) return attend_tile_amx(args);
  attend_tile_emulated(args);
}

void pack_k_units(const Rows& k, std::int64_t panel, std::int64_t depth, std::uint32_t* out) {
  const std::int64_t dim = k.view.head_dim(), first = panel * kUnitPanel;
  std::fill_n(out, kUnitPanel * depth / 2, 0u);
  for (std::int64_t key = 0; key < kUnitPanel; ++key) {
    const Bf16* row = row_of(k, first + key, k.view.tokens());
    std::uint32_t* column = out + key / 16 * kUnitWords + key % 16;
    for (std::int64_t i = 0; i < dim; i += 2)
      column[i / kUnitDepth * 2 * kUnitWords + i % kUnitDepth * 8] = pair_of(row[i], row[i + 1]);
  }
}

void pack_v_units(const Rows& v, std::int64_t panel, std::int64_t out_dim, std::uint32_t* out) {
  const std::int64_t dim = v.view.head_dim(), first = panel * kUnitPanel;
  for (std::int64_t pair = 0; pair < kUnitPanel / 2; ++pair) {
    const Bf16 *low = row_of(v, first + 2 * pair, v.view.tokens()),
               *high = row_of(v, first + 2 * pair + 1, v.view.tokens());
    for (std::int64_t column = 0; column < out_dim; column += 16) {
      std::uint32_t* to = out + column / 16 * kUnitWords + pair * 16;
      const std::int64_t part = std::clamp<std::int64_t>(dim - column, 0, 16);
      for (std::int64_t n = 0; n < part; ++n) to[n] = pair_of(low[column + n], high[column + n]);
      std::fill(to + part, to + 16, 0u);
    }
  }
}

void pack_q_units(const Rows& q, std::int64_t begin, std::int64_t end, float sign, std::span<const RowGroup> groups,
                  std::int64_t depth, Bf16* out) {
  const std::int64_t dim = q.view.head_dim(), rows = groups.back().first + groups.back().rows;
  const std::uint16_t flip = sign < 0 ? 0x8000 : 0;
  for (std::int64_t r = 0; r < rows; ++r, out += depth) {
    const Bf16* row = row_of(q, begin + r, end);
    for (std::int64_t i = 0; i < dim; ++i) out[i] = {static_cast<std::uint16_t>(row[i].bits ^ flip)};
    std::fill(out + dim, out + depth, Bf16{0});
  }
}

}  // namespace tulle::cpu
