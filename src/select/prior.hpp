// Prior: a profile made ready for one policy on one grid.
#pragma once

#include <memory>
#include <optional>

#include "select/budget.hpp"
#include "tulle/policy.hpp"
#include "tulle/profile.hpp"

namespace tulle {

// Rank maps of that grid, order and block size, and the fitted budget.
// Immutable; may be shared by the selectors of all ranks.
struct Prior {
  Profile profile;
  std::optional<Budget> budget;  // when the policy takes its densities from the profile
};

// Adapts a profile to the grid and the policy, and fits the budget. Throws Error(kInvalidArgument) when the profile has
// too few layers or heads or the policy's density cannot be met.
std::shared_ptr<const Prior> make_prior(const Policy& policy, const Profile& profile, const TokenGrid& grid);

}  // namespace tulle
