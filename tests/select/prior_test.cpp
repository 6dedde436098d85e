// Budgets and rank maps of a profile as a selector uses them.
#include "select/prior.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

#include "profiles.hpp"
#include "select/chooser.hpp"
#include "select/selector.hpp"
#include "select/value_budget.hpp"
#include "select_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::noise;
using testing_data::Tokens;

constexpr std::int64_t kBins = 4, kLayers = 3, kHeads = 4;
constexpr std::int32_t kBlock = 8;

Sequence video(const TokenGrid& grid) { return {grid, 0, TextPlacement::kSuffix}; }

Profile make_profile(const TokenGrid& grid, OrderKind order) {
  return testing_data::diagonal_profile(grid, order, kBlock, kLayers, kHeads, kBins);
}

// Scores inside a budget that counts lost mass.
Policy valued_policy() {
  Policy p = load_policy("west+fast");
  p.name = "valued", p.chooser = "top_k", p.budget = BudgetKind::kValued, p.fall = 10;
  return p;
}

Policy policy_of(const std::string& name, std::int32_t density) {
  Policy p = name == "valued" ? valued_policy() : load_policy(name);
  p.block_q = p.block_k = kBlock;
  p.sub_block = 4;
  p.tail = 0;
  p.density = density;
  return p;
}

SelectCall call_of(const Policy& p, const TokenGrid& grid, std::int32_t step, std::int32_t layer = 1) {
  SelectCall call;
  call.step = step, call.steps = 30, call.layer = layer;
  call.partition = {video(grid), p.block_q};
  return call;
}

const Threads& threads() {
  static const Threads two(2);
  return two;
}

TEST(Prior, EveryBudgetMeetsItsDensityOverTheSparseSteps) {
  const TokenGrid grid{4, 8, 8};
  const Profile profile = make_profile(grid, OrderKind::kHilbert);
  for (const char* preset : {"west", "west+fast", "valued"}) {
    for (const std::int32_t density : {150, 300, 600}) {
      const Policy p = policy_of(preset, density);
      const Budget b = *make_prior(p, profile, grid)->budget;
      EXPECT_NEAR(b.density, density / 1000.0, 0.03) << preset << " " << density;
      // By hand, over the 27 sparse steps of 30, from the densities that calls will ask for.
      double sum = 0;
      for (std::int64_t step = p.schedule.dense_steps; step < 30; ++step) {
        const std::size_t first = b.at(step * kBins / 30, 0, 0);
        sum += std::accumulate(b.permille.begin() + std::ptrdiff_t(first),
                               b.permille.begin() + std::ptrdiff_t(first) + kLayers * kHeads, 0.0);
      }
      EXPECT_NEAR(sum / 27 / (kLayers * kHeads) / 1000, b.density, 0.002) << preset << " " << density;
    }
  }
}

TEST(Prior, ValuedBudgetSpendsWhereMassIsLostAndFallsOverTheRun) {
  const TokenGrid grid{4, 8, 8};
  const Profile profile = make_profile(grid, OrderKind::kRaster);
  Policy p = policy_of("valued", 300);
  p.order = OrderKind::kRaster;
  p.fall = 1;
  const Budget even = *make_prior(p, profile, grid)->budget;
  EXPECT_GT(even.permille[even.at(1, 0, 0)], even.permille[even.at(1, 2, 3)]);  // flat head against peaked head
  EXPECT_EQ(even.permille[even.at(1, 0, 0)], even.permille[even.at(3, 0, 0)]);
  p.fall = 20;
  const Budget falling = *make_prior(p, profile, grid)->budget;
  for (std::int64_t bin = 1; bin < kBins; ++bin) {
    EXPECT_GT(falling.permille[falling.at(bin - 1, 0, 0)], falling.permille[falling.at(bin, 0, 0)]) << bin;
  }
}

