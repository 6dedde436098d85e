#include "select/budget.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kLast = FidelityCurves::kLevels - 1;
constexpr double kRounding = 1e-9;
constexpr int kHalvings = 40;  // of [-1, 1]: far below the spacing of f32 numbers

// Choices of one level index for every (bin, layer, head): what searches work on.
using Choice = std::vector<std::int32_t>;

// Curves with the weights of their (bin, layer): densities and masses as means over what counts.
class Table {
 public:
  Table(const FidelityCurves& curves, BudgetWeights weights) : c_(curves) {
    check();
    const auto cells = static_cast<std::size_t>(c_.bins * c_.layers);
    require(weights.empty() || weights.size() == cells, "{} weights were given for {} bins x {} layers", weights.size(),
            c_.bins, c_.layers);
    weights_.assign(cells, 1.0);
    if (!weights.empty()) std::ranges::copy(weights, weights_.begin());
    require(std::ranges::all_of(weights_, [](double w) { return w >= 0 && w <= 1; }), "a weight is outside [0, 1]");
    total_ = std::accumulate(weights_.begin(), weights_.end(), 0.0) * static_cast<double>(c_.heads);
    require(total_ > 0, "every layer of every step is dense: there is no density to share out");
  }

  const FidelityCurves& curves() const { return c_; }
  std::int64_t entries() const { return c_.bins * c_.layers * c_.heads; }
  std::int64_t layer_of(std::int64_t e) const { return e / c_.heads % c_.layers; }
  std::int64_t bin_of(std::int64_t e) const { return e / c_.heads / c_.layers; }

  // The share of entry e in a mean over everything.
  double share(std::int64_t e) const { return weights_[static_cast<std::size_t>(e / c_.heads)] / total_; }
  double density(std::int64_t e, std::int32_t l) const {
    return static_cast<double>(c_.density[c_.at(layer_of(e), e % c_.heads) + static_cast<std::size_t>(l)]);
  }
  double mass(std::int64_t e, std::int32_t l) const {
    return static_cast<double>(c_.mass[first(e) + static_cast<std::size_t>(l)]);
  }
  // The first level that keeps any block: below it every row would be empty.
  std::int32_t first_level(std::int64_t e) const {
    std::int32_t l = 0;
    while (l < kLast && density(e, l) <= 0) ++l;
    return l;
  }
  std::span<const float> fidelity(std::int64_t e) const {
    return std::span(c_.fidelity).subspan(first(e), FidelityCurves::kLevels);
  }
  double mean_density(const Choice& choice) const {
    double sum = 0;
    for (std::int64_t e = 0; e < entries(); ++e) sum += share(e) * density(e, choice[static_cast<std::size_t>(e)]);
    return sum;
  }
  double mean_mass(const Choice& choice) const {
    double sum = 0;
    for (std::int64_t e = 0; e < entries(); ++e) sum += share(e) * mass(e, choice[static_cast<std::size_t>(e)]);
    return sum;
  }

 private:
  std::size_t first(std::int64_t e) const { return static_cast<std::size_t>(e * FidelityCurves::kLevels); }
  void check() const {
    require(c_.bins >= 1 && c_.layers >= 1 && c_.heads >= 1,
            "fidelity curves of {} bins, {} layers and {} heads are none", c_.bins, c_.layers, c_.heads);
    const auto per_bin = static_cast<std::size_t>(c_.layers * c_.heads * FidelityCurves::kLevels);
    const std::size_t all = per_bin * static_cast<std::size_t>(c_.bins);
    require(c_.fidelity.size() == all && c_.mass.size() == all && c_.density.size() == per_bin,
            "fidelity curves hold {}, {} and {} numbers where {}, {} and {} are needed", c_.fidelity.size(),
            c_.mass.size(), c_.density.size(), all, all, per_bin);
  }

  const FidelityCurves& c_;
  std::vector<double> weights_;  // [bins][layers]
  double total_ = 0;
};

Choice choose(const Table& t, const TargetSurface& surface, double offset) {
  const FidelityCurves& c = t.curves();
  Choice choice(static_cast<std::size_t>(t.entries()));
  for (std::int64_t e = 0; e < t.entries(); ++e) {
    const double target = target_fidelity(surface, offset, t.bin_of(e), c.bins, t.layer_of(e), c.layers);
    const auto curve = t.fidelity(e);
    const auto reached = std::ranges::lower_bound(curve, target, {}, [](float f) { return static_cast<double>(f); });
    const auto level = static_cast<std::int32_t>(std::min<std::int64_t>(reached - curve.begin(), kLast));
    choice[static_cast<std::size_t>(e)] =
        t.share(e) > 0 ? std::max(level, t.first_level(e)) : static_cast<std::int32_t>(kLast);
  }
  return choice;
}

