// Ablation remap: what rank maps of other grids keep on this one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/fail.hpp"
#include "cli/study_masks.hpp"
#include "cli/study_masks_runs.hpp"
#include "cli/study_recall.hpp"

namespace tulle::cli {
namespace {

using Profiles = std::vector<std::shared_ptr<const Profile>>;

// A way to choose blocks, and what its masks came to, by video.
struct Rule {
  using Choose = std::function<BlockMask(const SelectCall&, ConstTensorView q, ConstTensorView k, const BlockMass&)>;

  Rule(std::string name_, Choose choose_, std::size_t heads)
      : name(std::move(name_)),
        choose(std::move(choose_)),
        recall(heads),
        own(heads),
        relative(heads),
        density(heads) {}

  std::string name;
  Choose choose;
  HeadMeans recall, own, relative, density;  // own: of the grid's own map at the density that this rule has come to
  // [heads] of the video that runs, sums over its steps.
  std::vector<double> video_recall{}, video_own{}, video_density{};
};

// The order and the blocks of a profile, all steps sparse.
Policy policy_like(const Profile& own, const char* preset) {
  Policy p = study_preset(preset).policy;
  p.order = own.order();
  p.block_q = own.q().block, p.block_k = own.k().block;
  p.sub_block = 1;  // not used: any size of blocks will do
  p.schedule.dense_steps = 0;
  return p;
}

Rule::Choose by_selector(const Policy& policy, std::shared_ptr<const Prior> prior, const Threads& threads) {
  const auto selector = std::make_shared<Selector>(policy, std::move(prior));
  return [selector, &threads](const SelectCall& call, ConstTensorView q, ConstTensorView k, const BlockMass&) {
    return *selector->choose(call, q, k, threads);
  };
}

Rule::Choose by_map(const Profile& profile, const Profile& own, const MaskScope& scope, const Threads& threads) {
  Policy policy = policy_like(own, "west");
  policy.density = scope.permille;
  return by_selector(policy, make_prior(policy, profile, scope.grid), threads);
}

Rule::Choose by_window(const Profile& own, const MaskScope& scope, const Threads& threads) {
  Policy policy = policy_like(own, "window");
  policy.schedule.permille = {scope.permille};
  return by_selector(policy, nullptr, threads);
}

Rule::Choose by_mass(const Profile& own, const MaskScope& scope) {
  return [&own, &scope](const SelectCall& call, ConstTensorView, ConstTensorView, const BlockMass& mass) {
    return best_blocks(mass, call.partition, {call.partition.sequence, own.k().block}, own.order(), scope.permille);
  };
}

std::size_t own_profile(const Profiles& profiles, const TokenGrid& grid) {
  std::vector<std::string> grids;
  for (const auto& p : profiles) grids.push_back(to_string(p->q().sequence.grid));
  for (const std::string& name : grids) {
    require(std::ranges::count(grids, name) == 1, "two profiles are of grid {}: give one of each grid", name);
  }
  const std::string own = to_string(grid);
  const auto at = std::ranges::find(grids, own);
  require(at != grids.end(),
          "ablation remap compares with the grid's own profile, and none is of grid {}: make one with tulle calibrate "
          "--grid {}, name it with --profile",
          own, own);
  require(grids.size() > 1,
          "ablation remap needs a profile of another grid than {}: make one with tulle calibrate --grid, name it with "
          "--profile",
          own);
  return static_cast<std::size_t>(at - grids.begin());
}

// The grid's own map first.
std::vector<Rule> rules_of(const Profiles& profiles, std::size_t own_at, const MaskScope& scope, const Threads& threads,
                           std::size_t heads) {
  const Profile& own = *profiles[own_at];
  std::vector<Rule> rules;
  rules.emplace_back("remap/own", by_map(own, own, scope, threads), heads);
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    if (i == own_at) continue;
    rules.emplace_back("remap/" + to_string(profiles[i]->q().sequence.grid), by_map(*profiles[i], own, scope, threads),
                       heads);
  }
  rules.emplace_back("remap/window", by_window(own, scope, threads), heads);
  rules.emplace_back("remap/best", by_mass(own, scope), heads);
  return rules;
}

std::vector<double> densities_of(const BlockMask& mask) {
  const double pairs = static_cast<double>(mask.q().tokens()) * static_cast<double>(mask.k().tokens());
  std::vector<double> out;
  for (std::int64_t h = 0; h < mask.heads(); ++h) out.push_back(static_cast<double>(kept_pairs(mask, 0, h)) / pairs);
  return out;
}

// The map's mask whose density comes nearest to that asked for, head by head.
BlockMask mask_near(const RankMap& map, std::span<const double> densities) {
  std::vector<std::uint8_t> levels;
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    const auto by_level = density_by_level(map, h);
    const double asked = densities[static_cast<std::size_t>(h)];
    const auto nearest = std::ranges::min_element(by_level, {}, [&](double d) { return std::abs(d - asked); });
    levels.push_back(static_cast<std::uint8_t>(nearest - by_level.begin()));
  }
  return mask_at(map, levels);
}

