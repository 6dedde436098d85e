// Attention: softmax(scale * Q K^T) V over the kept blocks, with the log-sum-exp of every row.
//
// Contract of every kernel here:
//   q [batch, Nq, heads, d], k and v [batch, Nk, heads, d], out [batch, Nq, heads, d]; any stride but the last.
//   f32 or bf16 in and out (all four tensors alike), f32 accumulate. d is a multiple of 8, at most 256.
//   lse (optional) is f32 [batch, heads, Nq] packed, natural log of sum(exp(scale * q.k)) over the keys seen.
//   A row that sees no key gives O = 0 and LSE = -inf.
//   hidden_keys (optional): one range of keys a sample that is not seen (padded text), see AttentionArgs.
// Results do not depend on the number of threads. All kernels are reentrant.
// Error rule (FlashAttention's): against fp64, at most twice the error of the same computation done densely in the
// same precision by a standard library, plus 1e-5.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tulle/mask.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

struct AttentionArgs {
  ConstTensorView q, k, v;
  TensorView out;
  float* lse = nullptr;             // [batch, heads, Nq], or null
  float scale = 0;                  // 0 means 1 / sqrt(head_dim)
  const BlockMask* mask = nullptr;  // null means dense; otherwise batch, heads, Nq, Nk must match (mask batch 1 and
                                    // heads as given; a mask of batch 1 is used for every sample)
  // Valid keys per sample as half-open token ranges that are NOT seen (padded text); empty means all are seen.
  // One range per sample: [first, second). first == second hides nothing.
  std::span<const std::pair<std::int64_t, std::int64_t>> hidden_keys = {};
};

// Throws Error(kInvalidArgument) naming the dimension that does not fit.
void check(const AttentionArgs& args);

// The CPU kernel: Highway with run-time dispatch (SSE4 ... AVX-512, NEON), work spread over `threads`.
void attend_cpu(const AttentionArgs& args, const Threads& threads);

// fp64 arithmetic throughout, no blocking, single loops: the oracle. Slow. Inputs f32, bf16 or f16; out may be f32
// only; out64 (optional, [batch, Nq, heads, d] packed) and lse64 (optional, [batch, heads, Nq]) get the unrounded
// values.
void attend_reference(const AttentionArgs& args, double* out64 = nullptr, double* lse64 = nullptr);

// What attend_cpu computes tensors of this type with on this machine: an instruction set, e.g. "AVX2", or
// "AVX3_SPR + AMX" where bf16 is multiplied by a matrix unit and the vectors do the rest.
std::string attention_target(DType dtype = DType::kF32);

// Merges two partial attentions over disjoint key sets, in place into (out, lse): the exact combination.
// out, other_out: f32 views of equal shape; lse, other_lse: [batch, heads, Nq]. -inf parts contribute nothing.
void merge_parts(TensorView out, float* lse, ConstTensorView other_out, const float* other_lse);

// FLOPs of the kept part: 4 * head_dim * kept query-key pairs (one multiply-add counts 2, QK^T and PV).
double attention_flops(const AttentionArgs& args);

}  // namespace tulle
