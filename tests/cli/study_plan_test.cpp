// Which videos a study is made of, and the meter beside them.
#include "cli/study_plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cli/study_knobs.hpp"
#include "cli/study_recall.hpp"
#include "select/recall.hpp"
#include "tests/cli/study_profile.hpp"
#include "tulle/error.hpp"

namespace tulle::cli {
namespace {

std::set<std::string> names_of(const StudyPart& part) {
  std::set<std::string> names;
  for (const Wish& w : part.wishes) names.insert(w.preset.name);
  return names;
}

TEST(Plan, IsThePublishedStudyWithoutOptions) {
  const std::vector<StudyPart> parts = study_plan({});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(to_string(parts[0].grid), "9x16x16");
  EXPECT_EQ(parts[0].captions, 8);
  EXPECT_EQ(parts[0].seeds, 2);
  EXPECT_EQ(parts[0].wishes.size(), 4 * study_presets().size());
  EXPECT_EQ(to_string(parts[1].grid), "13x20x24");
  EXPECT_EQ(parts[1].captions, 4);
  EXPECT_EQ(parts[1].seeds, 1);
  EXPECT_EQ(names_of(parts[1]), (std::set<std::string>{"dfsattn", "topp", "tulle", "west+fast"}));
  EXPECT_EQ(parts[1].wishes.size(), 8u);
}

TEST(Plan, OptionsNarrowIt) {
  StudyChoice c;
  c.grids = {"13x20x24"}, c.densities = {0.25}, c.captions = 2;
  const std::vector<StudyPart> parts = study_plan(c);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].wishes.size(), 4u);
  EXPECT_EQ(parts[0].captions, 2);
  EXPECT_EQ(parts[0].seeds, 1);
  c.grids = {"5x8x8"}, c.presets = {"window"};
  EXPECT_EQ(names_of(study_plan(c)[0]), std::set<std::string>{"window"});
  c.densities = {1.5};
  EXPECT_THROW(study_plan(c), Error);
}

TEST(Plan, CheckerTakesOneSeedACaption) {
  const std::vector<StudyPart> parts = checker_plan({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].captions, 100);
  EXPECT_TRUE(parts[0].seed_is_caption);
  ASSERT_EQ(parts[0].wishes.size(), 1u);
  EXPECT_EQ(parts[0].wishes[0].preset.name, "checker/tulle");
  EXPECT_EQ(parts[0].wishes[0].density, 0.15);
}

TEST(Ablations, EveryRowIsAPolicyThatMeetsItsDensity) {
  const TokenGrid grid = parse_grid("9x16x16");
  const auto profile = std::make_shared<const Profile>(testing_data::varied_profile(grid, 3, 4, 8));
  const std::vector<std::shared_ptr<const Profile>> two = {profile, profile};
  for (const Ablation& a : ablations()) {
    const std::vector<StudyPart> parts = ablation_plan(a.name, {{}, {"dfsattn"}, {}, {}, 0, 0}, two);
    ASSERT_EQ(parts.size(), 1u) << a.name;
    EXPECT_EQ(parts[0].grid, grid);
    EXPECT_GE(parts[0].wishes.size(), 2u) << a.name;
    for (const Wish& w : parts[0].wishes) {
      EXPECT_TRUE(w.preset.name.starts_with(std::string("ablation/") + a.name + "/")) << w.preset.name;
      EXPECT_EQ(w.density, 0.25);
      const Policy p = policy_at(w.preset, 0.25, grid, profile.get(), 700);
      if (w.preset.knob == Knob::kTopP) continue;
      const auto prior = needs_profile(p) ? make_prior(p, *profile, grid) : nullptr;
      EXPECT_NEAR(planned_density(p, grid, prior.get()), 0.25, 0.01) << w.preset.name;
    }
  }
}

TEST(Ablations, RowsDifferInWhatTheyAreAbout) {
  for (const Ablation& a : ablations()) {
    if (std::string_view(a.name) == "captions") continue;
    std::set<std::string> policies, names;
    const std::vector<StudyPart> parts = ablation_plan(a.name, {{}, {"dfsattn"}, {}, {}, 1, 1}, {});
    for (const Wish& w : parts[0].wishes) {
      policies.insert(to_json(w.preset.policy));
      names.insert(w.preset.name);
    }
    EXPECT_EQ(names.size(), parts[0].wishes.size()) << a.name;
    EXPECT_EQ(policies.size(), parts[0].wishes.size()) << a.name;
  }
  EXPECT_THROW(ablation_plan("captions", {}, {}), Error);
  EXPECT_THROW(ablation_plan("nothing", {}, {}), Error);
  EXPECT_THROW(ablation_plan("falling", {{}, {"tulle"}, {}, {}, 1, 1}, {}), Error);
  EXPECT_THROW(ablation_plan("order", {{}, {"dfsattn", "topp"}, {}, {}, 0, 0}, {}), Error);
}

// Two heads over four blocks: queries and keys are alike, so every block has a quarter of the mass.
TEST(RecallMeter, SeesTheSampledCallsOfTheConditionalBranch) {
  constexpr std::int64_t kTokens = 16, kHeads = 2, kDim = 8;
  const std::vector<float> zeros(kTokens * kHeads * kDim, 0.0f);
  const std::array<std::int64_t, 4> shape = {1, kTokens, kHeads, kDim};
  const ConstTensorView x{zeros.data(), DType::kF32, shape, packed_strides(shape)};
  const BlockPartition blocks{{parse_grid("1x4x4")}, 4};
  BlockMask mask(1, kHeads, blocks, blocks, OrderKind::kRaster);
  for (std::int64_t q = 0; q < 4; ++q) {
    mask.set(0, 0, q, q);
    for (std::int64_t k = 0; k < 3; ++k) mask.set(0, 1, q, k);
  }
  RecallMeter meter(1);
  EXPECT_TRUE(std::isnan(meter.mean()));
  const auto see = [&](std::int32_t step, Branch branch, const BlockMask* m) {
    AttendCall call;
    call.step = step, call.steps = kStudySteps, call.branch = branch;
    meter.observe(call, x, x, m);
  };
  see(5, Branch::kConditional, &mask);
  see(4, Branch::kUnconditional, &mask);
  see(10, Branch::kConditional, nullptr);
  EXPECT_TRUE(std::isnan(meter.low())) << "none of these is measured";
  see(4, Branch::kConditional, &mask);
  EXPECT_NEAR(meter.mean(), 0.5, 1e-6);
  EXPECT_NEAR(meter.low(), 0.25, 1e-6);
  EXPECT_GT(meter.seconds(), 0);
}

}  // namespace
}  // namespace tulle::cli
