// One forward pass of the transformer over this rank's tokens.
#pragma once

#include <span>

#include "dit/workspace.hpp"

namespace tulle {

// As WanModel::forward, on the bare weights.
void wan_forward(const WanWeights& weights, const WanModel::Input& input, Engine& engine, const Threads& threads,
                 WanModel::Workspace& workspace, std::span<float> velocity, bool check_finite);

}  // namespace tulle
