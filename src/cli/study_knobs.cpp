#include "cli/study_knobs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "select/chooser.hpp"

namespace tulle::cli {
namespace {

constexpr int kHalvings = 60;

// Of policies with residuals: the share of the work that goes into steps that compute all blocks. Where the branches of
// guidance are alike with the dense step that every run begins with, where one follows the other without it.
constexpr double kCompleteShare = 0.75, kFollowedCompleteShare = 2.0 / 3;

// How much farther a step with all blocks may be from the one before than that was from its own, and the least distance
// between the first two, before rounding.
constexpr double kGrowth = 1.6, kShortest = 0.75;

std::int64_t key_blocks(const Policy& p, const TokenGrid& grid) {
  return ceil_div(grid.tokens(), std::int64_t{p.block_k});
}

// What a chooser of whole blocks makes of a density.
double met(std::int64_t blocks, std::int32_t permille) {
  return static_cast<double>(kept_count(blocks, permille)) / static_cast<double>(blocks);
}

// Intervals of a schedule: their sparse steps, and the density of each as the policy has it.
struct Intervals {
  std::vector<double> steps, shape;
};

Intervals intervals_of(const Policy& p) {
  const Schedule& s = p.schedule;
  Intervals all;
  std::vector<std::int32_t> starts = s.starts;
  if (starts.empty()) {
    for (std::int32_t begin = s.dense_steps; begin < kStudySteps; begin += s.interval) starts.push_back(begin);
  }
  starts.push_back(kStudySteps);
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    all.steps.push_back(starts[i + 1] - starts[i] - (p.residual ? 1 : 0));
    all.shape.push_back(s.permille[std::min(i, s.permille.size() - 1)]);
  }
  return all;
}

// Steps that compute all blocks to have a residual.
std::int32_t complete_steps(const Policy& p) {
  return p.residual ? static_cast<std::int32_t>(std::ssize(intervals_of(p).steps)) : 0;
}

// What the unconditional branch computes at a step: what the conditional one would, all blocks, those of the
// conditional one's mask, or nothing.
enum class Other : std::uint8_t { kApart, kAll, kMask, kNothing };

Other other_branch(const FollowRule& now, const FollowRule& last) {
  if (now.interval_id < 0) return Other::kApart;
  if (now.interval_id != last.interval_id) return Other::kAll;
  return now.part != last.part ? Other::kMask : Other::kNothing;
}

// Steps at which it computes those of the conditional one's mask.
std::int32_t renewals(const Policy& p) {
  std::int32_t count = 0;
  FollowRule last;
  for (std::int32_t step = 0; step < kStudySteps; ++step) {
    const FollowRule now = follow_rule_for(p, step, kStudySteps, 0);
    if (other_branch(now, last) == Other::kMask) ++count;
    last = now;
  }
  return count;
}

// The share that sparse steps must keep for the whole run to have `density`.
double kept_at_sparse_steps(const Policy& p, double density) {
  const std::int32_t dense = p.schedule.dense_steps + complete_steps(p), sparse = kStudySteps - dense;
  double kept = (density * kStudySteps - dense) / sparse;
  if (!p.follow.starts.empty()) {
    // The other branch has its dense steps, and at some others the blocks of this one.
    const double other = p.schedule.dense_steps + static_cast<double>(p.follow.starts.size());
    kept = (2 * density * kStudySteps - dense - other) / (sparse + renewals(p));
  }
  if (p.tail > 0) kept = (kept - 1.0 / p.tail) / (1 - 1.0 / p.tail);
  require(kept > 0 && kept <= 1, "a density of {:.3f} cannot be met: {} of {} steps are dense{}", density, dense,
          kStudySteps, p.tail > 0 ? " and the tail has work of its own" : "");
  return kept;
}

// 1 + ratio + ratio^2 + ..., so many terms.
double geometric_sum(double ratio, std::int64_t terms) {
  double sum = 0;
  for (std::int64_t i = 0; i < terms; ++i) sum = 1 + ratio * sum;
  return sum;
}

// The greatest ratio, up to kGrowth, at which so many distances fill the steps and the first is not below kShortest.
double growth_of(double steps, std::int64_t distances) {
  double low = 1, high = kGrowth;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (steps / geometric_sum(middle, distances) >= kShortest ? low : high) = middle;
  }
  return low;
}

