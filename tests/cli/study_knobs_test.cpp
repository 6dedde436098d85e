// Knobs of the quality study: settings that give a whole run its density, counted by hand.
#include "cli/study_knobs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "select/chooser.hpp"
#include "tests/cli/study_profile.hpp"
#include "tulle/error.hpp"

namespace tulle::cli {
namespace {

constexpr double kDensities[] = {0.55, 0.40, 0.25, 0.15};
constexpr std::int64_t kLayers = 3, kHeads = 4, kBins = 8;

Profile profile_of(const TokenGrid& grid) { return testing_data::varied_profile(grid, kLayers, kHeads, kBins); }

// Whether a step of the study computes all blocks, under a policy without dense layers.
bool computes_all(const Policy& p, std::int32_t step) {
  const StepRule rule = rule_for(p, step, kStudySteps, 0);
  return rule.dense || (p.residual && rule.interval_id != rule_for(p, step - 1, kStudySteps, 0).interval_id);
}

// The unconditional branch: the same as the conditional one, or all blocks at the first step of each interval of
// `follow`, what a mask keeps at every renew-th after it, and nothing else.
double other_branch(const Policy& p, std::int32_t step, double own, double masked) {
  const auto& starts = p.follow.starts;
  if (starts.empty() || step < starts.front()) return own;
  const std::int32_t age = step - *std::prev(std::ranges::upper_bound(starts, step));
  if (age == 0) return 1;
  return p.follow.renew > 0 && age % p.follow.renew == 0 ? masked : 0;
}

// Density of the whole run that a schedule comes to: kept blocks, and one pair in `tail` of the others.
double counted(const Policy& p, const TokenGrid& grid) {
  const std::int64_t blocks = (grid.tokens() + p.block_k - 1) / p.block_k;
  double sum = 0;
  for (std::int32_t step = 0; step < kStudySteps; ++step) {
    const StepRule rule = rule_for(p, step, kStudySteps, 0);
    const double kept = double(kept_count(blocks, rule.permille)) / double(blocks);
    const double masked = kept + (p.tail > 0 ? (1 - kept) / p.tail : 0), own = computes_all(p, step) ? 1 : masked;
    sum += (own + other_branch(p, step, own, masked)) / 2;
  }
  return sum / kStudySteps;
}

StudyPreset with_tail_of(std::int32_t tail) {
  StudyPreset preset = study_preset("dfsattn");
  preset.policy.tail = tail;
  return preset;
}

TEST(Knobs, SchedulesMeetTheDensityWithDenseStepsAndTailCounted) {
  std::vector<StudyPreset> presets = study_presets();
  presets.push_back(with_tail_of(64));
  presets.push_back(with_tail_of(32));
  for (const StudyPreset& preset : presets) {
    if (preset.knob != Knob::kSchedule) continue;
    for (const char* grid : {"9x16x16", "13x20x24", "5x14x18"}) {
      for (const double density : kDensities) {
        const Policy p = policy_at(preset, density, parse_grid(grid), nullptr, 0);
        // 20 blocks, of which a row keeps at least one, are few.
        const double tolerance = parse_grid(grid).tokens() > 2000 ? 0.006 : 0.02;
        EXPECT_NEAR(counted(p, parse_grid(grid)), density, tolerance) << preset.name << " " << grid << " " << p.tail;
        EXPECT_NEAR(planned_density(p, parse_grid(grid), nullptr), counted(p, parse_grid(grid)), 1e-12);
      }
    }
  }
}

TEST(Knobs, ScheduleKeepsItsProportions) {
  const Policy p = policy_at(study_preset("dfsattn"), 0.40, parse_grid("13x20x24"), nullptr, 0);
  ASSERT_EQ(p.schedule.permille.size(), 3u);  // 3 : 2 : 1, but for whole blocks of 98
  EXPECT_NEAR(p.schedule.permille[0], 3 * p.schedule.permille[2], 41);
  EXPECT_NEAR(p.schedule.permille[1], 2 * p.schedule.permille[2], 41);
  // Where the first interval is full, the others take the rest.
  const Policy full = policy_at(study_preset("dfsattn"), 0.80, parse_grid("13x20x24"), nullptr, 0);
  EXPECT_EQ(full.schedule.permille[0], 1000);
  EXPECT_NEAR(counted(full, parse_grid("13x20x24")), 0.80, 0.0055);
}

// The density of a budget, from masks' own rules: a mask holds for an interval, and takes the part of the run in which
// it was chosen.
double counted(const Policy& p, const TokenGrid& grid, const Profile& profile) {
  const Budget b = *make_prior(p, profile, grid)->budget;
  const std::int64_t blocks = (grid.tokens() + p.block_k - 1) / p.block_k;
  const bool ranks = p.chooser == "rank_threshold";
  double sum = kStudyDenseSteps;
  for (std::int32_t step = kStudyDenseSteps; step < kStudySteps; ++step) {
    const std::int32_t chosen = step - (step - kStudyDenseSteps) % p.schedule.interval;
    double kept = 0;
    for (std::int64_t e = 0; e < kLayers * kHeads; ++e) {
      const std::size_t at = b.at(chosen * kBins / kStudySteps, e / kHeads, e % kHeads);
      kept += ranks ? density_at(profile.ranks[std::size_t(e / kHeads)], e % kHeads, b.levels[at])
                    : double(kept_count(blocks, b.permille[at])) / double(blocks);
    }
    kept /= kLayers * kHeads;
    sum += kept + (p.tail > 0 ? (1 - kept) / p.tail : 0);
  }
  return sum / kStudySteps;
}

TEST(Knobs, BudgetsMeetTheDensityInWholeBlocksWithTheTailCounted) {
  const TokenGrid grid = parse_grid("9x16x16");
  const Profile profile = profile_of(grid);
  StudyPreset valued = study_preset("west+fast");
  valued.name = "scores, valued, tail 64";
  valued.policy.chooser = "top_k";
  valued.policy.budget = BudgetKind::kValued;
  valued.policy.fall = 10;
  valued.policy.tail = 64;
  for (const StudyPreset& preset : {study_preset("west"), study_preset("west+fast"), valued}) {
    for (const double density : kDensities) {
      const Policy p = policy_at(preset, density, grid, &profile, 0);
      EXPECT_NEAR(counted(p, grid, profile), density, 0.01) << preset.name;
      EXPECT_NEAR(planned_density(p, grid, make_prior(p, profile, grid).get()), counted(p, grid, profile), 1e-9)
          << preset.name;
    }
  }
}

TEST(Knobs, PresetsShareDenseStepsAndHaveNoDenseLayer) {
  const TokenGrid grid = parse_grid("9x16x16");
  const Profile profile = profile_of(grid);
  for (const StudyPreset& preset : study_presets()) {
    const Policy p = policy_at(preset, 0.4, grid, &profile, 800);
    EXPECT_TRUE(p.dense_layers.empty()) << preset.name;
    EXPECT_EQ(preset.knob, knob_of(preset.policy)) << preset.name;
    for (std::int32_t step = 0; step < kStudySteps; ++step) {
      const bool dense = step < kStudyDenseSteps, renewed = p.residual && !dense;
      EXPECT_EQ(computes_all(p, step) && !renewed, dense) << preset.name << " " << step;
    }
  }
}

// Steps with all blocks take most of the work, and come at growing distances. An unconditional branch that follows has
// fewer, and earlier ones.
TEST(Knobs, ResidualsAreRenewedMoreOftenAtHigherDensity) {
  using Steps = std::vector<std::int32_t>;
  const auto policy = [](double density, bool follow) {
    StudyPreset preset = study_preset("tulle");
    if (!follow) preset.policy.follow = {};
    return policy_at(preset, density, parse_grid("9x16x16"), nullptr, 0);
  };
  EXPECT_EQ(policy(0.15, false).schedule.starts, (Steps{1, 12}));
  EXPECT_EQ(policy(0.25, false).schedule.starts, (Steps{1, 3, 6, 10, 18}));
  EXPECT_EQ(policy(0.15, true).schedule.starts, (Steps{1, 3, 6, 10, 18}));
  EXPECT_EQ(policy(0.15, true).follow.starts, (Steps{1}));
  EXPECT_EQ(policy(0.25, true).schedule.starts, (Steps{1, 2, 3, 5, 8, 12, 19}));
  EXPECT_EQ(policy(0.25, true).follow.starts, (Steps{1, 3, 6}));
  EXPECT_EQ(policy(0.40, true).follow.starts, (Steps{1, 3, 6, 10, 15}));
  EXPECT_GT(policy(0.55, true).schedule.starts.size(), policy(0.40, true).schedule.starts.size());
  EXPECT_GT(policy(0.55, true).follow.starts.size(), policy(0.40, true).follow.starts.size());
}

TEST(Knobs, TopPIsTheGivenOne) {
  const Policy p = policy_at(study_preset("topp"), 0.4, parse_grid("9x16x16"), nullptr, 731);
  EXPECT_EQ(p.top_p, 731);
  EXPECT_THROW(planned_density(p, parse_grid("9x16x16"), nullptr), Error);
}

TEST(Knobs, RefusesWhatCannotBe) {
  const TokenGrid grid = parse_grid("9x16x16");
  EXPECT_THROW(policy_at(study_preset("dfsattn"), 0.05, grid, nullptr, 0), Error);
  EXPECT_THROW(policy_at(with_tail_of(8), 0.15, grid, nullptr, 0), Error) << "the tail alone is 0.117 of 28 steps";
  EXPECT_THROW(policy_at(study_preset("west"), 0.4, grid, nullptr, 0), Error);
  EXPECT_THROW(study_preset("dense"), Error);
}

}  // namespace
}  // namespace tulle::cli
