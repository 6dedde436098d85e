// attend_cpu beyond the public contract: what to do about dropped blocks, and how much memory it takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tulle/attention.hpp"

namespace tulle {

// What the blocks that args.mask drops are still good for.
struct Dropped {
  std::int32_t tail = 0;  // tokens of which each group counts as its mean (tail.hpp); 0: none. Divides key blocks
  // Where given: all blocks are computed, args.out is that of a call without a mask up to rounding (bit for bit where
  // nothing is dropped), and this gets how far that is from what mask and tail alone give. Shape and type of args.out.
  TensorView residual = {};
};

// attend_cpu over args.mask, which must be given, with args.lse that of all keys that count. A tile goes over the kept
// keys, the means and the rest one after the other while its queries are at hand. Contract and errors of attend_cpu;
// throws Error(kInvalidArgument) too where the tail does not divide the key blocks or the residual does not fit.
void attend_cpu(const AttentionArgs& args, const Dropped& dropped, const Threads& threads);

// Upper bound, in bytes, of the heap memory that attend_cpu(args, threads) takes while it runs with `threads` threads:
// packed K and V in f32 of as many heads as fit 24 MiB (at least one), one tile per thread, and the list of work.
// Throws as check() does.
std::size_t attention_workspace_bytes(const AttentionArgs& args, int threads);

}  // namespace tulle
