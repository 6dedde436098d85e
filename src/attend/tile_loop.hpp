// The loop of attention over panels, for anything that multiplies tiles. Tiles is a class of static functions, all on
// eight registers of [16][32] bf16 or [16][16] f32 that a thread has:
//
//     begin(), end()                      around a call
//     zero<T>(); load<T>(at, bytes a row); store<T>(at, bytes a row)
//     multiply<C, A, B>()                 C += A B
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "attend/soften.hpp"
#include "attend/tiles.hpp"

namespace tulle::cpu {

constexpr std::int64_t kRunPanels = 4;                // between two rescalings
constexpr std::int64_t kMaxUnitRows = 2 * kUnitRows;  // of a group
// Rows of scores and of weights, padded so that the rows of a tile do not share cache sets.
constexpr std::int64_t kScoreStride = kRunPanels * kUnitPanel + 16, kWeightStride = kRunPanels * kUnitPanel + 32;

// scores[rows][32] = q k^T of one panel.
template <class Tiles, bool kTwo>
void score_panel(const Bf16* q, const std::uint32_t* k, std::int64_t depth, float* scores) {
  const std::int64_t q_row = depth * 2, s_row = kScoreStride * 4;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  if constexpr (kTwo) Tiles::template zero<2>(), Tiles::template zero<3>();
  for (std::int64_t at = 0; at < depth; at += kUnitDepth, k += 2 * kUnitWords) {
    Tiles::template load<4>(q + at, q_row);
    Tiles::template load<6>(k, 64);
    Tiles::template load<7>(k + kUnitWords, 64);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template multiply<1, 4, 7>();
    if constexpr (kTwo) {
      Tiles::template load<5>(q + at + kUnitRows * depth, q_row);
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
    }
  }
  Tiles::template store<0>(scores, s_row);
  Tiles::template store<1>(scores + kUnitRows, s_row);
  if constexpr (kTwo) {
    Tiles::template store<2>(scores + kUnitRows * kScoreStride, s_row);
    Tiles::template store<3>(scores + kUnitRows * kScoreStride + kUnitRows, s_row);
  }
}

// out[rows][32] += weights v over a run of panels; the two units of these outputs stand `offset` words into each v[i].
template <class Tiles, bool kTwo>
void add_panels(const Bf16* weights, std::span<const std::uint32_t* const> v, std::int64_t offset, float* out,
                std::int64_t out_dim) {
  const std::int64_t o_row = out_dim * 4, w_row = kWeightStride * 2;
  Tiles::template load<0>(out, o_row);
  Tiles::template load<1>(out + kUnitRows, o_row);
  if constexpr (kTwo) {
    Tiles::template load<2>(out + kUnitRows * out_dim, o_row);
    Tiles::template load<3>(out + kUnitRows * out_dim + kUnitRows, o_row);
  }
  for (const std::uint32_t* panel : v) {
    Tiles::template load<4>(weights, w_row);
    Tiles::template load<6>(panel + offset, 64);
    Tiles::template load<7>(panel + offset + kUnitWords, 64);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template multiply<1, 4, 7>();
    if constexpr (kTwo) {
      Tiles::template load<5>(weights + kUnitRows * kWeightStride, w_row);
      Tiles::template multiply<2, 5, 6>();
      Tiles::template multiply<3, 5, 7>();
    }
    weights += kUnitPanel;
  }
  Tiles::template store<0>(out, o_row);
  Tiles::template store<1>(out + kUnitRows, o_row);
  if constexpr (kTwo) {
    Tiles::template store<2>(out + kUnitRows * out_dim, o_row);
    Tiles::template store<3>(out + kUnitRows * out_dim + kUnitRows, o_row);
  }
}

// V of a run's panels. Where not all keys of a panel are seen, a copy with zeros for those that are not: their weights
// are 0, but their V may be anything, also NaN.
struct RunValues {
  alignas(64) std::array<std::uint32_t, kRunPanels * kUnitPanel * kMaxOutDim / 2> copies;
  std::array<const std::uint32_t*, kRunPanels> panels{};

