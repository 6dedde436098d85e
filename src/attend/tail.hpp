// The pooled tail: dropped blocks still count, as their means.
#pragma once

#include <cstdint>

#include "tulle/attention.hpp"

namespace tulle {

// After attend_cpu(args) over a mask: adds to (args.out, args.lse) what the video blocks left out would have given if
// every `tail` tokens of them had one key and one value, the mean of theirs: a key of weight tail * exp(scale * q .
// mean k). The zeroth-order term of the residual (Sol-Attention, PISA, 2026). Text is never dropped, so it has no tail;
// the last tokens of the video, if they are fewer than `tail`, are left out as before. args.mask and args.lse must be
// given; video key blocks must be whole multiples of `tail`. The result does not depend on threads. Throws
// Error(kInvalidArgument).
void attend_tail(const AttentionArgs& args, std::int32_t tail, const Threads& threads);

}  // namespace tulle
