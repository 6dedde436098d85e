// The softmax step of tiles.hpp: from scores of one run of panels to bf16 weights, on vectors.
#pragma once

#include <cstdint>
#include <span>

#include "attend/kernel_cpu.hpp"
#include "tulle/tensor.hpp"

namespace tulle::cpu {

constexpr std::int64_t kSumLanes = 16;  // a row's sum is kept in so many parts

// Of a group of rows. Strides count elements; rows of `scores`, `lane_sums` and `out` are aligned to 64 bytes.
struct Softening {
  float* scores = nullptr;  // [rows][score_stride], q.k of the run's panels, 32 keys each; left in any state
  std::int64_t score_stride = 0;
  Bf16* weights = nullptr;  // [rows][weight_stride], result: 2^(scale_log2 score - top), 0 where a key is not seen
  std::int64_t weight_stride = 0;
  std::span<const Panel> run;
  std::int64_t rows = 0;
  float scale_log2 = 0;
  float* top_log2 = nullptr;   // [rows], raised to the run's largest
  float* lane_sums = nullptr;  // [rows][kSumLanes], of weights before rounding; scaled down with the top, and added to
  float* out = nullptr;        // [rows][out_dim], scaled down
  std::int64_t out_dim = 0;
};
void soften_rows(const Softening& s);

}  // namespace tulle::cpu
