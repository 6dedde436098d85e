#include "calibrate/fast.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibrate/west.hpp"
#include "select/head_mass.hpp"
#include "tests/calibrate/calibrate_data.hpp"
#include "tulle/attention.hpp"

namespace tulle {
namespace {

using testing_data::Call;
using testing_data::softmax_row;

constexpr std::int64_t kLevels = FidelityCurves::kLevels;

// 1 - Hellinger distance of two rows of probabilities, from its definition.
double brute_fidelity(const std::vector<double>& p, const std::vector<bool>& kept) {
  double mass = 0, squares = 0;
  for (std::size_t j = 0; j < p.size(); ++j) mass += kept[j] ? p[j] : 0;
  if (mass == 0) return 0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    const double q = kept[j] ? p[j] / mass : 0;
    squares += (std::sqrt(p[j]) - std::sqrt(q)) * (std::sqrt(p[j]) - std::sqrt(q));
  }
  return 1 - std::sqrt(squares / 2);
}

RankMap ranks_of(const Call& call, std::int64_t heads) {
  const Threads threads(2);
  std::vector<float> mass;
  for (std::int64_t h = 0; h < heads; ++h) {
    std::vector<float> one(static_cast<std::size_t>(call.q_blocks.count() * call.k_blocks.count()));
    HeadMass(call.q.view(), call.k.view(), 0, h, call.q_blocks, call.k_blocks, {}, threads).blocks(one, threads);
    mass.insert(mass.end(), one.begin(), one.end());
  }
  return rank_blocks(mass, heads, call.q_blocks, call.k_blocks, OrderKind::kHilbert, 0);
}

std::vector<float> masses_of(const Call& call, std::int64_t head, std::span<const std::int64_t> rows) {
  const Threads threads(2);
  std::vector<float> out(rows.size() * static_cast<std::size_t>(call.k_blocks.count()));
  HeadMass(call.q.view(), call.k.view(), 0, head, call.q_blocks, call.k_blocks, {}, threads).rows(rows, out, threads);
  return out;
}

RowSums measure(const Call& call, const RankMap& map, std::int64_t head, std::span<const std::int64_t> rows) {
  const std::vector<float> mass = masses_of(call, head, rows);
  const auto columns = static_cast<std::size_t>(call.k_blocks.count());
  RowSums sums;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    add_row(std::span(mass).subspan(i * columns, columns), map.row(head, call.q_blocks.block_of(rows[i])), sums);
  }
  return sums;
}

TEST(Fidelity, ClosedFormIsHellingerOfExplicitRows) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> p(64);
    std::exponential_distribution<double> mass;
    double sum = 0, dropped = 0;
    for (double& x : p) sum += x = std::pow(mass(random), 1 + trial % 5);
    std::vector<bool> kept;
    for (double& x : p) {
      kept.push_back(random() % 8 > static_cast<unsigned>(trial % 8));
      x /= sum;
      if (!kept.back()) dropped += x;
    }
    EXPECT_NEAR(fidelity_of_dropped(dropped), brute_fidelity(p, kept), 1e-7) << dropped;
  }
}

TEST(Fidelity, KnownValuesAndEnds) {
  for (const auto& [kept, want] : {std::pair{0.8, 0.675}, {0.9, 0.773}, {0.95, 0.841}, {0.99, 0.929}, {0.999, 0.978}}) {
    EXPECT_NEAR(fidelity_of_dropped(1 - kept), want, 1e-3) << kept;
  }
  EXPECT_EQ(fidelity_of_dropped(0), 1.0);
  EXPECT_EQ(fidelity_of_dropped(1), 0.0);
  EXPECT_EQ(fidelity_of_dropped(1 + 1e-7), 0.0);
  EXPECT_EQ(fidelity_of_dropped(-1e-7), 1.0);
  // No cancellation: H = sqrt(d / 2) to first order.
  EXPECT_NEAR((1 - fidelity_of_dropped(1e-14)) / std::sqrt(0.5e-14), 1.0, 1e-6);
}

TEST(AddRow, IsHellingerOfTheRowAtEveryLevel) {
  const Call call("3x6x7", 16, 8, 2, 16, 5);
  const RankMap map = ranks_of(call, 2);
  for (std::int64_t row : {0, 50, 125}) {
    const RowSums sums = measure(call, map, 1, std::span(&row, 1));
    const std::vector<double> p = softmax_row(call, 1, row);
    const auto ranks = map.row(1, call.q_blocks.block_of(row));
    for (std::int64_t l = 0; l < kLevels; ++l) {
      std::vector<bool> kept;
      double mass = 0;
      for (std::size_t j = 0; j < p.size(); ++j) {
        const auto v = static_cast<std::size_t>(call.k_blocks.block_of(static_cast<std::int64_t>(j)));
        kept.push_back(ranks[v] <= FidelityCurves::level(l));
        mass += kept.back() ? p[j] : 0;
      }
      EXPECT_NEAR(sums.mass[static_cast<std::size_t>(l)], mass, 2e-6) << row << " " << l;
      EXPECT_NEAR(sums.fidelity[static_cast<std::size_t>(l)], brute_fidelity(p, kept), 2e-5) << row << " " << l;
    }
  }
}

