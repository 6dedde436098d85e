// The register-tiled inner kernel of attend_cpu: attention of one tile of query rows over a list of key panels.
//
//     panel = the keys [p * panel_keys, (p + 1) * panel_keys) of one head; lanes = which of them are seen
//     K panel   f32 [head_dim][panel_keys]                    (transposed: one query value meets a vector of keys)
//     V         f32 [out_dim / panel_keys][v_column_panels][panel_keys][panel_keys]: of all panels the first outputs,
//               then of all panels the next (one weight meets a vector of outputs)
//     Q group   f32 [head_dim][rows of the group]
//
// A row's result is a function of that row of Q, of the seen keys, and of K and V, and of nothing else: not of the
// blocks that the keys came in, of the other rows of its tile, or of threads. The online softmax (Milakov and
// Gimelshein, "Online normalizer calculation for softmax"; FlashAttention) steps over fixed runs of panels of the list.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/tensor.hpp"

namespace tulle::cpu {

// What the instruction set in use wants.
struct KernelShape {
  std::int64_t group_rows = 0;  // query rows of a full register tile
  std::int64_t small_rows = 0;  // and of the last groups of a tile, which may be smaller
  std::int64_t panel_keys = 0;  // keys of a panel, and outputs of a column; at most 32
  std::int64_t depth = 1;       // head_dim is rounded up to a multiple of it
  bool units = false;           // the layouts of tiles.hpp, in bf16; else those above, in f32
};

struct Panel {
  std::int32_t index = 0;
  std::uint32_t lanes = 0;  // bit i: key index * panel_keys + i is seen; never 0
};

constexpr std::int64_t kTileRows = 96;     // most query rows of one call
constexpr std::int64_t kTilePadding = 16;  // rows that rounding up to whole groups may add
constexpr std::int64_t kMaxPanelKeys = 32;

// Rows [first, first + rows) of a tile, rows being group_rows or small_rows.
struct RowGroup {
  std::int64_t first = 0, rows = 0;
};

struct TileArgs {
  const void* q = nullptr;  // packed groups, one after the other
  std::span<const RowGroup> groups;
  const void* k = nullptr;  // all packed panels of the head
  const void* v = nullptr;
  std::span<const Panel> panels;     // in increasing order
  std::int64_t head_dim = 0;         // d, rounded up as the shape asks
  std::int64_t out_dim = 0;          // d rounded up to whole columns of panel_keys outputs
  std::int64_t v_column_panels = 0;  // panels from one column of V to the next; not used with units
  float scale_log2 = 0;              // scale * log2(e), > 0
  float* out = nullptr;              // [rows][out_dim], result: sum of weights * V, not yet divided
  float* top_log2 = nullptr;         // [rows], result: scale_log2 * largest q.k; -inf when no panel was given
  float* sum = nullptr;              // [rows], result: sum of weights
};

KernelShape kernel_shape(DType dtype);
void attend_tile(const KernelShape& shape, const TileArgs& args);

// 2^x as the kernel computes it, for x <= 0 (n values; relative error below 2e-7, results below 2^-126 become 2^-126).
void exp2_nonpositive(const float* x, float* y, std::int64_t n);

// Instruction sets compiled in that this machine can run, best first; and the choice of one of them. The choice is
// for tests: it is global, and calls in flight must not overlap it. An empty name gives the machine's best again.
std::span<const char* const> targets();
void use_target(const char* name);

}  // namespace tulle::cpu
