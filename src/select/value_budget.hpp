// The budget of preset `tulle`: no surface, but the densities under which the least is lost.
#pragma once

#include "select/budget.hpp"

namespace tulle {

// What a level of (bin, layer, head) loses: worth(bin) * (1 - kept mass)^2, worth falling by the factor `fall` from the
// start of the run to its end, because early steps decide what the video becomes. The square makes one head that loses
// half worse than five that lose a tenth each.
struct BudgetValue {
  double fall = 1;  // >= 1
};

// The table that minimises the summed loss among all tables of that mean density or less, by `weights`: for a price of
// density each entry takes the level with the least loss plus price, and the price is found by bisection. Entries of
// weight 0 get the highest level. Throws Error(kInvalidArgument) unless 0 < density <= 1, fall >= 1, and a weight
// counts.
Budget valued_budget(const FidelityCurves& curves, double density, BudgetWeights weights, const BudgetValue& value);

}  // namespace tulle
