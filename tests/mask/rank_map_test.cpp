#include "tulle/rank_map.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "mask/rank_maps.hpp"

namespace tulle {
namespace {

std::vector<std::uint8_t> same_level(const RankMap& map, std::uint8_t level) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(map.heads()), level);
}

// A row of places 0, 1, ... : for every density the heaviest floor(p * blocks) blocks are in the mask, and no block
// whose place is a whole 1/255 behind.
TEST(RankMap, ARankNeverLosesABlock) {
  for (std::int64_t blocks : {1, 2, 3, 31, 36, 254, 255, 256, 591, 1000, 4097}) {
    for (std::int32_t permille = 1; permille <= 1000; ++permille) {
      const std::uint8_t level = rank_level(permille);
      for (std::int64_t place = 0; place < blocks; ++place) {
        const std::uint8_t rank = rank_of_place(place, blocks);
        const bool must = (place + 1) * 1000 <= permille * blocks;
        const bool may = 255 * double(place + 1) < (255 * double(permille) / 1000 + 1) * double(blocks);
        ASSERT_TRUE(!must || rank <= level) << place << " of " << blocks << " at " << permille;
        ASSERT_TRUE(may || rank > level) << place << " of " << blocks << " at " << permille;
      }
    }
  }
}

TEST(RankMap, RanksAndLevelsGrow) {
  for (std::int32_t permille = 2; permille <= 1000; ++permille) {
    EXPECT_GE(rank_level(permille), rank_level(permille - 1));
  }
  EXPECT_EQ(rank_level(1), 1);
  EXPECT_EQ(rank_level(996), 254);
  EXPECT_EQ(rank_level(997), kNeverRank);
  EXPECT_EQ(rank_of_place(0, 1), 255);
  EXPECT_EQ(rank_of_place(0, 1 << 24), 1);
  EXPECT_EQ(rank_of_place((1 << 24) - 1, 1 << 24), 255);
}

RC_GTEST_PROP(RankMap, MasksHoldTheBlocksUpToTheirLevelAndGrow, ()) {
  const RankMap map = any_map();
  std::vector<std::uint8_t> levels;
  for (std::int64_t h = 0; h < map.heads(); ++h) levels.push_back(static_cast<std::uint8_t>(*rc::gen::inRange(0, 256)));
  const BlockMask mask = mask_at(map, levels);
  RC_ASSERT(mask.q() == map.q() && mask.k() == map.k() && mask.order() == map.order() && mask.batch() == 1);
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
      for (std::int64_t k = 0; k < map.k_blocks(); ++k) {
        RC_ASSERT(mask.test(0, h, q, k) ==
                  (map.row(h, q)[static_cast<std::size_t>(k)] <= levels[static_cast<std::size_t>(h)]));
      }
    }
  }
  BlockMask larger = mask_at(map, same_level(map, 255));
  RC_ASSERT(density(larger) == 1.0);
  BlockMask common = mask;
  intersect(common, larger);
  RC_ASSERT(common == mask);
}

RC_GTEST_PROP(RankMap, DensitiesAreThoseOfTheMasks, ()) {
  const RankMap map = any_map();
  const auto level = static_cast<std::uint8_t>(*rc::gen::inRange(0, 256));
  const BlockMask mask = mask_at(map, same_level(map, level));
  double mean = 0;
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    const double of_head = density(slice_heads(mask, h, h + 1));
    RC_ASSERT(density_at(map, h, level) == of_head);
    RC_ASSERT(density_by_level(map, h)[level] == of_head);
    mean += of_head / double(map.heads());
  }
  RC_ASSERT(std::abs(density_at(map, level) - mean) < 1e-12);
}

RC_GTEST_PROP(RankMap, UniteIsTheUnionOfMasksAtEveryLevel, ()) {
  const RankMap a = any_map();
  const RankMap b = random_map(a.heads(), a.q(), a.k(), a.order(), *rc::gen::arbitrary<std::uint32_t>());
  RankMap both = a;
  unite(both, b);
  for (int level = 0; level <= 255; level += 5) {
    const auto levels = same_level(a, static_cast<std::uint8_t>(level));
    BlockMask expected = mask_at(a, levels);
    unite(expected, mask_at(b, levels));
    RC_ASSERT(mask_at(both, levels) == expected);
  }
}

TEST(RankMap, ANewMapKeepsNothingBelowFullDensity) {
  const RankMap map(2, blocks_of({2, 3, 4}, 5), blocks_of({2, 3, 4}, 7), OrderKind::kHilbert);
  EXPECT_EQ(density_at(map, 254), 0.0);
  EXPECT_EQ(density_at(map, 255), 1.0);
}

TEST(RankMap, RefusesWhatMakesNoSense) {
  const BlockPartition p = blocks_of({2, 4, 4}, 8), other = blocks_of({2, 4, 5}, 8);
  BlockPartition text = p;
  text.sequence.text_tokens = 3;
  EXPECT_THROW(RankMap(0, p, p, OrderKind::kRaster), Error);
  EXPECT_THROW(RankMap(1, p, other, OrderKind::kRaster), Error);
  EXPECT_THROW(RankMap(1, text, text, OrderKind::kRaster), Error);
  EXPECT_THROW(RankMap(std::int64_t{1} << 62, p, p, OrderKind::kRaster), Error);
  RankMap map(2, p, p, OrderKind::kRaster);
  EXPECT_THROW(unite(map, RankMap(2, p, p, OrderKind::kHilbert)), Error);
  EXPECT_THROW(unite(map, RankMap(1, p, p, OrderKind::kRaster)), Error);
  EXPECT_THROW(mask_at(map, std::vector<std::uint8_t>(3, 1)), Error);
  EXPECT_THROW(rank_level(0), Error);
  EXPECT_THROW(rank_level(1001), Error);
  EXPECT_THROW(rank_of_place(4, 4), Error);
  EXPECT_THROW(rank_of_place(-1, 4), Error);
}

}  // namespace
}  // namespace tulle
