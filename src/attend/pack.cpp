#include "attend/pack.hpp"

#include <algorithm>
#include <array>

#include "base/half.hpp"

namespace tulle::cpu {
namespace {

// out[i][j] = sign * rows[j][i] for `real` rows, and 0 for the rest of `width`.
template <class T>
void transpose(const T* const* rows, std::int64_t real, std::int64_t width, std::int64_t dim, float sign, float* out) {
  for (std::int64_t i = 0; i < dim; ++i, out += width) {
    for (std::int64_t j = 0; j < real; ++j) out[j] = sign * to_f32(rows[j][i]);
    std::fill(out + real, out + width, 0.0f);
  }
}

// Tokens [first, first + width) of one head, transposed; those at or beyond `end` are zeros.
template <class T>
void pack_transposed(const ConstTensorView& view, std::int64_t b, std::int64_t head, std::int64_t first,
                     std::int64_t end, std::int64_t width, float sign, float* out) {
  const std::int64_t real = std::clamp<std::int64_t>(end - first, 0, width);
  std::array<const T*, kMaxPanelKeys> rows{};
  for (std::int64_t j = 0; j < real; ++j) rows[static_cast<std::size_t>(j)] = view.row<T>(b, first + j, head);
  transpose(rows.data(), real, width, view.head_dim(), sign, out);
}

template <class T>
void pack_v(const ConstTensorView& v, std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t width,
            std::int64_t column_stride, float* out) {
  const std::int64_t real = std::min(width, v.tokens() - first);
  for (std::int64_t column = 0; column < v.head_dim(); column += width, out += column_stride) {
    const std::int64_t part = std::min(width, v.head_dim() - column);
    for (std::int64_t j = 0; j < real; ++j) {
      const T* row = v.row<T>(b, first + j, head) + column;
      std::transform(row, row + part, out + j * width, [](T x) { return to_f32(x); });
      std::fill(out + j * width + part, out + (j + 1) * width, 0.0f);
    }
    std::fill(out + real * width, out + width * width, 0.0f);
  }
}

}  // namespace

void pack_k_panel(const ConstTensorView& k, std::int64_t b, std::int64_t head, std::int64_t panel,
                  std::int64_t panel_keys, float* out) {
  if (k.dtype == DType::kF32) pack_transposed<float>(k, b, head, panel * panel_keys, k.tokens(), panel_keys, 1.0f, out);
  else pack_transposed<Bf16>(k, b, head, panel * panel_keys, k.tokens(), panel_keys, 1.0f, out);
}

void pack_v_panel(const ConstTensorView& v, std::int64_t b, std::int64_t head, std::int64_t panel,
                  std::int64_t panel_keys, std::int64_t column_stride, float* out) {
  if (v.dtype == DType::kF32) pack_v<float>(v, b, head, panel * panel_keys, panel_keys, column_stride, out);
  else pack_v<Bf16>(v, b, head, panel * panel_keys, panel_keys, column_stride, out);
}

void pack_q(const ConstTensorView& q, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end,
            float sign, std::span<const RowGroup> groups, float* out) {
  for (const RowGroup& group : groups) {
    float* at = out + group.first * q.head_dim();
    if (q.dtype == DType::kF32) pack_transposed<float>(q, b, head, begin + group.first, end, group.rows, sign, at);
    else pack_transposed<Bf16>(q, b, head, begin + group.first, end, group.rows, sign, at);
  }
}

}  // namespace tulle::cpu