// `count` steps with all blocks, the first at `first`, at distances that grow by one ratio up to the end of the run:
// what a video becomes is settled in the first third of it.
std::vector<std::int32_t> growing_starts(std::int32_t first, std::int64_t count) {
  const double steps = kStudySteps - first, ratio = growth_of(steps, count);
  std::vector<std::int32_t> starts;
  for (std::int64_t i = 0; i < count; ++i) {
    const double part = geometric_sum(ratio, i) / geometric_sum(ratio, count);
    const auto at = first + static_cast<std::int32_t>(std::lround(part * steps));
    starts.push_back(starts.empty() ? at : std::max(at, starts.back() + 1));
  }
  return starts;
}

// first, first + 2, + 5, + 9, + 14, ...: `count` steps, as far as there are so many.
std::vector<std::int32_t> triangular_starts(std::int32_t first, std::int64_t count) {
  std::vector<std::int32_t> starts;
  for (std::int32_t i = 0, at = first; i < count && at < kStudySteps; ++i, at += i + 1) starts.push_back(at);
  return starts;
}

// How often a policy with residuals computes all blocks follows from the density. Between those steps one density is
// kept. An unconditional branch that follows weighs less in the result: it has nearly a third of those steps, at the
// beginning.
Policy with_starts(Policy p, double density) {
  Schedule& s = p.schedule;
  const std::int32_t first = s.dense_steps;
  if (p.follow.starts.empty()) {
    s.starts = growing_starts(first, std::max(1L, std::lround(density * kStudySteps * kCompleteShare) - first));
  } else {
    const long both = std::lround(2 * density * kStudySteps * kFollowedCompleteShare);
    p.follow.starts = triangular_starts(first, std::max(1L, (both - 1) / 3));
    const long own = both - static_cast<long>(std::ssize(p.follow.starts));
    s.starts = growing_starts(first, std::clamp(own, 1L, long{kStudySteps - first}));
  }
  s.permille.assign(s.starts.size(), 1);  // equal proportions; the scale is the knob's
  return p;
}

double scaled(double shape, double scale) { return std::min(1.0, shape * scale); }

// The factor by which all densities are multiplied, none above 1, for their mean over the steps to be `wanted`.
double scale_of(const Intervals& v, double wanted) {
  const double sparse_steps = std::accumulate(v.steps.begin(), v.steps.end(), 0.0);
  double low = 0, high = 1;  // shapes are at least 1
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    double sum = 0;
    for (std::size_t j = 0; j < v.steps.size(); ++j) sum += v.steps[j] * scaled(v.shape[j], middle);
    (sum / sparse_steps < wanted ? low : high) = middle;
  }
  return high;
}

// The schedule's densities in their proportions, in whole blocks: what rounding took from an interval the next one
// gets, longest first, so that the last to be rounded are those of few steps.
std::vector<std::int32_t> proportioned(const Policy& p, double wanted, std::int64_t blocks) {
  const Intervals v = intervals_of(p);
  const double scale = scale_of(v, wanted);
  std::vector<std::int32_t> permille(v.steps.size());
  std::vector<std::size_t> order(v.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return v.steps[i]; });
  double owed = 0;  // blocks x steps
  for (const std::size_t i : order) {
    owed += v.steps[i] * scaled(v.shape[i], scale) * static_cast<double>(blocks);
    const double steps = std::max(1.0, v.steps[i]);  // an interval of one step has no sparse one
    const auto count = std::clamp<std::int64_t>(std::llround(owed / steps), 1, blocks);
    owed -= v.steps[i] * static_cast<double>(count);
    permille[i] = static_cast<std::int32_t>(ceil_div(1000 * count, blocks));
  }
  return permille;
}