// No single exchange of levels between two entries loses less at no more density.
TEST(ValuedBudget, NoExchangeOfTwoEntriesIsBetter) {
  const Profile profile = make_profile({4, 8, 8}, OrderKind::kRaster);
  const FidelityCurves& c = profile.curves;
  const std::vector<double> weights(kBins * kLayers, 1.0);
  const Budget b = valued_budget(c, 0.3, weights, {.fall = 4});
  const auto level_index = [](std::uint8_t level) {
    std::int64_t l = 0;
    while (FidelityCurves::level(l) != level) ++l;
    return static_cast<std::size_t>(l);
  };
  const auto loss = [&](std::int64_t e, std::size_t l) {
    const std::int64_t bin = e / kHeads / kLayers;
    const double lost = 1 - double(c.mass[c.at(bin, e / kHeads % kLayers, e % kHeads) + l]);
    return std::pow(4.0, 1 - (double(bin) + 0.5) / kBins) * lost * lost;
  };
  const auto density = [&](std::int64_t e, std::size_t l) {
    return double(c.density[c.at(e / kHeads % kLayers, e % kHeads) + l]);
  };
  const std::int64_t entries = kBins * kLayers * kHeads;
  for (std::int64_t i = 0; i < entries; ++i) {
    for (std::int64_t j = 0; j < entries; ++j) {
      const std::size_t li = level_index(b.levels[std::size_t(i)]), lj = level_index(b.levels[std::size_t(j)]);
      if (i == j || li == 0 || lj + 1 == std::size_t(FidelityCurves::kLevels)) continue;
      const double saved = density(i, li) - density(i, li - 1), spent = density(j, lj + 1) - density(j, lj);
      if (saved < spent || density(i, li - 1) <= 0) continue;
      const double change = loss(i, li - 1) - loss(i, li) + loss(j, lj + 1) - loss(j, lj);
      EXPECT_GE(change, -1e-6) << i << " " << j;
    }
  }
}

TEST(ValuedBudget, RefusesWhatMakesNoSense) {
  const Profile profile = make_profile({2, 4, 4}, OrderKind::kRaster);
  const std::vector<double> ones(kBins * kLayers, 1.0), none(kBins * kLayers, 0.0), few(2, 1.0);
  EXPECT_THROW(valued_budget(profile.curves, 0, ones, {}), Error);
  EXPECT_THROW(valued_budget(profile.curves, 1.1, ones, {}), Error);
  EXPECT_THROW(valued_budget(profile.curves, 0.5, ones, {.fall = 0.5}), Error);
  EXPECT_THROW(valued_budget(profile.curves, 0.5, none, {}), Error);
  EXPECT_THROW(valued_budget(profile.curves, 0.5, few, {}), Error);
}

TEST(Prior, SelectorFollowsTheBudgetOfHeadAndStep) {
  const TokenGrid grid{4, 8, 8};
  const auto profile = make_profile(grid, OrderKind::kHilbert);
  const Policy p = policy_of("valued", 300);
  const auto prior = make_prior(p, profile, grid);
  Selector selector(p, prior);
  const Tokens q = noise({1, grid.tokens(), kHeads, 16}, 1), k = noise({1, grid.tokens(), kHeads, 16}, 2);
  EXPECT_EQ(selector.choose(call_of(p, grid, 0), q.view(), k.view(), threads()), nullptr);  // dense step
  for (const std::int32_t step : {3, 10, 29}) {
    const BlockMask* mask = selector.choose(call_of(p, grid, step), q.view(), k.view(), threads());
    ASSERT_NE(mask, nullptr);
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const Budget& b = *prior->budget;
      const std::int32_t permille = b.permille[b.at(step * kBins / 30, 1, h)];
      EXPECT_EQ(count_blocks(mask->row(0, h, 5)), kept_count(mask->k_blocks(), permille)) << step << " " << h;
    }
  }
}

