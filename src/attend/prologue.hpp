// The QK prologue: RMS norm over all heads of a token, then rotary embedding, in one pass over the rows.
//
//     y = x / sqrt(mean(x^2) + eps) * weight          over the heads * head_dim values of a token
//     (y0, y1) -> (y0 * cos - y1 * sin, y0 * sin + y1 * cos)   for each pair (2i, 2i + 1) of a head
//
// Source: RMSNorm (Zhang and Sennrich), RoFormer (Su et al.); the pairing is that of Wan and of the RoPE paper.
#pragma once

#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// in, out [batch, tokens, heads, head_dim], any strides but the last; in f32, bf16 or f16; out f32 or bf16; out may be
// the memory of `in` when both are f32 and have the same strides. weight [heads * head_dim]; cos, sin
// [tokens, head_dim / 2], the same for every sample. A null weight skips the norm; null cos and sin skip the rotation.
// A row's result depends on that row, its weights and its angles alone. Reentrant.
// Throws Error(kInvalidArgument) when shapes differ, head_dim is odd, or only one of cos and sin is given.
void rope_norm(ConstTensorView in, const float* weight, float eps, const float* cos, const float* sin, TensorView out,
               const Threads& threads);

}  // namespace tulle
