// How alike masks are: intersection over union of their kept blocks.
#pragma once

#include <vector>

#include "tulle/mask.hpp"

namespace tulle {

// Of each map, [batch * heads], in [0, 1]: 1 where neither mask keeps a block. Blocks count alike, ragged ones too.
// Throws Error(kInvalidArgument) unless both have the same geometry.
std::vector<double> overlap_of(const BlockMask& a, const BlockMask& b);

// What two masks of that density (of blocks) have in common by chance: d / (2 - d). Each keeps a share d of every row,
// so they share d^2 of it, and their union is 2 d - d^2.
constexpr double chance_overlap(double density) { return density / (2 - density); }

}  // namespace tulle
