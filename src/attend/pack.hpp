// Copies rows of Q, K and V, f32 or bf16, into the f32 layouts that kernel_cpu.hpp draws. Keys and outputs beyond the
// end are zeros. Each function writes its whole destination.
#pragma once

#include <cstdint>
#include <span>

#include "attend/kernel_cpu.hpp"
#include "tulle/tensor.hpp"

namespace tulle::cpu {

// The tokens of one head of one sample.
struct Rows {
  const ConstTensorView& view;
  std::int64_t batch = 0, head = 0;
};

// One panel of K: out [head_dim][panel_keys].
void pack_k_panel(const Rows& k, std::int64_t panel, std::int64_t panel_keys, float* out);

// One panel of V: its columns [panel_keys][panel_keys], `column_stride` floats apart.
void pack_v_panel(const Rows& v, std::int64_t panel, std::int64_t panel_keys, std::int64_t column_stride, float* out);

// Rows [begin, end) of Q in groups; rows of the groups beyond end - begin are zeros. The sign is +1 or -1.
void pack_q(const Rows& q, std::int64_t begin, std::int64_t end, float sign, std::span<const RowGroup> groups,
            float* out);

}  // namespace tulle::cpu
