#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tulle/grid.hpp"

namespace tulle {
namespace {

using Point = std::array<int, 3>;  // x, y, f

Point point_at(const TokenOrder& order, std::int64_t memory) {
  const int raster = order.raster_of_memory[static_cast<std::size_t>(memory)];
  const TokenGrid& g = order.grid;
  return {raster % g.width, raster / g.width % g.height, raster / g.width / g.height};
}

int distance(const Point& a, const Point& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

struct Jumps {
  double share = 0;  // of neighbours in memory that are more than 1 apart in the grid
  int longest = 0;
};

Jumps jumps_of(const TokenOrder& order) {
  Jumps jumps;
  const std::int64_t n = order.grid.tokens();
  for (std::int64_t i = 1; i < n; ++i) {
    const int d = distance(point_at(order, i - 1), point_at(order, i));
    jumps.share += d > 1;
    jumps.longest = std::max(jumps.longest, d);
  }
  jumps.share /= static_cast<double>(std::max<std::int64_t>(1, n - 1));
  return jumps;
}

// Summed coordinate variance of a block, mean over the blocks.
double block_variance(const TokenOrder& order, std::int64_t block) {
  const BlockPartition p{{order.grid, 0, TextPlacement::kSuffix}, static_cast<std::int32_t>(block)};
  double total = 0;
  for (std::int64_t i = 0; i < p.count(); ++i) {
    const double n = static_cast<double>(p.size(i));
    for (int axis = 0; axis < 3; ++axis) {
      double sum = 0, squares = 0;
      for (std::int64_t t = p.begin(i); t < p.end(i); ++t) {
        const double v = point_at(order, t)[static_cast<std::size_t>(axis)];
        sum += v, squares += v * v;
      }
      total += squares / n - (sum / n) * (sum / n);
    }
  }
  return total / static_cast<double>(p.count());
}

void expect_bijection(const TokenOrder& order) {
  ASSERT_EQ(order.raster_of_memory.size(), static_cast<std::size_t>(order.grid.tokens()));
  ASSERT_EQ(order.memory_of_raster.size(), order.raster_of_memory.size());
  std::vector<bool> seen(order.raster_of_memory.size());
  for (std::size_t m = 0; m < seen.size(); ++m) {
    const auto raster = static_cast<std::size_t>(order.raster_of_memory[m]);
    ASSERT_LT(raster, seen.size());
    ASSERT_FALSE(seen[raster]) << "raster position " << raster << " stands twice in " << to_string(order.kind) << " of "
                               << to_string(order.grid);
    seen[raster] = true;
    ASSERT_EQ(order.memory_of_raster[raster], static_cast<int>(m));
  }
}

RC_GTEST_PROP(Order, EveryOrderIsABijection, ()) {
  const TokenGrid grid{*rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20)};
  for (OrderKind kind : all_orders()) expect_bijection(make_order(kind, grid));
}

TEST(Order, ThinGridsAreBijections) {
  for (int n : {1, 2, 3, 7, 64, 1000, 4099}) {
    for (OrderKind kind : all_orders()) {
      expect_bijection(make_order(kind, {1, 1, n}));
      expect_bijection(make_order(kind, {1, n, 1}));
      expect_bijection(make_order(kind, {n, 1, 1}));
    }
  }
}

TEST(Order, CodesHoldMoreThan64Bits) {
  // More than 21 bits a coordinate: the code of a position does not fit one 64-bit word.
  const TokenOrder line = make_order(OrderKind::kMorton, {1, 1, (1 << 22) + 5});
  for (std::size_t i = 0; i < line.raster_of_memory.size(); ++i)
    ASSERT_EQ(line.raster_of_memory[i], static_cast<int>(i));
}

// Skilling's curve through 4x4x4; digits x, y, f.
TEST(Order, HilbertConformance) {
  std::istringstream expected(
      "000 010 110 100 101 111 011 001 002 003 103 102 112 113 013 012 022 023 033 032 132 133 123 122 121 021 031 131 "
      "130 030 020 120 220 320 330 230 231 331 321 221 222 223 233 232 332 333 323 322 312 313 213 212 202 203 303 302 "
      "301 311 211 201 200 210 310 300");
  const TokenOrder order = make_order(OrderKind::kHilbert, {4, 4, 4});
  for (int i = 0; i < 64; ++i) {
    std::string digits;
    ASSERT_TRUE(expected >> digits);
    const Point p = point_at(order, i);
    EXPECT_EQ(digits, std::to_string(p[0]) + std::to_string(p[1]) + std::to_string(p[2])) << "at " << i;
  }
}

TEST(Order, MortonInterleavesColumnFirst) {
  const TokenOrder order = make_order(OrderKind::kMorton, {2, 2, 2});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(order.raster_of_memory[static_cast<std::size_t>(i)], i);
}

TEST(Order, TilesAreBoxesRaggedAtTheFarSides) {
  const TokenOrder order = make_order(OrderKind::kTile, {5, 6, 9});
  for (int i = 0; i < 64; ++i) {
    const Point p = point_at(order, i);
    EXPECT_TRUE(p[0] < 4 && p[1] < 4 && p[2] < 4) << i;
  }
  EXPECT_EQ(point_at(order, 64), (Point{4, 0, 0}));
  EXPECT_EQ(point_at(order, 128), (Point{8, 0, 0}));       // a box of width 1
  EXPECT_EQ(point_at(order, 128 + 16), (Point{0, 4, 0}));  // then the next row of boxes
}

TEST(Order, GilbertHasNoLongJumpsOnSmallGrids) {
  for (int f = 1; f <= 14; ++f)
    for (int h = 1; h <= 14; ++h)
      for (int w = 1; w <= 14; ++w) {
        const TokenOrder order = make_order(OrderKind::kGilbert, {f, h, w});
        ASSERT_LE(jumps_of(order).longest, 2) << to_string(order.grid);
      }
}

RC_GTEST_PROP(Order, GilbertHasNoLongJumps, ()) {
  const TokenGrid grid{*rc::gen::inRange(1, 40), *rc::gen::inRange(1, 60), *rc::gen::inRange(1, 60)};
  RC_ASSERT(jumps_of(make_order(OrderKind::kGilbert, grid)).longest <= 2);
}

// Locality of the orders on grids of Wan 2.1 (720p, 480p), HunyuanVideo and CogVideoX: share of jumps, longest jump,
// and coordinate variance of blocks of 64 and of 128 tokens.
struct Locality {
  OrderKind kind;
  TokenGrid grid;
  double jump_share;
  int longest;
  double variance_64, variance_128;
};

class OrderLocality : public testing::TestWithParam<Locality> {};

TEST_P(OrderLocality, MatchesPublishedFigures) {
  const Locality& want = GetParam();
  const TokenOrder order = make_order(want.kind, want.grid);
  const Jumps jumps = jumps_of(order);
  EXPECT_NEAR(jumps.share, want.jump_share, 0.06 * want.jump_share);
  EXPECT_EQ(jumps.longest, want.longest);
  EXPECT_NEAR(block_variance(order, 64), want.variance_64, 0.05 * want.variance_64);
  EXPECT_NEAR(block_variance(order, 128), want.variance_128, 0.05 * want.variance_128);
}

INSTANTIATE_TEST_SUITE_P(Order, OrderLocality,
                         testing::Values(Locality{OrderKind::kRaster, {21, 45, 80}, 0.012, 124, 506, 529},
                                         Locality{OrderKind::kHilbert, {21, 45, 80}, 0.0076, 58, 4.74, 9.70},
                                         Locality{OrderKind::kMorton, {21, 45, 80}, 0.50, 84, 5.52, 13.2},
                                         Locality{OrderKind::kTile, {21, 45, 80}, 0.25, 124, 5.31, 82.2},
                                         Locality{OrderKind::kGilbert, {21, 45, 80}, 0.0048, 2, 5.49, 8.46},
                                         Locality{OrderKind::kHilbert, {21, 30, 52}, 0.0093, 45, 4.86, 10.5},
                                         Locality{OrderKind::kGilbert, {21, 30, 52}, 0.0023, 2, 5.42, 8.54},
                                         Locality{OrderKind::kHilbert, {33, 45, 80}, 0.0066, 80, 4.86, 10.4},
                                         Locality{OrderKind::kGilbert, {33, 45, 80}, 0.0044, 2, 5.32, 8.36},
                                         Locality{OrderKind::kHilbert, {13, 30, 45}, 0.0144, 31, 4.92, 9.60},
                                         Locality{OrderKind::kHilbert, {20, 48, 80}, 0.0008, 59, 3.75, 7.75}),
                         [](const auto& info) {
                           return std::string(to_string(info.param.kind)) + "_" + to_string(info.param.grid);
                         });

}  // namespace
}  // namespace tulle
