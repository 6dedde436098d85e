#include "attend/pack.hpp"

#include <algorithm>
#include <array>

// As in kernel_cpu.cpp.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attend/pack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D4 = hn::CappedTag<float, 4>;
using D2 = hn::Half<D4>;
using V4 = hn::Vec<D4>;
constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(D4()));

HWY_INLINE V4 load(const float* p) { return hn::LoadU(D4(), p); }

HWY_INLINE V4 load(const Bf16* p) {
  const hn::Rebind<std::uint32_t, D4> d32;
  const auto bits = hn::LoadU(hn::Rebind<std::uint16_t, D4>(), &p->bits);
  return hn::BitCast(D4(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

#if HWY_TARGET != HWY_SCALAR
// a0 b0 a1 b1 and so on, in units of two floats.
HWY_INLINE V4 pairs_lower(V4 a, V4 b) {
  const hn::RepartitionToWide<D4> wide;
  return hn::BitCast(D4(), hn::InterleaveLower(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
}
HWY_INLINE V4 pairs_upper(V4 a, V4 b) {
  const hn::RepartitionToWide<D4> wide;
  return hn::BitCast(D4(), hn::InterleaveUpper(wide, hn::BitCast(wide, a), hn::BitCast(wide, b)));
}

// out[i][0..4) = sign * rows[0..4)[i]
template <class T>
HWY_INLINE void transpose4(const T* const* rows, std::int64_t width, std::int64_t dim, V4 sign, float* out) {
  const D4 d;
  for (std::int64_t i = 0; i < dim; i += 4, out += 4 * width) {
    const V4 a = hn::Mul(sign, load(rows[0] + i)), b = hn::Mul(sign, load(rows[1] + i));
    const V4 c = hn::Mul(sign, load(rows[2] + i)), e = hn::Mul(sign, load(rows[3] + i));
    const V4 ab0 = hn::InterleaveLower(d, a, b), ab2 = hn::InterleaveUpper(d, a, b);
    const V4 ce0 = hn::InterleaveLower(d, c, e), ce2 = hn::InterleaveUpper(d, c, e);
    hn::StoreU(pairs_lower(ab0, ce0), d, out);
    hn::StoreU(pairs_upper(ab0, ce0), d, out + width);
    hn::StoreU(pairs_lower(ab2, ce2), d, out + 2 * width);
    hn::StoreU(pairs_upper(ab2, ce2), d, out + 3 * width);
  }
}

template <class T>
HWY_INLINE void transpose2(const T* const* rows, std::int64_t width, std::int64_t dim, V4 sign, float* out) {
  const D4 d;
  const D2 half;
  for (std::int64_t i = 0; i < dim; i += 4, out += 4 * width) {
    const V4 a = hn::Mul(sign, load(rows[0] + i)), b = hn::Mul(sign, load(rows[1] + i));
    const V4 ab0 = hn::InterleaveLower(d, a, b), ab2 = hn::InterleaveUpper(d, a, b);
    hn::StoreU(hn::LowerHalf(half, ab0), half, out);
    hn::StoreU(hn::UpperHalf(half, ab0), half, out + width);
    hn::StoreU(hn::LowerHalf(half, ab2), half, out + 2 * width);
    hn::StoreU(hn::UpperHalf(half, ab2), half, out + 3 * width);
  }
}
#endif

// out[i][j] = sign * rows[j][i] for `real` rows, and 0 for the rest of `width`; dim is a multiple of 8.
template <class T>
void transpose(const T* const* rows, std::int64_t real, std::int64_t width, std::int64_t dim, float sign, float* out) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const V4 vsign = hn::Set(D4(), sign);
  for (; j + 4 <= real; j += 4) transpose4(rows + j, width, dim, vsign, out + j);
  for (; j + 2 <= real; j += 2) transpose2(rows + j, width, dim, vsign, out + j);
#endif
  for (; j < width; ++j) {
    for (std::int64_t i = 0; i < dim; ++i) out[i * width + j] = j < real ? sign * to_f32(rows[j][i]) : 0.0f;
  }
}

// Tokens [first, first + width) of one head, transposed; those at or beyond `end` are zeros.
template <class T>
void pack_transposed(const Rows& from, std::int64_t first, std::int64_t end, std::int64_t width, float sign,
                     float* out) {
  const std::int64_t real = std::clamp<std::int64_t>(end - first, 0, width);
  std::array<const T*, kMaxPanelKeys> rows{};
  for (std::int64_t j = 0; j < real; ++j) {
    rows[static_cast<std::size_t>(j)] = from.view.row<T>(from.batch, first + j, from.head);
  }
  transpose(rows.data(), real, width, from.view.head_dim(), sign, out);
}

// Row by row, so that memory is read as it lies; the columns are written `column_stride` apart.
template <class T>
void pack_rows(const Rows& from, std::int64_t first, std::int64_t width, std::int64_t column_stride, float* out) {
  const D4 d;
  const std::int64_t dim = from.view.head_dim(), real = std::min(width, from.view.tokens() - first);
  for (std::int64_t j = 0; j < real; ++j, out += width) {
    const T* row = from.view.row<T>(from.batch, first + j, from.head);
    for (std::int64_t column = 0; column < dim; column += width) {
      float* at = out + column / width * column_stride;
      const std::int64_t part = std::min(width, dim - column);
      for (std::int64_t i = 0; i < part; i += kStep) hn::StoreU(load(row + column + i), d, at + i);
      std::fill(at + part, at + width, 0.0f);
    }
  }
  for (std::int64_t column = 0; column < dim; column += width) {
    std::fill_n(out + column / width * column_stride, (width - real) * width, 0.0f);
  }
}

void k_panel(const Rows& k, std::int64_t panel, std::int64_t panel_keys, float* out) {
  const std::int64_t first = panel * panel_keys, end = k.view.tokens();
  if (k.view.dtype == DType::kF32)
    pack_transposed<float>(k, first, end, panel_keys, 1.0f, out);
  else
    pack_transposed<Bf16>(k, first, end, panel_keys, 1.0f, out);
}

void v_panel(const Rows& v, std::int64_t panel, std::int64_t panel_keys, std::int64_t column_stride, float* out) {
  if (v.view.dtype == DType::kF32)
    pack_rows<float>(v, panel * panel_keys, panel_keys, column_stride, out);
  else
    pack_rows<Bf16>(v, panel * panel_keys, panel_keys, column_stride, out);
}

void q_groups(const Rows& q, std::int64_t begin, std::int64_t end, float sign, std::span<const RowGroup> groups,
              float* out) {
  for (const RowGroup& group : groups) {
    float* at = out + group.first * q.view.head_dim();
    if (q.view.dtype == DType::kF32)
      pack_transposed<float>(q, begin + group.first, end, group.rows, sign, at);
    else
      pack_transposed<Bf16>(q, begin + group.first, end, group.rows, sign, at);
  }
}

}  // namespace tulle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle::cpu {

HWY_EXPORT(k_panel);
HWY_EXPORT(v_panel);
HWY_EXPORT(q_groups);

void pack_k_panel(const Rows& k, std::int64_t panel, std::int64_t panel_keys, float* out) {
  HWY_DYNAMIC_DISPATCH(k_panel)(k, panel, panel_keys, out);
}

void pack_v_panel(const Rows& v, std::int64_t panel, std::int64_t panel_keys, std::int64_t column_stride, float* out) {
  HWY_DYNAMIC_DISPATCH(v_panel)(v, panel, panel_keys, column_stride, out);
}

void pack_q(const Rows& q, std::int64_t begin, std::int64_t end, float sign, std::span<const RowGroup> groups,
            float* out) {
  HWY_DYNAMIC_DISPATCH(q_groups)(q, begin, end, sign, groups, out);
}

}  // namespace tulle::cpu
#endif
