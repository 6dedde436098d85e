// The fit of densities to heads, on curves whose shape is known.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <functional>

#include "select/budget.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kLevels = FidelityCurves::kLevels;

// Heads keep mass 1 - (1 - p)^sharpness at density p: the larger the sharpness, the fewer blocks suffice.
FidelityCurves curves_of(std::int64_t bins, std::int64_t layers, std::int64_t heads,
                         const std::function<double(std::int64_t, std::int64_t, std::int64_t)>& sharpness) {
  FidelityCurves c;
  c.bins = bins, c.layers = layers, c.heads = heads;
  for (std::int64_t e = 0; e < bins * layers * heads; ++e) {
    const double a = sharpness(e / heads / layers, e / heads % layers, e % heads);
    for (std::int64_t l = 0; l < kLevels; ++l) {
      const double p = static_cast<double>(l + 1) / kLevels;
      const double m = 1 - std::pow(1 - p, a);
      c.mass.push_back(static_cast<float>(m));
      c.fidelity.push_back(static_cast<float>(1 - std::sqrt(1 - std::sqrt(m))));
      if (e < layers * heads) c.density.push_back(static_cast<float>(p));
    }
  }
  return c;
}

FidelityCurves mixed(std::int64_t bins = 4, std::int64_t layers = 5, std::int64_t heads = 6) {
  return curves_of(bins, layers, heads, [](std::int64_t b, std::int64_t l, std::int64_t h) {
    return 1.5 + 0.9 * static_cast<double>(b) + 0.5 * static_cast<double>(l) + 2.0 * static_cast<double>(h * h);
  });
}

bool same(const Budget& a, const Budget& b) {
  return a.levels == b.levels && a.permille == b.permille && a.surface == b.surface && a.offset == b.offset &&
         a.uniform == b.uniform && a.density == b.density && a.mass == b.mass;
}

TEST(TargetSurface, RunsFromStrictToBeta) {
  const TargetSurface s{0.4, 2.0, 0.5};
  EXPECT_DOUBLE_EQ(target_fidelity(s, 0, 0, 10, 0, 20), 1.0);
  EXPECT_DOUBLE_EQ(target_fidelity(s, 0, 9, 10, 19, 20), 0.6);
  // x = (10 + 0.5 * 4) / (19 + 0.5 * 9) = 12 / 23.5
  EXPECT_DOUBLE_EQ(target_fidelity(s, 0.05, 4, 10, 10, 20), 1 - (0.4 * (1 - std::pow(1 - 12 / 23.5, 2)) + 0.05));
  EXPECT_DOUBLE_EQ(target_fidelity(s, 2, 0, 10, 0, 20), 0.0);
  EXPECT_DOUBLE_EQ(target_fidelity(s, -1, 9, 10, 19, 20), 1.0);
  EXPECT_DOUBLE_EQ(target_fidelity(s, 0.25, 0, 1, 0, 1), 0.75) << "one layer and one bin";
}

TEST(Budget, TakesTheSmallestLevelThatReachesTheTarget) {
  const FidelityCurves c = mixed();
  const TargetSurface s{0.3, 1.0, 1.0};
  const Budget b = budget_of(c, s, 0.1);
  for (std::int64_t bin = 0; bin < c.bins; ++bin) {
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      for (std::int64_t head = 0; head < c.heads; ++head) {
        const double target = target_fidelity(s, 0.1, bin, c.bins, layer, c.layers);
        std::int64_t l = 0;
        while (l + 1 < kLevels && c.fidelity[c.at(bin, layer, head) + static_cast<std::size_t>(l)] < target) ++l;
        EXPECT_EQ(b.levels[b.at(bin, layer, head)], FidelityCurves::level(l));
        EXPECT_EQ(b.permille[b.at(bin, layer, head)], std::lround(1000.0 * static_cast<double>(l + 1) / kLevels));
      }
    }
  }
}