void see_call(Rule& rule, const RankMap& own, const SelectCall& call, ConstTensorView q, ConstTensorView k,
              const BlockMass& mass) {
  const BlockMask mask = rule.choose(call, q, k, mass);
  const std::vector<double> densities = densities_of(mask);
  const std::vector<Recall> kept = recall_of(mask, mass), kept_by_own = recall_of(mask_near(own, densities), mass);
  const std::size_t first = static_cast<std::size_t>(call.layer) * kept.size();
  for (std::size_t h = 0; h < kept.size(); ++h) {
    rule.video_recall[first + h] += kept[h].mean;
    rule.video_own[first + h] += kept_by_own[h].mean;
    rule.video_density[first + h] += densities[h];
  }
}

void end_video(Rule& rule, double steps) {
  std::vector<double> relative = rule.video_recall;
  std::ranges::transform(relative, rule.video_own, relative.begin(), std::divides{});
  rule.relative.add(relative);
  for (auto* sums : {&rule.video_recall, &rule.video_own, &rule.video_density}) {
    for (double& sum : *sums) sum /= steps;
  }
  rule.recall.add(rule.video_recall);
  rule.own.add(rule.video_own);
  rule.density.add(rule.video_density);
}

void run_video_of(DenseRuns& runs, const DenseRun& run, const Profile& own, std::vector<Rule>& rules,
                  std::size_t heads) {
  for (Rule& rule : rules) {
    for (auto* sums : {&rule.video_recall, &rule.video_own, &rule.video_density}) sums->assign(heads, 0.0);
  }
  runs.run(run, [&](const SelectCall& call, ConstTensorView q, ConstTensorView k, const BlockMass& mass) {
    const RankMap& map = own.ranks[static_cast<std::size_t>(call.layer)];
    for (Rule& rule : rules) see_call(rule, map, call, q, k, mass);
  });
  for (Rule& rule : rules) end_video(rule, static_cast<double>(sampled_steps(kStudySteps).size()));
}

MaskRow row_of(const Rule& rule, const MaskScope& scope) {
  const std::string own = "the grid's own profile at the same density";
  return {rule.name,
          {{"recall", "share", true, rule.recall.mean(), own, rule.own.mean().mean},
           {"recall_p5", "share", true, rule.recall.low(), own, rule.own.low().mean},
           {"density", "share", false, rule.density.mean(), "density asked for", scope.permille / 1000.0},
           {"relative_recall", "share", true, rule.relative.mean(), own, 1},
           {"relative_recall_p5", "share", true, rule.relative.low(), own, 1}}};
}

}  // namespace

MaskFindings measure_remap(const StudySetup& setup, const StudyChoice& choice) {
  const MaskScope scope = mask_scope(choice, 1);
  const Loaded loaded = load_model(setup.model, default_precision());
  const Profiles profiles = load_profiles(setup, loaded);
  const std::size_t own_at = own_profile(profiles, scope.grid);
  const Profile& own = *profiles[own_at];

  const auto videos = static_cast<std::size_t>(scope.captions) * static_cast<std::size_t>(scope.seeds);
  DenseRuns runs(loaded, setup, scope, {own.order(), own.q().block, own.k().block}, videos);
  std::vector<Rule> rules = rules_of(profiles, own_at, scope, runs.threads(), all_heads(loaded));
  for (std::size_t video = 0; video < videos; ++video) {
    const auto seeds = static_cast<std::size_t>(scope.seeds);
    run_video_of(runs, {video / seeds, video % seeds, loaded.sampler.guidance}, own, rules, all_heads(loaded));
  }

  MaskFindings found{to_string(scope.grid), {}, {}};
  found.words = fmt::format(
      "{}, rank maps remapped to it, budget uniform at {:.3f} ({}, {} x {} tokens), on dense runs: {} captions, "
      "{} seeds, steps {} of {}, conditional branch. A remapped map keeps whatever a kept block of its source covers, "
      "so its density can lie above. Relative recall: over that of the grid's own profile at the density that the row "
      "has come to, head by head. remap/best: the blocks with the most mass.\n",
      found.grid, scope.permille / 1000.0, to_string(own.order()), own.q().block, own.k().block, scope.captions,
      scope.seeds, fmt::join(sampled_steps(kStudySteps), ", "), kStudySteps);
  for (const Rule& rule : rules) found.rows.push_back(row_of(rule, scope));
  return found;
}

}  // namespace tulle::cli
