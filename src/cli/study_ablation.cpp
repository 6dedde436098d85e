// The ablations of the quality study: a table, each entry a function from a base preset to rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/fail.hpp"
#include "cli/study_plan.hpp"
#include "select/chooser.hpp"
#include "select/scorer.hpp"

namespace tulle::cli {
namespace {

using Rows = std::vector<Wish>;

Wish row(std::string label, Policy policy) {
  const Knob knob = knob_of(policy);
  return {{std::move(label), std::move(policy), knob}, {}};
}

// A row whose policy differs from the base in what `change` does.
template <class Change>
Wish changed(const StudyPreset& base, std::string label, Change change) {
  Policy p = base.policy;
  change(p);
  return row(std::move(label), std::move(p));
}

Rows orders(const AblationInput& in) {
  Rows rows;
  for (const OrderKind order :
       {OrderKind::kRaster, OrderKind::kTile, OrderKind::kMorton, OrderKind::kHilbert, OrderKind::kGilbert}) {
    rows.push_back(changed(in.base, to_string(order), [&](Policy& p) { p.order = order; }));
  }
  return rows;
}

Rows blocks(const AblationInput& in) {
  Rows rows;
  for (const std::int32_t block : {64, 128}) {
    rows.push_back(changed(in.base, std::to_string(block), [&](Policy& p) { p.block_q = p.block_k = block; }));
  }
  return rows;
}

Rows sub_blocks(const AblationInput& in) {
  Rows rows;
  for (const std::int32_t sub : {8, 16, 32}) {
    rows.push_back(changed(in.base, std::to_string(sub), [&](Policy& p) { p.sub_block = sub; }));
  }
  return rows;
}

// A schedule's densities step by step, so that its intervals can have one step each.
std::vector<std::int32_t> by_step(const Schedule& s) {
  std::vector<std::int32_t> permille;
  for (std::int32_t step = 0; step < kStudySteps - s.dense_steps; ++step) {
    const auto i = static_cast<std::size_t>(step / s.interval);
    permille.push_back(s.permille[std::min(i, s.permille.size() - 1)]);
  }
  return permille;
}

void refuse_residual(const AblationInput& in) {
  require(!in.base.policy.residual,
          "preset \"{}\" has residuals, whose schedule follows from the density: give another --preset", in.base.name);
}

Rows fresh(const AblationInput& in) {
  refuse_residual(in);
  return {row("kept", in.base.policy), changed(in.base, "every_step", [](Policy& p) {
            if (p.budget == BudgetKind::kSchedule) p.schedule.permille = by_step(p.schedule);
            p.schedule.interval = 1;
          })};
}

void stop_falling(Policy& p) {
  std::ranges::fill(p.schedule.permille, 100);  // equal proportions; the scale is the knob's
  p.fall = 1;
}

Rows falling(const AblationInput& in) {
  refuse_residual(in);
  Rows rows;
  for (const StudyPreset& base : {study_preset("dfsattn"), in.base}) {
    rows.push_back(row(base.name + "/falling", base.policy));
    rows.push_back(changed(base, base.name + "/fixed", stop_falling));
  }
  if (in.base.name == "dfsattn") rows.resize(2);
  return rows;
}

// What stands for dropped blocks: nothing, their means, what they changed at an earlier step, or both; and with both,
// an unconditional branch that follows the other.
Rows residuals(const AblationInput&) {
  const StudyPreset with = study_preset("tulle"), without = study_preset("dfsattn");
  StudyPreset apart = with;
  apart.policy.follow = {};
  return {row("follow", with.policy), row("both", apart.policy),
          changed(apart, "residual", [](Policy& p) { p.tail = 0; }),
          changed(without, "tail", [](Policy& p) { p.tail = 64; }), row("neither", without.policy)};
}

Policy with_budget(Policy p, const char* chooser, BudgetKind budget) {
  p.chooser = chooser;
  p.budget = budget;
  p.schedule.interval = 3;
  return p;
}

Rows budgets(const AblationInput&) {
  Rows rows;
  for (const char* chooser : {"rank_threshold", "top_k"}) {
    for (const BudgetKind budget : {BudgetKind::kUniform, BudgetKind::kFast, BudgetKind::kValued}) {
      rows.push_back(row(fmt::format("{}/{}", chooser, to_string(budget)),
                         with_budget(study_preset("west").policy, chooser, budget)));
    }
  }
  return rows;
}

// FAST's surface grades the run by itself: does it need a dense beginning?
Rows warm_up(const AblationInput&) {
  Rows rows;
  for (const BudgetKind budget : {BudgetKind::kFast, BudgetKind::kUniform}) {
    for (const std::int32_t dense : {0, kStudyDenseSteps}) {
      Policy p = with_budget(study_preset("west+fast").policy, "rank_threshold", budget);
      p.schedule.dense_steps = dense;
      rows.push_back(row(fmt::format("{}/{}_dense_steps", to_string(budget), dense), p));
    }
  }
  return rows;
}

Rows caption_counts(const AblationInput& in) {
  require(in.profiles.size() >= 2,
          "ablation captions compares profiles: make them with tulle calibrate --count 1, 2, 4, 8, 16, 32, and give "
          "each with "
          "--profile");
  Rows rows;
  for (const auto& profile : in.profiles) {
    Wish wish = row(std::to_string(profile->captions.size()), study_preset("west").policy);
    wish.profile = profile;
    rows.push_back(std::move(wish));
  }
  return rows;
}

Rows scorer_rows(const AblationInput& in) {
  Rows rows;
  for (const Scorer& s : scorers()) {
    rows.push_back(changed(in.base, fmt::format("{}/top_k", s.name), [&](Policy& p) {
      p.scorer = s.name;
      p.chooser = "top_k";
    }));
  }
  for (const Scorer& s : scorers()) {
    if (!s.is_mass) continue;
    rows.push_back(
        changed(study_preset("topp"), fmt::format("{}/top_p", s.name), [&](Policy& p) { p.scorer = s.name; }));
  }
  rows.push_back(row("ranks/rank_threshold", study_preset("west").policy));
  return rows;
}

constexpr std::array kAblations = {
    Ablation{"order", "token orders: raster, tile, morton, hilbert, gilbert", orders},
    Ablation{"block", "blocks of 64 and 128 tokens", blocks},
    Ablation{"sub_block", "sub-blocks of 8, 16 and 32 tokens", sub_blocks},
    Ablation{"fresh", "a mask kept for an interval, or chosen at every step", fresh},
    Ablation{"falling", "a density that falls over the run, or a fixed one", falling},
    Ablation{"residual", "a tail, a residual, both, and neither; both with a branch that follows", residuals},
    Ablation{"budget", "uniform, fast and valued budgets, for rank maps and for scores", budgets},
    Ablation{"warmup", "with and without dense steps, under a fast and a uniform budget", warm_up},
    Ablation{"captions", "west from profiles of more and more captions, one --profile each", caption_counts},
    Ablation{"scorer", "scorers x choosers", scorer_rows}};

}  // namespace

std::span<const Ablation> ablations() { return kAblations; }

}  // namespace tulle::cli