RC_GTEST_PROP(Budget, MeetsTheDensityAndNeverExceedsIt, ()) {
  const auto bins = *rc::gen::inRange<std::int64_t>(1, 5), layers = *rc::gen::inRange<std::int64_t>(1, 7);
  const auto heads = *rc::gen::inRange<std::int64_t>(1, 7);
  const auto seed = *rc::gen::inRange<std::int64_t>(1, 1000);
  const double wanted = *rc::gen::inRange(40, 1000) / 1000.0;
  const FidelityCurves c = curves_of(bins, layers, heads, [&](std::int64_t b, std::int64_t l, std::int64_t h) {
    return 0.5 + static_cast<double>((seed * (b * 31 + l * 7 + h * 13 + 1)) % 97) / 10;
  });
  const Budget b = fit_budget(c, wanted);
  RC_ASSERT(b.density <= wanted + 1e-6);
  const double largest_step = 1.0 / kLevels / static_cast<double>(bins * layers * heads);
  RC_ASSERT(b.density > wanted - 2 * largest_step - 1e-6);
  double sum = 0;
  for (const std::int32_t p : b.permille) sum += p;
  RC_ASSERT(std::abs(sum / 1000 / static_cast<double>(b.permille.size()) - b.density) < 1e-3);
}

TEST(Budget, AThousandthIsMetWhereThereAreEntriesEnough) {
  const FidelityCurves c = mixed();
  for (double wanted : {0.1, 0.173, 0.25, 0.4, 0.777})
    EXPECT_NEAR(fit_budget(c, wanted).density, wanted, 1e-3) << wanted;
}

TEST(Budget, EqualHeadsAreRaisedOneAfterTheOther) {
  const FidelityCurves c = curves_of(2, 8, 8, [](auto...) { return 3.0; });
  EXPECT_NEAR(fit_budget(c, 0.3).density, 0.3, 1e-3);
}

TEST(Budget, MoreDensityKeepsMore) {
  const FidelityCurves c = mixed();
  double mass = 0;
  for (int d = 5; d <= 100; d += 5) {
    const Budget b = fit_budget(c, d / 100.0);
    EXPECT_GE(b.mass, mass) << d;
    mass = b.mass;
  }
  EXPECT_NEAR(fit_budget(c, 1.0).mass, 1.0, 1e-6);
}

TEST(Budget, ASensitiveHeadGetsMore) {
  // Head 1 is diffuse, all others sharp; bins and layers are alike.
  const FidelityCurves c = curves_of(2, 3, 4, [](auto, auto, std::int64_t h) { return h == 1 ? 1.2 : 9.0; });
  const Budget u = uniform_budget(c, 0.4), b = fit_budget(c, u.density);
  EXPECT_FALSE(b.uniform);
  EXPECT_GT(b.mass, u.mass + 0.02);
  EXPECT_NEAR(b.density, u.density, 1e-3);
  for (std::int64_t bin = 0; bin < 2; ++bin) {
    for (std::int64_t layer = 0; layer < 3; ++layer) {
      for (std::int64_t head : {0, 2, 3}) EXPECT_GT(b.levels[b.at(bin, layer, 1)], b.levels[b.at(bin, layer, head)]);
      EXPECT_GT(b.levels[b.at(bin, layer, 1)], u.levels[u.at(bin, layer, 1)]);
    }
  }
}

TEST(Budget, UniformIsOneOfTheTried) {
  // Here equal fidelity is a bad aim: the diffuse heads eat everything and gain little.
  const FidelityCurves c = curves_of(1, 1, 8, [](auto, auto, std::int64_t h) { return h < 4 ? 0.2 : 3.0; });
  for (double wanted : {4.0 / 32, 8.0 / 32, 16.0 / 32}) {
    const Budget fitted = fit_budget(c, wanted), uniform = uniform_budget(c, wanted);
    EXPECT_NEAR(uniform.density, wanted, 1e-6);
    EXPECT_GE(fitted.mass, uniform.mass);
    EXPECT_LE(fitted.density, uniform.density + 1e-9);
  }
  EXPECT_TRUE(fit_budget(c, 8.0 / 32).uniform);
}

