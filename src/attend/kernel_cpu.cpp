#include "attend/kernel_cpu.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>
#include <vector>

#include "attend/tiles.hpp"
#include "base/fail.hpp"

// Register arrays need vectors of fixed size, which SVE has not; its machines run NEON. SSSE3 without SSE4 is extinct.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attend/kernel_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "attend/exp2-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPanel = 2 * kLanes;
// 6 x 2 accumulators, 2 vectors of B and 1 of A fill 16 registers; 12 x 2 + 2 + 1 fit 32.
constexpr int kGroup = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 12 : 6;
constexpr int kSmallGroup = 4;
constexpr int kRunKeys = 128;  // keys between two rescalings
constexpr int kRunPanels = kRunKeys / kPanel;
constexpr int kRowStride = kRunKeys + 16;  // broadcasts down a column of weights must not share a cache bank
constexpr int kStripRows = 24;             // rows whose weights for one run stay in the first-level cache

KernelShape shape_of_target() { return {kGroup, kSmallGroup, kPanel}; }

HWY_INLINE const float* keys_of(const TileArgs& args) { return static_cast<const float*>(args.k); }
HWY_INLINE const float* values_of(const TileArgs& args) { return static_cast<const float*>(args.v); }

// What the groups of a strip ask the memory for while they compute, a few lines at a time: the panel of K that comes
// next and, in the strip that meets a panel first, the panel's V, wanted after the softmax. The hardware sees no
// pattern in a sparse list, and asking for all of it at once would block the loads that the arithmetic waits for.
struct Ahead {
  const float* k;
  const float* v;              // null: do not ask
  std::int64_t column_stride;  // floats from one column of V to the next
  std::int64_t line;           // next line of both
};
constexpr int kDepthStep = 8;  // head_dim is a multiple of it
constexpr int kLine = 16;      // floats
// All groups of a strip together ask for a whole panel.
constexpr int kLinesAStep = kDepthStep * kPanel * kGroup / (kLine * kStripRows);

HWY_INLINE void fetch(Ahead& ahead) {
  constexpr int kColumnLines = std::max(1, kPanel * kPanel / kLine);
  for (int i = 0; i < kLinesAStep; ++i, ++ahead.line) {
    hwy::Prefetch(ahead.k + ahead.line * kLine);
    if (ahead.v == nullptr) continue;
    hwy::Prefetch(ahead.v + ahead.line / kColumnLines * ahead.column_stride + ahead.line % kColumnLines * kLine);
  }
}

