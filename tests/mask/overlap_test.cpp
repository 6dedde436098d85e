#include "mask/overlap.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tulle/error.hpp"

namespace tulle {
namespace {

BlockPartition blocks(const char* grid, std::int32_t block) { return {{parse_grid(grid)}, block}; }

TEST(Overlap, CountsBlocksByHand) {
  const BlockPartition p = blocks("1x4x9", 12);  // three blocks
  BlockMask a(1, 3, p, p, OrderKind::kRaster), b = a;
  // Head 0: {00, 11, 22} and {00, 11, 12, 21}: two in common, five in all.
  for (std::int64_t i = 0; i < 3; ++i) a.set(0, 0, i, i);
  for (const auto& [q, k] : {std::pair{0, 0}, {1, 1}, {1, 2}, {2, 1}}) b.set(0, 0, q, k);
  // Head 1: nothing in common. Head 2: nothing at all.
  a.set(0, 1, 0, 0);
  b.set(0, 1, 2, 2);
  EXPECT_EQ(overlap_of(a, b), (std::vector<double>{0.4, 0.0, 1.0}));
  EXPECT_EQ(overlap_of(b, a), overlap_of(a, b));
}

TEST(Overlap, OfAMaskWithItselfIsOneAndBatchesAreMaps) {
  const BlockPartition p = blocks("3x8x20", 8);  // 60 blocks: rows of two words
  BlockMask a(2, 2, p, p, OrderKind::kHilbert);
  std::mt19937 random(3);
  for (std::int64_t map = 0; map < 4; ++map) {
    for (std::int64_t i = 0; i < 60 * 60; ++i) a.set(map / 2, map % 2, i / 60, i % 60, random() % 4 == 0);
  }
  EXPECT_EQ(overlap_of(a, a), std::vector<double>(4, 1.0));
  BlockMask b = a;
  for (std::int64_t q = 0; q < 60; ++q) {
    for (std::uint32_t& word : b.row(1, 0, q)) word = 0;
  }
  EXPECT_EQ(overlap_of(a, b), (std::vector<double>{1.0, 1.0, 0.0, 1.0}));
}

TEST(Overlap, RandomMasksMeetTheChanceLevel) {
  const BlockPartition p = blocks("1x40x40", 4);  // 400 blocks
  BlockMask a(1, 1, p, p, OrderKind::kRaster), b = a;
  std::mt19937 random(5);
  for (BlockMask* mask : {&a, &b}) {
    for (std::int64_t i = 0; i < 400 * 400; ++i) mask->set(0, 0, i / 400, i % 400, random() % 4 == 0);
  }
  EXPECT_NEAR(overlap_of(a, b)[0], chance_overlap(0.25), 0.005);
  EXPECT_DOUBLE_EQ(chance_overlap(0.25), 1.0 / 7);
}

TEST(Overlap, RefusesOtherGeometry) {
  const BlockPartition p = blocks("1x4x9", 12), other = blocks("1x4x9", 9);
  const BlockMask a(1, 1, p, p, OrderKind::kRaster);
  EXPECT_THROW(overlap_of(a, BlockMask(1, 1, other, other, OrderKind::kRaster)), Error);
  EXPECT_THROW(overlap_of(a, BlockMask(1, 1, p, p, OrderKind::kHilbert)), Error);
}

}  // namespace
}  // namespace tulle
