// The residual: what dropped blocks change in the output, kept for later steps.
#pragma once

#include <cstdint>

#include "tulle/attention.hpp"

namespace tulle {

// After attend_cpu(args) over a mask, with args.lse: completes args.out to attention over all blocks, and writes to
// `residual` how far that is from what a call with the mask and `tail` (0: none; tail.hpp) alone gives. The blocks left
// out are attended to apart and merged, so the work is that of dense attention once, and where the mask drops nothing
// args.out stays as it is and the residual is 0. residual: the shape and type of args.out. args.lse becomes that of all
// keys. The result does not depend on threads. Throws Error(kInvalidArgument).
void complete(const AttentionArgs& args, std::int32_t tail, TensorView residual, const Threads& threads);

// out += residual, row by row. Shapes and types must agree.
void add_residual(TensorView out, ConstTensorView residual, const Threads& threads);

}  // namespace tulle