  void take(const TileArgs& args, std::span<const Panel> run) {
    const std::int64_t words = kUnitPanel * args.out_dim / 2;
    std::uint32_t* free = copies.data();
    for (std::size_t i = 0; i < run.size(); ++i) {
      panels[i] = static_cast<const std::uint32_t*>(args.v) + run[i].index * words;
      if (run[i].lanes == ~std::uint32_t{0}) continue;
      std::copy_n(panels[i], words, free);
      for (std::int64_t pair = 0; pair < kUnitPanel / 2; ++pair) {
        const std::uint32_t seen = run[i].lanes >> (2 * pair);
        const std::uint32_t keep = ((seen & 1) != 0 ? 0xffffu : 0u) | ((seen & 2) != 0 ? 0xffff0000u : 0u);
        for (std::int64_t at = pair * 16; at < words; at += kUnitWords) {
          for (std::int64_t n = 0; n < 16; ++n) free[at + n] &= keep;
        }
      }
      panels[i] = free;
      free += words;
    }
  }
};

template <class Tiles, bool kTwo>
void attend_group(const TileArgs& args, std::span<const Panel> run, const RowGroup& group, const RunValues& values,
                  float* lane_sums) {
  alignas(64) float scores[kMaxUnitRows * kScoreStride];
  alignas(64) Bf16 weights[kMaxUnitRows * kWeightStride];
  const Bf16* q = static_cast<const Bf16*>(args.q) + group.first * args.head_dim;
  float* out = args.out + group.first * args.out_dim;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const std::uint32_t* k =
        static_cast<const std::uint32_t*>(args.k) + run[i].index * (kUnitPanel * args.head_dim / 2);
    score_panel<Tiles, kTwo>(q, k, args.head_dim, scores + i * kUnitPanel);
  }
  soften_rows({.scores = scores,
               .score_stride = kScoreStride,
               .weights = weights,
               .weight_stride = kWeightStride,
               .run = run,
               .rows = group.rows,
               .scale_log2 = args.scale_log2,
               .top_log2 = args.top_log2 + group.first,
               .lane_sums = lane_sums + group.first * kSumLanes,
               .out = out,
               .out_dim = args.out_dim});
  const std::span<const std::uint32_t* const> v(values.panels.data(), run.size());
  for (std::int64_t column = 0; column < args.out_dim; column += kUnitPanel)
    add_panels<Tiles, kTwo>(weights, v, column / 16 * kUnitWords, out + column, args.out_dim);
}

template <class Tiles>
void attend_tile_by(const TileArgs& args) {
  const std::int64_t rows = args.groups.back().first + args.groups.back().rows;
  alignas(64) float lane_sums[(kTileRows + kTilePadding) * kSumLanes];
  RunValues values;
  std::fill_n(args.out, rows * args.out_dim, 0.0f);
  std::fill_n(args.top_log2, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(lane_sums, rows * kSumLanes, 0.0f);
  Tiles::begin();
  for (std::size_t at = 0; at < args.panels.size(); at += kRunPanels) {
    const auto run = args.panels.subspan(at, std::min<std::size_t>(kRunPanels, args.panels.size() - at));
    values.take(args, run);
    for (const RowGroup& group : args.groups) {
      if (group.rows > kUnitRows)
        attend_group<Tiles, true>(args, run, group, values, lane_sums);
      else
        attend_group<Tiles, false>(args, run, group, values, lane_sums);
    }
  }
  Tiles::end();
  for (std::int64_t r = 0; r < rows; ++r) {
    args.sum[r] = 0;
    for (std::int64_t i = 0; i < kSumLanes; ++i) args.sum[r] += lane_sums[r * kSumLanes + i];
  }
}

}  // namespace tulle::cpu
