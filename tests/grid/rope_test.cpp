#include "grid/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tulle/error.hpp"

namespace tulle {
namespace {

TEST(Rope, SplitsChannelsAsWanDoes) {
  const RopeSplit wide = rope_split(128), narrow = rope_split(64);
  EXPECT_EQ(wide.t, 44);
  EXPECT_EQ(wide.h, 42);
  EXPECT_EQ(wide.w, 42);
  EXPECT_EQ(narrow.t, 24);
  EXPECT_EQ(narrow.h, 20);
}

TEST(Rope, AnglesFollowThePositionsInMemoryOrder) {
  const TokenOrder order = make_order(OrderKind::kHilbert, {5, 6, 7});
  const std::int64_t d = 64, begin = 13, end = 150;
  const RopeTable table = make_rope(order, d, begin, end);
  ASSERT_EQ(table.cos.size(), static_cast<std::size_t>((end - begin) * d / 2));
  const RopeSplit split = rope_split(d);
  std::size_t at = 0;
  for (std::int64_t m = begin; m < end; ++m) {
    const int raster = order.raster_of_memory[static_cast<std::size_t>(m)];
    const double position[3] = {double(raster / 42), double(raster / 7 % 6), double(raster % 7)};
    const std::int64_t channels[3] = {split.t, split.h, split.w};
    for (int axis = 0; axis < 3; ++axis) {
      for (std::int64_t i = 0; i < channels[axis] / 2; ++i, ++at) {
        const double angle = position[axis] / std::pow(10000.0, 2.0 * double(i) / double(channels[axis]));
        ASSERT_NEAR(table.cos[at], std::cos(angle), 1e-7);
        ASSERT_NEAR(table.sin[at], std::sin(angle), 1e-7);
      }
    }
  }
  EXPECT_EQ(at, table.cos.size());
}

TEST(Rope, ShardsAreCutsOfTheWhole) {
  const TokenOrder order = make_order(OrderKind::kGilbert, {3, 5, 4});
  const RopeTable whole = make_rope(order, 16, 0, 60), part = make_rope(order, 16, 7, 33);
  for (std::size_t i = 0; i < part.cos.size(); ++i) ASSERT_EQ(part.cos[i], whole.cos[7 * 8 + i]);
}

TEST(Rope, RefusesBadArguments) {
  const TokenOrder order = make_order(OrderKind::kRaster, {2, 2, 2});
  EXPECT_THROW(make_rope(order, 7, 0, 8), Error);
  EXPECT_THROW(make_rope(order, 0, 0, 8), Error);
  EXPECT_THROW(make_rope(order, 64, 0, 9), Error);
  EXPECT_THROW(make_rope(order, 64, 5, 4), Error);
  EXPECT_TRUE(make_rope(order, 64, 8, 8).cos.empty());
}

}  // namespace
}  // namespace tulle