// From `low` towards `high` as far as `wanted` allows: the entries that differ, most mass for the density first.
void fill_up(const Table& t, const Choice& high, double wanted, Choice& low) {
  struct Step {
    std::int64_t entry;
    double cost, worth;  // worth: mass for the density
  };
  std::vector<Step> steps;
  for (std::int64_t e = 0; e < t.entries(); ++e) {
    const std::int32_t from = low[static_cast<std::size_t>(e)], to = high[static_cast<std::size_t>(e)];
    if (from == to) continue;
    const double cost = t.density(e, to) - t.density(e, from), gain = t.mass(e, to) - t.mass(e, from);
    steps.push_back({e, t.share(e) * cost, cost > 0 ? gain / cost : std::numeric_limits<double>::infinity()});
  }
  std::ranges::stable_sort(steps, std::greater{}, &Step::worth);
  double left = wanted + kRounding - t.mean_density(low);
  for (const Step& s : steps) {
    if (s.cost > left) continue;
    left -= s.cost;
    low[static_cast<std::size_t>(s.entry)] = high[static_cast<std::size_t>(s.entry)];
  }
}

struct Fit {
  Choice choice;
  double at = 0;
};

// The table of a family that meets `wanted`. `family` maps a number to a table whose density falls with it; `strict`
// and `loose` are the ends.
template <class Family>
Fit meet(const Table& t, double wanted, double strict, double loose, Family&& family) {
  Choice high = family(strict);
  if (t.mean_density(high) <= wanted + kRounding) return {std::move(high), strict};
  Choice low = family(loose);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (strict + loose);
    Choice choice = family(middle);
    const bool fits = t.mean_density(choice) <= wanted + kRounding;
    (fits ? low : high) = std::move(choice);
    (fits ? loose : strict) = middle;
  }
  fill_up(t, high, wanted, low);
  return {std::move(low), loose};
}

// Bins and layers are few or many: omega is tried relative to what makes the whole run count as much as all layers.
std::vector<TargetSurface> surfaces(const FidelityCurves& c) {
  const double even = static_cast<double>(std::max<std::int64_t>(1, c.layers - 1)) /
                      static_cast<double>(std::max<std::int64_t>(1, c.bins - 1));
  std::vector<TargetSurface> all = {{0, 1, 1}};
  for (double beta : {0.1, 0.2, 0.3, 0.45, 0.6}) {
    for (double gamma : {0.5, 1.0, 2.0, 4.0}) {
      for (double omega : {0.0, 1.0 / 3, 1.0, 3.0}) all.push_back({beta, gamma, omega * even});
    }
  }
  return all;
}

Choice uniform_choice(const Table& t, double density) {
  Choice choice(static_cast<std::size_t>(t.entries()), static_cast<std::int32_t>(kLast));
  for (std::int64_t e = 0; e < t.entries(); ++e) {
    if (t.share(e) == 0) continue;
    std::int32_t best = t.first_level(e);
    for (std::int32_t l = best + 1; l <= kLast; ++l) {
      if (std::abs(t.density(e, l) - density) < std::abs(t.density(e, best) - density)) best = l;
    }
    choice[static_cast<std::size_t>(e)] = best;
  }
  return choice;
}

Budget to_budget(const Table& t, const Choice& choice) {
  const FidelityCurves& c = t.curves();
  Budget b;
  b.bins = c.bins, b.layers = c.layers, b.heads = c.heads;
  for (std::int64_t e = 0; e < t.entries(); ++e) {
    const std::int32_t l = choice[static_cast<std::size_t>(e)];
    b.levels.push_back(FidelityCurves::level(l));
    b.permille.push_back(std::clamp(static_cast<std::int32_t>(std::lround(1000 * t.density(e, l))), 1, 1000));
  }
  b.density = t.mean_density(choice);
  b.mass = t.mean_mass(choice);
  return b;
}

void check_density(double density) {
  require(density > 0 && density <= 1, "a density of {} is outside (0, 1]", density);
}

}  // namespace

double target_fidelity(const TargetSurface& s, double offset, std::int64_t bin, std::int64_t bins, std::int64_t layer,
                       std::int64_t layers) {
  const double all = static_cast<double>(layers - 1) + s.omega * static_cast<double>(bins - 1);
  const double x = all > 0 ? (static_cast<double>(layer) + s.omega * static_cast<double>(bin)) / all : 0.0;
  const double allowed = s.beta * (1 - std::pow(1 - std::min(x, 1.0), s.gamma)) + offset;
  return 1 - std::clamp(allowed, 0.0, 1.0);
}

Budget budget_of(const FidelityCurves& curves, const TargetSurface& surface, double offset, BudgetWeights weights) {
  const Table table(curves, weights);
  Budget b = to_budget(table, choose(table, surface, offset));
  b.surface = surface, b.offset = offset;
  return b;
}

Budget uniform_budget(const FidelityCurves& curves, double density, BudgetWeights weights) {
  check_density(density);
  const Table table(curves, weights);
  Budget b = to_budget(table, uniform_choice(table, density));
  b.uniform = true;
  return b;
}

Budget fit_budget(const FidelityCurves& curves, double density, BudgetWeights weights) {
  check_density(density);
  const Table table(curves, weights);
  const Fit uniform = meet(table, density, -1, 0, [&](double x) { return uniform_choice(table, -x); });
  Budget best = to_budget(table, uniform.choice);
  best.uniform = true;
  for (const TargetSurface& surface : surfaces(curves)) {
    const Fit fit = meet(table, density, -1, 1, [&](double offset) { return choose(table, surface, offset); });
    if (table.mean_mass(fit.choice) <= best.mass) continue;
    best = to_budget(table, fit.choice);
    best.surface = surface, best.offset = fit.at;
  }
  return best;
}

}  // namespace tulle
