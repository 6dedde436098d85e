// The memory that a plan needs, predicted from its integers before anything is allocated.
#pragma once

#include <cstdint>

#include "tulle/plan.hpp"

namespace tulle {

// Bytes of the whole process, all ranks together. With N tokens, H heads of d elements, e bytes an element, batch b,
// and for rank r its n_r tokens and h_r heads:
//   weights      as requested; ranks of one process share them
//   activations  b * N * (6 * hidden + ffn) * 4: the residual stream, its normed copy, q, k, v and the attention
//                output, and the inner feed-forward row, all f32
//   attention    q and k after the prologue:            2 * b * N * H * d * e
//                on R > 1 ranks, summed over r:         b * d * e * (2 * n_r * (H - h_r) + 4 * N * h_r)
//                (messages of q and k, reused for v and O; q, k, v, O of all tokens and own heads)
//                packed keys and values of the kernel:  sum over r of min(b * h_r * p, max(24 MiB, p)), with
//                p = 2 * (N + 64) * d' * 4 bytes for one head, d' = d rounded up to 16
//                cached masks, blocks of mask_block:    2 * layers * b * H * blocks * ceil(blocks / 32) * 4
struct MemoryNeed {
  std::int64_t weights = 0, activations = 0, attention = 0;
  std::int64_t total() const { return weights + activations + attention; }
};

// `plan` needs its ranks, tokens and heads. Throws Error(kInvalidArgument) when a product overflows 64 bits.
MemoryNeed predict_memory(const PlanRequest& request, const Plan& plan);

}  // namespace tulle
