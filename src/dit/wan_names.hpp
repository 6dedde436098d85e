// Tensor names of Wan checkpoints. Tulle thinks in diffusers' names; official checkpoints are translated.
#pragma once

#include <string>

namespace tulle {

// The official name of a tensor that diffusers' WanTransformer3DModel calls `name`. Beware of the norms: diffusers'
// norm2, the affine one before cross-attention, is the official norm3.
std::string official_wan_name(const std::string& name);

}  // namespace tulle