// scores[r][0 .. kPanel) = q[:, r] . k[:, 0 .. kPanel)
template <int kRows>
HWY_INLINE void score_group(const float* HWY_RESTRICT q, const float* HWY_RESTRICT k, std::int64_t depth, Ahead& ahead,
                            float* HWY_RESTRICT scores) {
  const D d;
  V acc[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = hn::Zero(d);
  for (std::int64_t step = 0; step < depth; step += kDepthStep) {
    fetch(ahead);
#pragma GCC unroll 8
    for (int i = 0; i < kDepthStep; ++i, q += kRows, k += kPanel) {
      const V b0 = hn::Load(d, k), b1 = hn::Load(d, k + kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V a = hn::Set(d, q[r]);
        acc[r][0] = hn::MulAdd(a, b0, acc[r][0]);
        acc[r][1] = hn::MulAdd(a, b1, acc[r][1]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    hn::Store(acc[r][0], d, scores + r * kRowStride);
    hn::Store(acc[r][1], d, scores + r * kRowStride + kLanes);
  }
}

template <int kRows>
HWY_INLINE void add_key(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT v, V (&acc)[kRows][2]) {
  const D d;
  const V b0 = hn::Load(d, v), b1 = hn::Load(d, v + kLanes);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const V a = hn::Set(d, weights[r * kRowStride]);
    acc[r][0] = hn::MulAdd(a, b0, acc[r][0]);
    acc[r][1] = hn::MulAdd(a, b1, acc[r][1]);
  }
}

constexpr std::uint32_t kAllLanes = static_cast<std::uint32_t>((std::uint64_t{1} << kPanel) - 1);

// out[r][0 .. kPanel) = decay[r] * out[r][..] + sum over the run's keys of weights[r][key] * v[key][..].
// Keys that are not seen are stepped over, not multiplied by 0: their V may be anything, also NaN.
template <int kRows>
HWY_INLINE void add_values(const TileArgs& args, std::span<const Panel> run, const float* HWY_RESTRICT decay,
                           const float* HWY_RESTRICT weights, std::int64_t column, float* HWY_RESTRICT out) {
  const D d;
  V acc[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const V a = hn::Set(d, decay[r]);
    acc[r][0] = hn::Mul(a, hn::Load(d, out + r * args.out_dim));
    acc[r][1] = hn::Mul(a, hn::Load(d, out + r * args.out_dim + kLanes));
  }
  for (const Panel& panel : run) {
    const float* v = values_of(args) + (column * args.v_column_panels + panel.index) * (kPanel * kPanel);
    if (HWY_LIKELY(panel.lanes == kAllLanes)) {
#pragma GCC unroll 4
      for (int j = 0; j < kPanel; ++j) add_key<kRows>(weights + j, v + j * kPanel, acc);
    } else {
      for (std::uint32_t left = panel.lanes; left != 0; left &= left - 1) {
        const int j = std::countr_zero(left);
        add_key<kRows>(weights + j, v + j * kPanel, acc);
      }
    }
    weights += kPanel;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    hn::Store(acc[r][0], d, out + r * args.out_dim);
    hn::Store(acc[r][1], d, out + r * args.out_dim + kLanes);
  }
}

// Softmax state of a tile's rows. Sums stay spread over lanes until the end.
struct State {
  HWY_ALIGN float scores[kStripRows * kRowStride];
  HWY_ALIGN float lane_sum[(kTileRows + kTilePadding) * kLanes];
  HWY_ALIGN float decay[kStripRows + kLanes];
  HWY_ALIGN float top[kStripRows + kLanes];
};

HWY_INLINE void hide_lanes(std::uint32_t lanes, float* HWY_RESTRICT scores) {
  for (std::uint32_t left = ~lanes & kAllLanes; left != 0; left &= left - 1) {
    scores[std::countr_zero(left)] = -std::numeric_limits<float>::infinity();
  }
}

HWY_INLINE float row_top(const float* HWY_RESTRICT scores, std::size_t panels) {
  const D d;
  V m0 = hn::Load(d, scores), m1 = hn::Load(d, scores + kLanes);
  for (std::size_t p = 1; p < panels; ++p) {
    m0 = hn::Max(m0, hn::Load(d, scores + p * kPanel));
    m1 = hn::Max(m1, hn::Load(d, scores + p * kPanel + kLanes));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

HWY_INLINE void exponentiate_row(float scale, float top, float decay, std::size_t panels, float* HWY_RESTRICT scores,
                                 float* HWY_RESTRICT lane_sum) {
  const D d;
  const V vscale = hn::Set(d, scale), vtop = hn::Set(d, top);
  V s0 = hn::Mul(hn::Set(d, decay), hn::Load(d, lane_sum)), s1 = hn::Zero(d);
  for (std::size_t p = 0; p < panels; ++p, scores += kPanel) {
    const V e0 = exp2_vector(hn::MulSub(hn::Load(d, scores), vscale, vtop));
    const V e1 = exp2_vector(hn::MulSub(hn::Load(d, scores + kLanes), vscale, vtop));
    hn::Store(e0, d, scores);
    hn::Store(e1, d, scores + kLanes);
    s0 = hn::Add(s0, e0);
    s1 = hn::Add(s1, e1);
  }
  hn::Store(hn::Add(s0, s1), d, lane_sum);
}

// Turns the strip's scores into weights relative to the new row maxima, and leaves each row's decay of the old.
HWY_NOINLINE void soften(const TileArgs& args, std::span<const Panel> run, std::int64_t first, std::int64_t rows,
                         State& state) {
  const D d;
  for (std::size_t p = 0; p < run.size(); ++p) {
    if (run[p].lanes == kAllLanes) continue;
    for (std::int64_t r = 0; r < rows; ++r) hide_lanes(run[p].lanes, state.scores + r * kRowStride + p * kPanel);
  }
  float* old_top = args.top_log2 + first;
  for (std::int64_t r = 0; r < rows; ++r) {
    state.top[r] = std::max(old_top[r], args.scale_log2 * row_top(state.scores + r * kRowStride, run.size()));
    state.decay[r] = old_top[r] - state.top[r];
    old_top[r] = state.top[r];
  }
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    hn::Store(exp2_vector(hn::LoadU(d, state.decay + r)), d, state.decay + r);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    exponentiate_row(args.scale_log2, state.top[r], state.decay[r], run.size(), state.scores + r * kRowStride,
                     state.lane_sum + (first + r) * kLanes);
  }
}

// Scores of panels [at, at + count) of the list.
HWY_NOINLINE void score_strip(const TileArgs& args, std::size_t at, std::size_t count, std::span<const RowGroup> groups,
                              float* scores) {
  const std::int64_t strip_first = groups.front().first, k_floats = kPanel * args.head_dim;
  for (std::size_t p = at; p < at + count; ++p, scores += kPanel) {
    Ahead ahead{keys_of(args) + args.panels[std::min(p + 1, args.panels.size() - 1)].index * k_floats,
                strip_first == 0 ? values_of(args) + args.panels[p].index * (kPanel * kPanel) : nullptr,
                args.v_column_panels * (kPanel * kPanel), 0};
    for (const RowGroup& group : groups) {
      const float* q = static_cast<const float*>(args.q) + group.first * args.head_dim;
      const float* k = keys_of(args) + args.panels[p].index * k_floats;
      float* s = scores + (group.first - strip_first) * kRowStride;
      if (group.rows == kGroup)
        score_group<kGroup>(q, k, args.head_dim, ahead, s);
      else
        score_group<kSmallGroup>(q, k, args.head_dim, ahead, s);
    }
  }
}

HWY_NOINLINE void value_strip(const TileArgs& args, std::span<const Panel> run, std::span<const RowGroup> groups,
                              const State& state) {
  for (std::int64_t column = 0; column < args.out_dim / kPanel; ++column) {
    for (const RowGroup& group : groups) {
      const std::int64_t local = group.first - groups.front().first;
      const float* weights = state.scores + local * kRowStride;
      float* out = args.out + group.first * args.out_dim + column * kPanel;
      if (group.rows == kGroup)
        add_values<kGroup>(args, run, state.decay + local, weights, column, out);
      else
        add_values<kSmallGroup>(args, run, state.decay + local, weights, column, out);
    }
  }
}

// As many of `groups` as fit a strip.
HWY_INLINE std::size_t strip_length(std::span<const RowGroup> groups) {
  std::size_t n = 1;
  while (n < groups.size() && groups[n].first + groups[n].rows - groups[0].first <= kStripRows) ++n;
  return n;
}

void attend_tile_target(const TileArgs& args) {
  const D d;
  State state;
  const std::int64_t rows = args.groups.back().first + args.groups.back().rows;
  std::fill_n(args.out, rows * args.out_dim, 0.0f);
  std::fill_n(args.top_log2, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.lane_sum, rows * kLanes, 0.0f);
  std::fill_n(state.decay, kStripRows + kLanes, 0.0f);
  for (std::size_t at = 0; at < args.panels.size(); at += kRunPanels) {
    const auto run = args.panels.subspan(at, std::min<std::size_t>(kRunPanels, args.panels.size() - at));
    for (auto left = args.groups; !left.empty();) {
      const auto groups = left.first(strip_length(left));
      left = left.subspan(groups.size());
      score_strip(args, at, run.size(), groups, state.scores);
      soften(args, run, groups.front().first, groups.back().first + groups.back().rows - groups.front().first, state);
      value_strip(args, run, groups, state);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    args.sum[r] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, state.lane_sum + r * kLanes)));
  }
}

}  // namespace tulle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle::cpu {

HWY_EXPORT(shape_of_target);
HWY_EXPORT(exp2_array);
HWY_EXPORT(attend_tile_target);

KernelShape kernel_shape(DType dtype) {
  const bool units = dtype == DType::kBf16 && tile_unit() != TileUnit::kNone;
  return units ? KernelShape{2 * kUnitRows, kUnitRows, kUnitPanel, kUnitDepth, true}
               : HWY_DYNAMIC_DISPATCH(shape_of_target)();
}
void attend_tile(const KernelShape& shape, const TileArgs& args) {
  if (shape.units) return attend_tile_with_unit(args);
  HWY_DYNAMIC_DISPATCH(attend_tile_target)(args);
}
void exp2_nonpositive(const float* x, float* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(exp2_array)(x, y, n); }

namespace {

// Bits of the targets that were compiled and that this machine has; lower bits are better ones.
std::int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

std::vector<const char*> list_targets() {
  std::vector<const char*> names;
  for (std::int64_t left = usable_targets(); left != 0; left &= left - 1) {
    names.push_back(hwy::TargetName(left & -left));
  }
  return names;
}

}  // namespace

std::span<const char* const> targets() {
  static const std::vector<const char*> names = list_targets();
  return names;
}

void use_target(const char* name) {
  hwy::SetSupportedTargetsForTest(0);
  const std::int64_t all = usable_targets();
  std::int64_t chosen = *name == '\0' ? all : 0;
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    if (std::string_view(hwy::TargetName(left & -left)) == name) chosen = left & -left;
  }
  require(chosen != 0, "attention: this machine or build has no instruction set \"{}\"; see targets()", name);
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace tulle::cpu

namespace tulle {

std::string attention_target(DType dtype) {
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  const std::string vectors = hwy::TargetName(usable & -usable);
  return cpu::kernel_shape(dtype).units ? vectors + " + " + cpu::to_string(cpu::tile_unit()) : vectors;
}

}  // namespace tulle
#endif
