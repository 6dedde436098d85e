// A profile of known shape for tests of selection and of the Engine.
#pragma once

#include <cmath>
#include <cstdlib>

#include "tulle/profile.hpp"

namespace tulle::testing_data {

// Head h of layer l keeps mass 1 - (1 - p)^(1 + h + l) at density p; ranks fall with the distance from the diagonal.
inline Profile diagonal_profile(const TokenGrid& grid, OrderKind order, std::int32_t block, std::int64_t layers,
                                std::int64_t heads, std::int64_t bins) {
  Profile p;
  p.model_hash = "0123456789abcdef";
  p.steps = 8;
  p.captions = {"a", "b"};
  p.union_density = {0.3f, 0.4f};
  p.held_out_mass = 0.8f;
  const BlockPartition blocks{Sequence{grid, 0, TextPlacement::kSuffix}, block};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    RankMap map(heads, blocks, blocks, order);
    for (std::int64_t e = 0; e < heads * blocks.count(); ++e) {
      const auto row = map.row(e / blocks.count(), e % blocks.count());
      for (std::int64_t k = 0; k < blocks.count(); ++k) {
        const std::int64_t place = std::min(blocks.count() - 1, 2 * std::abs(k - e % blocks.count()));
        row[static_cast<std::size_t>(k)] = rank_of_place(place, blocks.count());
      }
    }
    p.ranks.push_back(std::move(map));
  }
  FidelityCurves& c = p.curves;
  c.bins = bins, c.layers = layers, c.heads = heads;
  for (std::int64_t e = 0; e < bins * layers * heads; ++e) {
    const std::int64_t layer = e / heads % layers, head = e % heads;
    for (std::int64_t l = 0; l < FidelityCurves::kLevels; ++l) {
      const double d = density_at(p.ranks[static_cast<std::size_t>(layer)], head, FidelityCurves::level(l));
      const double m = 1 - std::pow(1 - d, 1.0 + double(head + layer));
      c.mass.push_back(static_cast<float>(m));
      c.fidelity.push_back(static_cast<float>(1 - std::sqrt(1 - std::sqrt(m))));
      if (e < layers * heads) c.density.push_back(static_cast<float>(d));
    }
  }
  check_profile(p);
  return p;
}

}  // namespace tulle::testing_data