TEST(Prior, RankThresholdIsTheMapAtTheBudgetsLevel) {
  const TokenGrid grid{4, 8, 8};
  const auto profile = make_profile(grid, OrderKind::kHilbert);
  const Policy p = policy_of("west+fast", 300);
  const auto prior = make_prior(p, profile, grid);
  Selector selector(p, prior);
  const Tokens q = noise({1, grid.tokens(), kHeads, 16}, 1);
  const BlockMask* mask = selector.choose(call_of(p, grid, 12), q.view(), q.view(), threads());
  ASSERT_NE(mask, nullptr);
  std::vector<std::uint8_t> levels;
  for (std::int64_t h = 0; h < kHeads; ++h) levels.push_back(prior->budget->levels[prior->budget->at(1, 1, h)]);
  EXPECT_EQ(*mask, mask_at(prior->profile.ranks[1], levels));
}

TEST(Prior, AnEnvelopeHoldsWhateverIsChosen) {
  const TokenGrid grid{4, 8, 8};
  const auto profile = make_profile(grid, OrderKind::kHilbert);
  Policy p = policy_of("valued", 400);
  p.envelope = 300;
  const auto prior = make_prior(p, profile, grid);
  Selector selector(p, prior);
  const Tokens q = noise({1, grid.tokens(), kHeads, 16}, 1), k = noise({1, grid.tokens(), kHeads, 16}, 2);
  const BlockMask* mask = selector.choose(call_of(p, grid, 12), q.view(), k.view(), threads());
  ASSERT_NE(mask, nullptr);
  const std::vector<std::uint8_t> levels(kHeads, rank_level(300));
  BlockMask outside = *mask;
  intersect(outside, mask_at(prior->profile.ranks[1], levels));
  EXPECT_EQ(outside, *mask);
}

// Heads [1, 3) alone get what they get among all heads: budgets and maps are of the model's heads.
TEST(Prior, ARankWithSomeHeadsChoosesAlike) {
  const TokenGrid grid{3, 8, 8};
  const auto profile = make_profile(grid, OrderKind::kHilbert);
  for (const char* preset : {"west", "west+fast", "valued", "window", "tulle", "topp"}) {
    const Policy p = policy_of(preset, 300);
    const auto prior = needs_profile(p) ? make_prior(p, profile, grid) : nullptr;
    const Tokens q = noise({1, grid.tokens(), kHeads, 16}, 1), k = noise({1, grid.tokens(), kHeads, 16}, 2);
    Selector all(p, prior), some(p, prior);
    const BlockMask* whole = all.choose(call_of(p, grid, 12), q.view(), k.view(), threads());
    SelectCall call = call_of(p, grid, 12);
    call.first_head = 1;
    const BlockMask* part = some.choose(call, q.heads(1, 3), k.heads(1, 3), threads());
    ASSERT_TRUE(whole != nullptr && part != nullptr);
    EXPECT_EQ(*part, slice_heads(*whole, 1, 3)) << preset;
  }
}

TEST(Prior, WithoutAProfileTheSelectorSaysHowToMakeOne) {
  for (const char* preset : {"west", "west+fast", "valued"}) {
    try {
      Selector selector(policy_of(preset, 300));
      ADD_FAILURE() << preset;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("tulle calibrate"), std::string::npos) << e.what();
    }
  }
}

TEST(Prior, ServesAnotherGridAndOrder) {
  const auto profile = make_profile({4, 8, 8}, OrderKind::kHilbert);
  Policy p = policy_of("valued", 300);
  p.order = OrderKind::kRaster;
  const TokenGrid grid{5, 6, 9};
  const auto prior = make_prior(p, profile, grid);
  Selector selector(p, prior);
  const Tokens q = noise({1, grid.tokens(), kHeads, 16}, 1);
  const BlockMask* mask = selector.choose(call_of(p, grid, 12), q.view(), q.view(), threads());
  ASSERT_NE(mask, nullptr);
  EXPECT_NEAR(density(*mask), 0.3, 0.2);
}

}  // namespace
}  // namespace tulle
