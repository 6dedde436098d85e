// Everything of a transformer layer that is neither a matrix product nor attention, one pass over memory each.
//
// Statistics and arithmetic are f32. Rows are independent, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

enum class RowNorm : std::uint8_t { kNone, kLayer };

// For every row: x += gate * update, then out = norm(x) * scale + shift.
struct ResidualNorm {
  float* x = nullptr;             // [rows, dim], updated in place
  const float* update = nullptr;  // [rows, dim], or null: x stays as it is
  const float* gate = nullptr;    // per sample [dim], or null: 1
  RowNorm norm = RowNorm::kLayer;
  const float* scale = nullptr;                    // per sample [dim], or null: 1
  const float* shift = nullptr;                    // per sample [dim], or null: 0
  std::int64_t gate_stride = 0, scale_stride = 0;  // from sample to sample, 0 shares; shift goes with scale
  void* out = nullptr;                             // [rows, dim] of out_type, or null: nothing is written
  DType out_type = DType::kF32;                    // f32 or bf16
  std::int64_t dim = 0, rows = 0, rows_per_sample = 1;
  float eps = 1e-6f;
};
// `out` may be `update`. Layer norm is (x - mean) / sqrt(variance + eps).
void residual_norm(const ResidualNorm& pass, const Threads& threads);

// In place: row = row / sqrt(mean(row^2) + eps) * weight; rows of `dim` elements stand `stride` elements apart.
void rms_norm(void* data, DType type, std::int64_t rows, std::int64_t dim, std::int64_t stride, const float* weight,
              float eps, const Threads& threads);

// In place: x = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is GELU in its tanh form.
// Not threaded: a product calls it on the tile that it has just computed.
void gelu_tanh(std::span<float> values);

// f32 to f32 or bf16.
void convert_to(std::span<const float> from, void* to, DType type);

bool all_finite(std::span<const float> values, const Threads& threads);

}  // namespace tulle
