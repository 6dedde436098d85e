// FAST: a density for every (part of the run, layer, head), such that the whole meets one global density.
// Zhou et al., "ScalingAttention" (2026), fidelity-aware sensitivity tuning. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tulle/profile.hpp"

namespace tulle {

// How strict fidelity is over layers and steps. With x = (layer + omega * bin) / (layers - 1 + omega * (bins - 1)), the
// allowed distance is beta * (1 - (1 - x)^gamma): 0 at the first layer and step, beta at the last. 
struct TargetSurface {
  double beta = 0.3, gamma = 1.0, omega = 1.0;
  bool operator==(const TargetSurface&) const = default;
};

// Fidelity asked for at (bin, layer): 1 - allowed distance. `offset` is added to the allowed distance everywhere, so
// that the first layer and step need not be dense.
double target_fidelity(const TargetSurface& s, double offset, std::int64_t bin, std::int64_t bins, std::int64_t layer,
                       std::int64_t layers);

struct Budget {
  std::int64_t bins = 0, layers = 0, heads = 0;
  std::vector<std::uint8_t> levels;      // [bins][layers][heads] levels of the rank map
  std::vector<std::int32_t> permille;    // the same: density of the mask at that level, in [1, 1000]
  TargetSurface surface;
  double offset = 0;
  double density = 0;                    // what the table comes to, mean over everything

  std::size_t at(std::int64_t bin, std::int64_t layer, std::int64_t head) const {
    return static_cast<std::size_t>((bin * layers + layer) * heads + head);
  }
};

// For each head at (bin, layer) the smallest level whose fidelity reaches the target.
Budget budget_of(const FidelityCurves& curves, const TargetSurface& surface, double offset);

// The surface and offset under which the mean density over bins >= first_bin is `density` (within 1/1000 where levels
// allow), and that keep the most: the largest mean kept mass among the tried (beta, gamma, omega) wins. Deterministic.
// Throws Error(kInvalidArgument) unless 0 < density <= 1.
Budget fit_budget(const FidelityCurves& curves, double density, std::int64_t first_bin = 0);

// The same density for all: the level of each head whose density is nearest; the yardstick for FAST.
Budget uniform_budget(const FidelityCurves& curves, double density);

}  // namespace tulle
