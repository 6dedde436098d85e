// A profile whose heads need different densities, for tests of the study.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "tests/select/profiles.hpp"

namespace tulle::testing_data {

// The diagonal profile of blocks of 64 tokens in Hilbert order, but the ranks of head e (counted over all layers) rise
// with the distance from the diagonal as (20 + e) / 10, and two rows of three begin one or two places later: there are
// many densities to choose from, and every head has its own.
inline Profile varied_profile(const TokenGrid& grid, std::int64_t layers, std::int64_t heads, std::int64_t bins) {
  Profile p = diagonal_profile(grid, OrderKind::kHilbert, 64, layers, heads, bins);
  for (std::int64_t e = 0; e < layers * heads; ++e) {
    RankMap& map = p.ranks[static_cast<std::size_t>(e / heads)];
    const std::int64_t blocks = map.k_blocks();
    for (std::int64_t i = 0; i < blocks * blocks; ++i) {
      const std::int64_t distance = std::abs(i % blocks - i / blocks);
      const std::int64_t place = distance == 0 ? 0 : (20 + e) * distance / 10 + (i / blocks + e) % 3;
      map.row(e % heads, i / blocks)[static_cast<std::size_t>(i % blocks)] =
          rank_of_place(std::min(blocks - 1, place), blocks);
    }
    for (std::int64_t l = 0; l < FidelityCurves::kLevels; ++l) {
      p.curves.density[p.curves.at(e / heads, e % heads) + static_cast<std::size_t>(l)] =
          static_cast<float>(density_at(map, e % heads, FidelityCurves::level(l)));
    }
  }
  check_profile(p);
  return p;
}

}  // namespace tulle::testing_data
