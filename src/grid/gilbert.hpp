// The generalised Hilbert curve through a box of any extents.
#pragma once

#include <cstdint>
#include <vector>

#include "tulle/grid.hpp"

namespace tulle {

// Raster positions along the curve. Follows the recursive subdivision of J. Cerveny's "gilbert" curves: a box is
// cut into two, three or five boxes whose entry and exit corners touch, with even cuts where possible. Of the two ways
// to halve odd sides the one with the shorter longest jump, then with fewer jumps, is taken.
std::vector<std::int32_t> gilbert_order(const TokenGrid& grid);

}  // namespace tulle
