// Knobs of the quality study: which settings give a whole run a density, and which density settings give.
#pragma once

#include <cstdint>

#include "cli/quality.hpp"
#include "select/prior.hpp"

namespace tulle::cli {

// Mean density of a run of kStudySteps steps, counted beforehand: dense steps, whole blocks, intervals and tail
// included, both branches of guidance counted alike. `prior` is read where the policy's density comes from a budget,
// else it may be null. Not for chooser top_p, whose density follows from the data, and without dense layers and
// envelope. Pure. Throws Error(kInvalidArgument).
double planned_density(const Policy& policy, const TokenGrid& grid, const Prior* prior);

// The preset with its knob turned so that the whole run comes as near to `density` as it can on `grid`; for kTopP the
// knob is `top_p`, else that is not read. `profile` is read for kBudget only. How near it comes is planned_density's to
// say: rank maps of many captions keep more than one block a row at their lowest level, and a budget cannot go below
// that. Throws Error(kInvalidArgument) when the density lies below that of dense steps and tail alone, and as
// make_prior does.
Policy policy_at(const StudyPreset& preset, double density, const TokenGrid& grid, const Profile* profile,
                 std::int32_t top_p);

}  // namespace tulle::cli
