// Outputs of attention added up: residuals (attend_cpu.hpp, Dropped), and one branch taken from the other (Follow).
#pragma once

#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// out = a + weight * b, worked out in f32; out may be a or b. Equal shapes and types, f32 or bf16; else
// Error(kInvalidArgument).
void add_scaled(TensorView out, ConstTensorView a, float weight, ConstTensorView b, const Threads& threads);

// out = in, under the same rules.
void copy_rows(TensorView out, ConstTensorView in, const Threads& threads);

}  // namespace tulle
