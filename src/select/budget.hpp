// FAST: a density for every (part of the run, layer, head), such that the whole meets one global density.
// Zhou et al., "ScalingAttention" (2026), fidelity-aware sensitivity tuning. Pure and deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tulle/profile.hpp"

namespace tulle {

// How strict fidelity is over layers and steps. With x = (layer + omega * bin) / (layers - 1 + omega * (bins - 1)), the
// allowed distance is beta * (1 - (1 - x)^gamma): 0 at the first layer and step, beta at the last.
struct TargetSurface {
  double beta = 0.3, gamma = 1.0, omega = 1.0;
  bool operator==(const TargetSurface&) const = default;
};

// Fidelity asked for at (bin, layer), in [0, 1]: 1 - allowed distance. `offset` is added to the allowed distance
// everywhere, so that the first layer and step need not be dense (or, below 0, so that the last can be).
double target_fidelity(const TargetSurface& s, double offset, std::int64_t bin, std::int64_t bins, std::int64_t layer,
                       std::int64_t layers);

struct Budget {
  std::int64_t bins = 0, layers = 0, heads = 0;
  std::vector<std::uint8_t> levels;    // [bins][layers][heads] levels of the rank map
  std::vector<std::int32_t> permille;  // the same: density of the mask at that level, in [1, 1000]
  TargetSurface surface;
  double offset = 0;
  bool uniform = false;  // one density for all heads, or two levels beside each other: surface and offset say nothing
  double density = 0;    // what the table comes to, mean over all (bin, layer, head) that count
  double mass = 0;       // mean kept mass over the same

  std::size_t at(std::int64_t bin, std::int64_t layer, std::int64_t head) const {
    return static_cast<std::size_t>((bin * layers + layer) * heads + head);
  }
};

// How much each (bin, layer) counts: [bins][layers], the share of its calls that are sparse, in [0, 1]. Empty: all 1.
// Where it is 0 the calls are dense whatever the table says; the table then has the whole map.
using BudgetWeights = std::span<const double>;

// For each head at (bin, layer) the smallest sampled level that keeps any block and whose fidelity reaches the target.
Budget budget_of(const FidelityCurves& curves, const TargetSurface& surface, double offset, BudgetWeights weights = {});

// The same density for all: the sampled level of each head whose density is nearest, above 0; the yardstick for FAST.
Budget uniform_budget(const FidelityCurves& curves, double density, BudgetWeights weights = {});

// The table with the mean density `density` that keeps the most mass, of those that a grid of surfaces gives and the
// uniform one. Entries whose fidelity lies on the target itself are raised one after the other, so that the density is
// never above the one asked for by more than rounding (1e-9), and below it by less than the largest step of one head's
// curve over the number of entries; outside what the curves can reach it is the nearest that they can.
// Throws Error(kInvalidArgument) unless 0 < density <= 1, at least one weight is above 0, and the curves fit their
// sizes.
Budget fit_budget(const FidelityCurves& curves, double density, BudgetWeights weights = {});

}  // namespace tulle
