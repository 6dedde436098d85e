#include "select/prior.hpp"

#include <algorithm>
#include <vector>

#include "select/value_budget.hpp"

namespace tulle {
namespace {

// [bins][layers]: the share of its calls that schedule and dense layers leave sparse.
std::vector<double> weights_of(const Policy& policy, const FidelityCurves& curves) {
  const Schedule& s = policy.schedule;
  std::vector<double> sparse(static_cast<std::size_t>(curves.bins)), all = sparse;
  for (std::int64_t step = 0; step < s.reference_steps; ++step) {
    const auto bin = static_cast<std::size_t>(step * curves.bins / s.reference_steps);
    all[bin] += 1;
    sparse[bin] += step >= s.dense_steps;
  }
  // Bins of a run with few steps differ in size: what counts is the number of steps, not their share of the bin.
  const double largest = std::ranges::max(all);
  std::vector<double> weights;
  for (const double steps : sparse) {
    for (std::int32_t layer = 0; layer < curves.layers; ++layer) {
      const bool dense = std::ranges::find(policy.dense_layers, layer) != policy.dense_layers.end();
      weights.push_back(dense ? 0.0 : steps / largest);
    }
  }
  return weights;
}

}  // namespace

std::shared_ptr<const Prior> make_prior(const Policy& policy, const Profile& profile, const TokenGrid& grid) {
  check_policy(policy);
  Sequence video;
  video.grid = grid;
  auto prior = std::make_shared<Prior>();
  prior->profile = adapt(profile, {video, policy.block_q}, {video, policy.block_k}, policy.order);
  const FidelityCurves& curves = prior->profile.curves;
  const double density = policy.density / 1000.0;
  if (policy.budget == BudgetKind::kSchedule) return prior;
  const std::vector<double> weights = weights_of(policy, curves);
  if (policy.budget == BudgetKind::kUniform) prior->budget = uniform_budget(curves, density, weights);
  if (policy.budget == BudgetKind::kFast) prior->budget = fit_budget(curves, density, weights);
  if (policy.budget == BudgetKind::kValued) {
    prior->budget = valued_budget(curves, density, weights, {.fall = static_cast<double>(policy.fall)});
  }
  return prior;
}

}  // namespace tulle