RC_GTEST_PROP(Budget, NeverKeepsLessThanUniformAtItsDensity, ()) {
  FidelityCurves c = mixed(2, 3, 4);
  // Union maps of different heads have different densities at one level.
  for (std::size_t e = 0; e < c.density.size(); ++e) {
    const double power = 0.6 + 0.05 * static_cast<double>(e / static_cast<std::size_t>(kLevels));
    c.density[e] = static_cast<float>(std::pow(static_cast<double>(c.density[e]), power));
  }
  const Budget uniform = uniform_budget(c, *rc::gen::inRange(60, 1000) / 1000.0);
  const Budget fitted = fit_budget(c, uniform.density);
  RC_ASSERT(fitted.mass >= uniform.mass - 1e-9);
  RC_ASSERT(fitted.density <= uniform.density + 1e-8);
}

TEST(Budget, IsDeterministic) { EXPECT_TRUE(same(fit_budget(mixed(), 0.31), fit_budget(mixed(), 0.31))); }

TEST(Budget, BinsWithoutWeightAreDenseAndDoNotCount) {
  const FidelityCurves c = mixed();
  std::vector<double> weights(static_cast<std::size_t>(c.bins * c.layers), 1.0);
  std::fill_n(weights.begin(), 2 * c.layers, 0.0);
  const Budget b = fit_budget(c, 0.2, weights);
  EXPECT_NEAR(b.density, 0.2, 1e-3);
  double sum = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      for (std::int64_t bin : {0, 1}) EXPECT_EQ(b.levels[b.at(bin, layer, head)], 255);
      for (std::int64_t bin : {2, 3}) sum += b.permille[b.at(bin, layer, head)];
    }
  }
  EXPECT_NEAR(sum / 1000 / 60, 0.2, 1.5e-3);
}

TEST(Budget, WeightsSayWhatCounts) {
  const FidelityCurves c = mixed();
  std::vector<double> weights(static_cast<std::size_t>(c.bins * c.layers), 1.0);
  for (std::int64_t bin = 0; bin < c.bins; ++bin) weights[static_cast<std::size_t>(bin * c.layers)] = 0;  // layer 0
  weights[1] = 0.5;
  const Budget b = fit_budget(c, 0.3, weights);
  double sum = 0, all = 0;
  for (std::int64_t e = 0; e < c.bins * c.layers * c.heads; ++e) {
    const double w = weights[static_cast<std::size_t>(e / c.heads)];
    sum += w * b.permille[static_cast<std::size_t>(e)], all += w;
    if (w == 0) {
      EXPECT_EQ(b.levels[static_cast<std::size_t>(e)], 255);
    }
  }
  EXPECT_NEAR(sum / all / 1000, 0.3, 1.5e-3);
}

TEST(Budget, OutOfReachGivesTheNearest) {
  const FidelityCurves c = mixed();
  const Budget b = fit_budget(c, 0.001);
  EXPECT_NEAR(b.density, 1.0 / kLevels, 1e-6);
}

TEST(Budget, NoLevelThatKeepsNothing) {
  // Few blocks in a row: the first levels are below the first rank.
  FidelityCurves c = mixed();
  for (std::size_t i = 0; i < c.mass.size(); ++i) {
    if (i % 32 < 4) c.mass[i] = c.fidelity[i] = 0;
    if (i % 32 < 4 && i < c.density.size()) c.density[i] = 0;
  }
  for (const Budget& b :
       {fit_budget(c, 0.01), fit_budget(c, 0.2), uniform_budget(c, 0.01), budget_of(c, {1, 1, 1}, 1)}) {
    for (const std::uint8_t level : b.levels) EXPECT_GE(level, FidelityCurves::level(4));
  }
}

TEST(Budget, RefusesWhatMakesNoSense) {
  const FidelityCurves c = mixed();
  for (double wanted : {0.0, -0.1, 1.1, std::nan("")}) EXPECT_THROW(fit_budget(c, wanted), Error) << wanted;
  EXPECT_THROW(fit_budget(c, 0.5, std::vector<double>(20, 0.0)), Error) << "everything dense";
  EXPECT_THROW(fit_budget(c, 0.5, std::vector<double>(7, 1.0)), Error);
  FidelityCurves cut = c;
  cut.mass.pop_back();
  EXPECT_THROW(fit_budget(cut, 0.5), Error);
}

}  // namespace
}  // namespace tulle
