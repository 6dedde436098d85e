#include "select/prior.hpp"

#include <algorithm>

namespace tulle {
namespace {

// The first bin of the run in which the policy is sparse at all.
std::int64_t first_sparse_bin(const Policy& policy, const FidelityCurves& curves) {
  return std::min(curves.bins - 1, curves.bins * policy.schedule.dense_steps / policy.schedule.reference_steps);
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
  if (policy.budget == BudgetKind::kUniform) prior->budget = uniform_budget(curves, density);
  if (policy.budget == BudgetKind::kFast) prior->budget = fit_budget(curves, density, first_sparse_bin(policy, curves));
  return prior;
}

}  // namespace tulle
