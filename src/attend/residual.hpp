// A residual (attend_cpu.hpp, Dropped) used again.
#pragma once

#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// out += residual. Equal shapes and types, f32 or bf16; else Error(kInvalidArgument).
void add_residual(TensorView out, ConstTensorView residual, const Threads& threads);

}  // namespace tulle
