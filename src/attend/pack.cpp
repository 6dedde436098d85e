#include "attend/pack.hpp"

#include <algorithm>
#include <array>

#include "base/half.hpp"

namespace tulle::cpu {
namespace {

template <class T>
void pack_k(const ConstTensorView& k, std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t width,
            float* out) {
  const std::int64_t dim = k.head_dim(), real = std::min(width, k.tokens() - first);
  std::array<const T*, kMaxPanelKeys> rows{};
  for (std::int64_t j = 0; j < real; ++j) rows[static_cast<std::size_t>(j)] = k.row<T>(b, first + j, head);
  for (std::int64_t i = 0; i < dim; ++i, out += width) {
    for (std::int64_t j = 0; j < real; ++j) out[j] = to_f32(rows[static_cast<std::size_t>(j)][i]);
    std::fill(out + real, out + width, 0.0f);
  }
}

template <class T>
void pack_v(const ConstTensorView& v, std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t width,
            std::int64_t out_dim, float* out) {
  const std::int64_t real = std::min(width, v.tokens() - first);
  for (std::int64_t column = 0; column < out_dim; column += width, out += width * width) {
    const std::int64_t part = std::min(width, v.head_dim() - column);
    for (std::int64_t j = 0; j < real; ++j) {
      const T* row = v.row<T>(b, first + j, head) + column;
      std::transform(row, row + part, out + j * width, [](T x) { return to_f32(x); });
      std::fill(out + j * width + part, out + (j + 1) * width, 0.0f);
    }
    std::fill(out + real * width, out + width * width, 0.0f);
  }
}

template <class T>
void pack_group(const ConstTensorView& q, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end,
                float sign, std::int64_t width, float* out) {
  const std::int64_t dim = q.head_dim(), real = std::clamp<std::int64_t>(end - begin, 0, width);
  std::fill_n(out, dim * width, 0.0f);
  for (std::int64_t r = 0; r < real; ++r) {
    const T* row = q.row<T>(b, begin + r, head);
    for (std::int64_t i = 0; i < dim; ++i) out[i * width + r] = sign * to_f32(row[i]);
  }
}

}  // namespace

void pack_k_panel(const ConstTensorView& k, std::int64_t b, std::int64_t head, std::int64_t panel,
                  std::int64_t panel_keys, float* out) {
  if (k.dtype == DType::kF32) pack_k<float>(k, b, head, panel * panel_keys, panel_keys, out);
  else pack_k<Bf16>(k, b, head, panel * panel_keys, panel_keys, out);
}

void pack_v_panel(const ConstTensorView& v, std::int64_t b, std::int64_t head, std::int64_t panel,
                  std::int64_t panel_keys, std::int64_t out_dim, float* out) {
  if (v.dtype == DType::kF32) pack_v<float>(v, b, head, panel * panel_keys, panel_keys, out_dim, out);
  else pack_v<Bf16>(v, b, head, panel * panel_keys, panel_keys, out_dim, out);
}

void pack_q(const ConstTensorView& q, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end,
            float sign, std::span<const RowGroup> groups, float* out) {
  for (const RowGroup& group : groups) {
    float* at = out + group.first * q.head_dim();
    if (q.dtype == DType::kF32) pack_group<float>(q, b, head, begin + group.first, end, sign, group.rows, at);
    else pack_group<Bf16>(q, b, head, begin + group.first, end, sign, group.rows, at);
  }
}

}  // namespace tulle::cpu
