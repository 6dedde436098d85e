// The best mask of a density, from exact mass.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>

#include "select/chooser.hpp"
#include "select/recall.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

BlockPartition blocks(std::int32_t count) { return {{parse_grid("1x1x" + std::to_string(4 * count))}, 4}; }

TEST(BestBlocks, TakesTheLargestOfEachRow) {
  const BlockMass mass{2, 1, 4, {0.1f, 0.4f, 0.2f, 0.3f, 0.7f, 0.1f, 0.15f, 0.05f}};
  const BlockPartition q{{parse_grid("1x1x4")}, 4}, k{{parse_grid("1x1x16")}, 4};
  const BlockMask half = best_blocks(mass, q, k, OrderKind::kRaster, 500);
  EXPECT_EQ(half.row(0, 0, 0)[0], 0b1010u);
  EXPECT_EQ(half.row(0, 1, 0)[0], 0b0101u);
  const BlockMask one = best_blocks(mass, q, k, OrderKind::kRaster, 1);
  EXPECT_EQ(one.row(0, 0, 0)[0], 0b0010u);
  const BlockMask all = best_blocks(mass, q, k, OrderKind::kRaster, 1000);
  EXPECT_EQ(count_blocks(all), 8);
  EXPECT_EQ(half, best_blocks(mass, q, k, OrderKind::kRaster, 500));
}

RC_GTEST_PROP(BestBlocks, NoOtherChoiceOfAsManyBlocksKeepsMore, ()) {
  const std::int32_t count = *rc::gen::inRange(2, 70), permille = *rc::gen::inRange(1, 1001);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const BlockPartition p = blocks(count);
  BlockMass mass{2, count, count, {}};
  for (std::int64_t i = 0; i < 2 * count * count; ++i) mass.values.push_back(float(random() % 8) / float(8 * count));
  const BlockMask best = best_blocks(mass, p, p, OrderKind::kRaster, permille);
  BlockMask other(1, 2, p, p, OrderKind::kRaster);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t row = 0; row < 2 * count; ++row) {
    RC_ASSERT(count_blocks(best.row(0, row / count, row % count)) == kept_count(count, permille));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::ranges::shuffle(order, random);
    for (std::int64_t i = 0; i < kept_count(count, permille); ++i) {
      other.set(0, row / count, row % count, order[static_cast<std::size_t>(i)]);
    }
  }
  const std::vector<Recall> of_best = recall_of(best, mass), of_other = recall_of(other, mass);
  for (std::size_t map = 0; map < 2; ++map) RC_ASSERT(of_best[map].mean >= of_other[map].mean - 1e-9);
}

TEST(BestBlocks, RefusesWhatDoesNotFit) {
  const BlockMass mass{1, 3, 3, std::vector<float>(9, 0.1f)};
  const BlockPartition fits = blocks(3), other = blocks(4);
  EXPECT_THROW(best_blocks(mass, fits, other, OrderKind::kRaster, 250), Error);
  EXPECT_THROW(best_blocks(mass, fits, fits, OrderKind::kRaster, 0), Error);
  EXPECT_THROW(best_blocks(mass, fits, fits, OrderKind::kRaster, 1001), Error);
  BlockPartition text = blocks(3);
  text.sequence.text_tokens = 2;
  EXPECT_THROW(best_blocks(mass, text, fits, OrderKind::kRaster, 250), Error);
}

}  // namespace
}  // namespace tulle
