#include "select/value_budget.hpp"

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr int kHalvings = 60;
constexpr double kLargestPrice = 1e6;

double worth(std::int64_t bin, std::int64_t bins, double fall) {
  return std::pow(fall, 1 - (static_cast<double>(bin) + 0.5) / static_cast<double>(bins));
}

// The cheapest level of one entry at a price of density.
std::int64_t cheapest(const FidelityCurves& c, std::int64_t bin, std::int64_t layer, std::int64_t head, double price,
                      double fall) {
  const float* mass = c.mass.data() + c.at(bin, layer, head);
  const float* density = c.density.data() + c.at(layer, head);
  std::int64_t best = FidelityCurves::kLevels - 1;
  double least = price * static_cast<double>(density[best]);
  for (std::int64_t l = best - 1; l >= 0 && density[l] > 0; --l) {
    const double lost = 1 - static_cast<double>(mass[l]);
    const double cost = worth(bin, c.bins, fall) * lost * lost + price * static_cast<double>(density[l]);
    if (cost < least) least = cost, best = l;
  }
  return best;
}

Budget at_price(const FidelityCurves& c, BudgetWeights weights, double price, double fall) {
  Budget b;
  b.bins = c.bins, b.layers = c.layers, b.heads = c.heads;
  double density = 0, mass = 0, total = 0;
  for (std::int64_t e = 0; e < c.bins * c.layers * c.heads; ++e) {
    const std::int64_t bin = e / c.heads / c.layers, layer = e / c.heads % c.layers, head = e % c.heads;
    const double weight = weights[static_cast<std::size_t>(bin * c.layers + layer)];
    const std::int64_t l = weight > 0 ? cheapest(c, bin, layer, head, price, fall) : FidelityCurves::kLevels - 1;
    const double d = static_cast<double>(c.density[c.at(layer, head) + static_cast<std::size_t>(l)]);
    b.levels.push_back(FidelityCurves::level(l));
    b.permille.push_back(std::clamp(static_cast<std::int32_t>(std::lround(1000 * d)), 1, 1000));
    density += weight * d;
    mass += weight * static_cast<double>(c.mass[c.at(bin, layer, head) + static_cast<std::size_t>(l)]);
    total += weight;
  }
  b.density = density / total;
  b.mass = mass / total;
  return b;
}

}  // namespace

Budget valued_budget(const FidelityCurves& c, double density, BudgetWeights weights, const BudgetValue& value) {
  require(density > 0 && density <= 1, "a density of {} is outside (0, 1]", density);
  require(value.fall >= 1, "a worth that falls by the factor {} is none; it must be at least 1", value.fall);
  require(std::ssize(weights) == c.bins * c.layers, "{} weights were given for {} bins x {} layers", weights.size(),
          c.bins, c.layers);
  require(std::ranges::any_of(weights, [](double w) { return w > 0; }),
          "every layer of every step is dense: there is no density to share out");
  double low = 0, high = kLargestPrice;  // prices whose density is too high, and low enough
  Budget best = at_price(c, weights, high, value.fall);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    Budget b = at_price(c, weights, middle, value.fall);
    if (b.density > density) {
      low = middle;
    } else {
      high = middle;
      best = std::move(b);
    }
  }
  return best;
}

}  // namespace tulle
