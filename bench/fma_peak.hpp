// What the multiply-add units give when nothing else is in the way: the roof that attention is measured against.
#pragma once

#include "tulle/threads.hpp"

namespace tulle::bench {

// FLOP/s (a multiply-add counts 2) of a loop of independent multiply-adds in registers, on all of `threads` at once,
// with the widest vectors that attend_cpu uses here. Takes about 50 ms.
double fma_peak_flops(const Threads& threads);

}  // namespace tulle::bench