TEST(AddRow, MassEqualsThatOfTwoLogSumExps) {
  const Call call("4x8x8", 32, 32, 2, 32, 8);
  const RankMap map = ranks_of(call, 2);
  const std::int64_t tokens = call.q_blocks.tokens();
  const Threads threads(2);
  std::vector<float> v(call.q.values.size(), 1.0f), out(v.size());
  const auto lse = [&](const BlockMask* mask) {
    std::vector<float> lse(static_cast<std::size_t>(2 * tokens));
    AttentionArgs args;
    args.q = call.q.view(), args.k = call.k.view(), args.v = view_of(static_cast<const float*>(v.data()), call.q.shape);
    args.out = view_of(out.data(), call.q.shape);
    args.lse = lse.data();
    args.mask = mask;
    attend_cpu(args, threads);
    return lse;
  };
  const std::vector<float> dense = lse(nullptr);
  for (std::int64_t l : {3, 10, 25}) {
    const std::vector<std::uint8_t> levels(2, FidelityCurves::level(l));
    const BlockMask mask = mask_at(map, levels);
    const std::vector<float> sparse = lse(&mask);
    for (std::int64_t head : {0, 1}) {
      for (std::int64_t row = 0; row < tokens; row += 7) {
        const auto at = static_cast<std::size_t>(head * tokens + row);
        const double m = std::exp(double{sparse[at]} - double{dense[at]});
        const RowSums sums = measure(call, map, head, std::span(&row, 1));
        EXPECT_NEAR(sums.mass[static_cast<std::size_t>(l)], m, 5e-6) << l << " " << head << " " << row;
      }
    }
  }
}

TEST(AddRow, NeverFallsAndEndsAtOne) {
  const Call call("3x6x7", 16, 8, 1, 16, 5, 3.0f);
  const RankMap map = ranks_of(call, 1);
  for (std::int64_t row = 0; row < call.q_blocks.tokens(); ++row) {
    const RowSums sums = measure(call, map, 0, std::span(&row, 1));
    EXPECT_TRUE(std::ranges::is_sorted(sums.fidelity));
    EXPECT_TRUE(std::ranges::is_sorted(sums.mass));
    EXPECT_EQ(sums.fidelity.back(), 1.0);
    EXPECT_EQ(sums.mass.back(), 1.0);
  }
}

TEST(AddRow, ARowThatKeepsNothingHasFidelityZero) {
  const std::vector<float> mass = {0.0f, 1.0f};
  const std::vector<std::uint8_t> ranks = {1, 255};
  RowSums sums;
  add_row(mass, ranks, sums);
  EXPECT_EQ(sums.fidelity.front(), 0.0);
  EXPECT_EQ(sums.mass.front(), 0.0);
  for (const float bad : {0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(add_row(std::vector<float>{bad, 0.0f}, ranks, sums), Error) << bad;
  }
}

// How far a mean over few rows is from that over all: the error that docs/calibration.md states.
TEST(StratifiedRows, SixteenAndSixtyFourAreNearAll) {
  const Call call("9x10x12", 64, 64, 4, 32, 11);
  const RankMap map = ranks_of(call, 4);
  const auto all = stratified_rows(call.q_blocks.tokens(), 1 << 20, 0);
  ASSERT_EQ(all.size(), 1080u);
  double worst16 = 0, worst64 = 0;
  for (std::int64_t head = 0; head < 4; ++head) {
    const RowSums exact = measure(call, map, head, all);
    for (const std::int64_t count : {16, 64}) {
      const auto rows = stratified_rows(call.q_blocks.tokens(), count, static_cast<std::uint64_t>(head));
      const RowSums few = measure(call, map, head, rows);
      for (std::size_t l = 0; l < exact.fidelity.size(); ++l) {
        const double error = std::abs(few.fidelity[l] / static_cast<double>(count) - exact.fidelity[l] / 1080);
        (count == 16 ? worst16 : worst64) = std::max(count == 16 ? worst16 : worst64, error);
      }
    }
  }
  RecordProperty("worst16", std::to_string(worst16));
  RecordProperty("worst64", std::to_string(worst64));
  EXPECT_LT(worst16, 0.06);
  EXPECT_LT(worst64, 0.02);
}

RC_GTEST_PROP(StratifiedRows, OneOutOfEachStratum, ()) {
  const auto tokens = *rc::gen::inRange<std::int64_t>(1, 5000), count = *rc::gen::inRange<std::int64_t>(1, 200);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const std::vector<std::int64_t> rows = stratified_rows(tokens, count, seed);
  RC_ASSERT(rows == stratified_rows(tokens, count, seed));
  RC_ASSERT(static_cast<std::int64_t>(rows.size()) == std::min(tokens, count));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); ++i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)], of = std::min(tokens, count);
    RC_ASSERT(row >= i * tokens / of && row < (i + 1) * tokens / of);
  }
}

TEST(Fast, MeansOverRowsAndCalls) {
  const BlockPartition blocks{{TokenGrid{1, 1, 8}}, 4};
  const std::vector<RankMap> ranks = {
      rank_blocks(std::vector<float>{2, 1, 1, 2}, 1, blocks, blocks, OrderKind::kRaster, 0)};
  Fast fast(2, 1, 1);
  RowSums a, b;
  a.fidelity.fill(3.0), a.mass.fill(1.5);
  b.fidelity.fill(0.25), b.mass.fill(0.5);
  fast.add(0, 0, 0, a, 4);
  fast.add(0, 0, 0, b, 1);
  EXPECT_THROW(fast.curves(ranks), Error) << "bin 1 has no call";
  fast.add(1, 0, 0, b, 1);
  const FidelityCurves c = fast.curves(ranks);
  EXPECT_FLOAT_EQ(c.fidelity[c.at(0, 0, 0)], 0.5f);
  EXPECT_FLOAT_EQ(c.mass[c.at(0, 0, 0)], 0.4375f);
  EXPECT_FLOAT_EQ(c.fidelity[c.at(1, 0, 0)], 0.25f);
  for (std::int64_t l = 0; l < kLevels; ++l) {
    EXPECT_FLOAT_EQ(c.density[static_cast<std::size_t>(l)],
                    static_cast<float>(density_at(ranks[0], 0, FidelityCurves::level(l))));
  }
}

}  // namespace
}  // namespace tulle