// A density with the work of a tail counted: of what is dropped, one pair in `tail` is computed, with a mean as its
// key.
double with_tail(double kept, std::int32_t tail) { return tail > 0 ? kept + (1 - kept) / tail : kept; }

// Mean share that the calls of a step keep, whose mask was chosen in part `bin` of the run.
double kept_of_budget(const Policy& p, const Prior& prior, std::int64_t blocks, std::int64_t bin) {
  const Budget& b = *prior.budget;
  const bool by_level = find_chooser(p.chooser).needs_ranks;
  double sum = 0;
  for (std::int64_t layer = 0; layer < b.layers; ++layer) {
    for (std::int64_t head = 0; head < b.heads; ++head) {
      const std::size_t at = b.at(bin, layer, head);
      sum += by_level ? density_at(prior.profile.ranks[static_cast<std::size_t>(layer)], head, b.levels[at])
                      : met(blocks, b.permille[at]);
    }
  }
  return sum / static_cast<double>(b.layers * b.heads);
}

Policy budget_at(Policy p, double density, const TokenGrid& grid, const Profile& profile) {
  std::int32_t low = 1, high = 1000, best = 1;
  double best_error = 2;
  while (low <= high) {
    p.density = (low + high) / 2;
    const double error = planned_density(p, grid, make_prior(p, profile, grid).get()) - density;
    if (std::abs(error) < best_error) best_error = std::abs(error), best = p.density;
    (error > 0 ? high : low) = error > 0 ? p.density - 1 : p.density + 1;
  }
  p.density = best;
  return p;
}

}  // namespace

double planned_density(const Policy& p, const TokenGrid& grid, const Prior* prior) {
  require(
      p.dense_layers.empty() && p.envelope == 0 && p.chooser != "top_p",
      "the density of policy \"{}\" cannot be counted beforehand: it has dense layers, an envelope, or chooser top_p",
      p.name);
  require(p.budget == BudgetKind::kSchedule || (prior != nullptr && prior->budget.has_value()),
          "policy \"{}\" takes its densities from a profile, and none was given", p.name);
  const std::int64_t blocks = key_blocks(p, grid);
  std::int32_t interval = -1;
  FollowRule last;
  double kept = 1, sum = 0;  // kept: by a mask
  for (std::int32_t step = 0; step < kStudySteps; ++step) {
    const StepRule rule = rule_for(p, step, kStudySteps, 0);
    if (rule.interval_id != interval && p.budget != BudgetKind::kSchedule && !rule.dense) {
      kept = kept_of_budget(p, *prior, blocks, std::int64_t{step} * prior->budget->bins / kStudySteps);
    } else if (p.budget == BudgetKind::kSchedule) {
      kept = met(blocks, rule.permille);
    }
    const bool complete = rule.dense || (p.residual && rule.interval_id != interval);
    const double masked = with_tail(kept, p.tail), conditional = complete ? 1 : masked;
    const FollowRule follow = follow_rule_for(p, step, kStudySteps, 0);
    const double others[] = {conditional, 1, masked, 0};
    sum += 0.5 * (conditional + others[static_cast<std::size_t>(other_branch(follow, last))]);
    interval = rule.interval_id, last = follow;
  }
  return sum / kStudySteps;
}

Policy policy_at(const StudyPreset& preset, double density, const TokenGrid& grid, const Profile* profile,
                 std::int32_t top_p) {
  Policy p = preset.policy.residual ? with_starts(preset.policy, density) : preset.policy;
  const double kept = kept_at_sparse_steps(p, density);
  switch (preset.knob) {
    case Knob::kNone:
      break;
    case Knob::kSchedule:
      p.schedule.permille = proportioned(p, kept, key_blocks(p, grid));
      break;
    case Knob::kBudget:
      require(profile != nullptr, "preset \"{}\" needs a profile: make one with tulle calibrate", preset.name);
      p = budget_at(p, density, grid, *profile);
      break;
    case Knob::kTopP:
      p.top_p = top_p;
      p.schedule.permille = {1000};
      break;
  }
  check_policy(p);
  return p;
}

}  // namespace tulle::cli
