// Every rank's tokens to every rank, e.g. the latents at the end of a run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tulle/fabric.hpp"
#include "tulle/plan.hpp"

namespace tulle {

// local: [this rank's tokens, features]. Returns [all tokens, features] in memory order, the same on every rank.
// Collective. Throws Error(kInvalidArgument) unless `local` has that size and the plan is for this fabric.
std::vector<float> gather_tokens(Fabric& fabric, const Plan& plan, std::span<const float> local, std::int64_t features);

}  // namespace tulle
