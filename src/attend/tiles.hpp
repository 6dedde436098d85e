// attend_cpu's inner kernel for bf16 where the processor multiplies tiles (Intel AMX): the same attention of one tile
// of query rows over a list of key panels as kernel_cpu.hpp, with products of bf16 summed in f32.
//
//     unit      [16][32] x [32][16] bf16 -> [16][16] f32; its right operand lies in pairs: [16 pairs][16][2]
//     Q group   [rows][depth]                                     depth: head_dim rounded up to 32, zeros behind
//     K panel   [depth / 32][2][16 pairs of dims][16 keys][2]     32 keys
//     V panel   [out_dim / 16][16 pairs of keys][16 outputs][2]   the same 32 keys
//
// Weights of keys are rounded to bf16 before they meet V, and summed before that, so that the log-sum-exp is as exact
// as in f32. A row's result is a function of that row, of the seen keys and of K and V, as there.
#pragma once

#include "attend/kernel_cpu.hpp"
#include "attend/pack.hpp"

namespace tulle::cpu {

constexpr std::int64_t kUnitRows = 16, kUnitDepth = 32;  // of the left operand
constexpr std::int64_t kUnitPanel = 32;                  // keys
constexpr std::int64_t kMaxOutDim = 256;
constexpr std::int64_t kUnitWords = kUnitRows * kUnitDepth / 2;  // words are pairs, the first in the lower half

enum class TileUnit : std::uint8_t {
  kNone,  // bf16 is computed in f32, as kernel_cpu.hpp says
  kAmx,
  kEmulated,  // AMX's arithmetic in plain C++, to test the kernel anywhere
};

const char* to_string(TileUnit unit);

// Whether this build, processor and system have AMX for bf16; asks the system for it once.
bool has_amx();
// The unit in use: AMX where there is one. Another choice is for tests and benches: global, and no call may be in
// flight.
TileUnit tile_unit();
void use_tile_unit(TileUnit unit);

void attend_tile_with_unit(const TileArgs& args);

// As in pack.hpp, in the layouts above.
void pack_k_units(const Rows& k, std::int64_t panel, std::int64_t depth, std::uint32_t* out);
void pack_v_units(const Rows& v, std::int64_t panel, std::int64_t out_dim, std::uint32_t* out);
void pack_q_units(const Rows& q, std::int64_t begin, std::int64_t end, float sign, std::span<const RowGroup> groups,
                  std::int64_t depth, Bf16* out);

// What attend_tile_with_unit does with the unit itself; one each for AMX and its emulation.
void attend_tile_amx(const TileArgs& args);
void attend_tile_emulated(const TileArgs& args);
bool amx_compiled();

}  // namespace tulle::cpu
