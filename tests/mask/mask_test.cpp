#include "tulle/mask.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace tulle {
namespace {

BlockPartition any_partition(std::int32_t block) {
  BlockPartition p;
  p.sequence.grid = {*rc::gen::inRange(1, 6), *rc::gen::inRange(1, 8), *rc::gen::inRange(1, 8)};
  p.sequence.text_tokens = *rc::gen::inRange(0, 30);
  p.sequence.placement = *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix);
  p.block = block;
  return p;
}

BlockMask any_mask() {
  BlockMask mask(*rc::gen::inRange(1, 3), *rc::gen::inRange(1, 4), any_partition(*rc::gen::inRange(1, 12)),
                 any_partition(*rc::gen::inRange(1, 12)),
                 *rc::gen::elementOf(std::vector(all_orders().begin(), all_orders().end())));
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h)
      for (std::int64_t q = 0; q < mask.q_blocks(); ++q)
        for (std::int64_t k = 0; k < mask.k_blocks(); ++k) mask.set(b, h, q, k, random() % 3 == 0);
  return mask;
}

// Token by token: the slow meaning of kept_pairs.
std::int64_t pairs_by_token(const BlockMask& mask) {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h)
      for (std::int64_t i = 0; i < mask.q().tokens(); ++i)
        for (std::int64_t j = 0; j < mask.k().tokens(); ++j)
          pairs += mask.test(b, h, mask.q().block_of(i), mask.k().block_of(j));
  return pairs;
}

RC_GTEST_PROP(Mask, CountsPairsOfRealTokens, ()) {
  const BlockMask mask = any_mask();
  const std::int64_t pairs = pairs_by_token(mask);
  RC_ASSERT(kept_pairs(mask) == pairs);
  std::int64_t by_head = 0, blocks = 0;
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h) by_head += kept_pairs(mask, b, h);
  RC_ASSERT(by_head == pairs);
  const double all = double(mask.batch() * mask.heads()) * double(mask.q().tokens()) * double(mask.k().tokens());
  RC_ASSERT(density(mask) == double(pairs) / all);
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h)
      for (std::int64_t q = 0; q < mask.q_blocks(); ++q)
        for_each_block(mask.row(b, h, q), [&](std::int64_t k) {
          RC_ASSERT(mask.test(b, h, q, k));
          ++blocks;
        });
  RC_ASSERT(count_blocks(mask) == blocks);
}

RC_GTEST_PROP(Mask, FullMaskHasDensityOneAndNoPaddingBits, ()) {
  BlockMask mask = any_mask();
  mask.fill(true);
  RC_ASSERT(density(mask) == 1.0);
  RC_ASSERT(count_blocks(mask) == mask.batch() * mask.heads() * mask.q_blocks() * mask.k_blocks());
  mask.fill(false);
  RC_ASSERT(count_blocks(mask) == 0);
}

RC_GTEST_PROP(Mask, UnionAndIntersectionAreBitwise, ()) {
  const BlockMask a = any_mask();
  BlockMask b(a.batch(), a.heads(), a.q(), a.k(), a.order());
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  for (std::int64_t h = 0; h < a.heads(); ++h) b.set(0, h, random() % a.q_blocks(), random() % a.k_blocks());
  BlockMask both = a, common = a;
  unite(both, b);
  intersect(common, b);
  for (std::size_t w = 0; w < a.words().size(); ++w) {
    RC_ASSERT(both.words()[w] == (a.words()[w] | b.words()[w]));
    RC_ASSERT(common.words()[w] == (a.words()[w] & b.words()[w]));
  }
}

RC_GTEST_PROP(Mask, SlicesOfHeadsKeepTheirRows, ()) {
  const BlockMask mask = any_mask();
  const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, mask.heads());
  const std::int64_t end = *rc::gen::inRange<std::int64_t>(begin + 1, mask.heads() + 1);
  const BlockMask part = slice_heads(mask, begin, end);
  RC_ASSERT(part.heads() == end - begin);
  for (std::int64_t b = 0; b < part.batch(); ++b)
    for (std::int64_t h = 0; h < part.heads(); ++h) RC_ASSERT(kept_pairs(part, b, h) == kept_pairs(mask, b, begin + h));
}

TEST(Mask, RefusesMasksOfOtherGeometry) {
  const BlockPartition p{{{2, 4, 4}, 0, TextPlacement::kSuffix}, 8};
  BlockPartition same_count = p;
  same_count.sequence.grid = {2, 4, 3};
  same_count.block = 6;
  BlockMask mask(1, 2, p, p, OrderKind::kRaster);
  ASSERT_EQ(same_count.count(), p.count());
  EXPECT_THROW(unite(mask, BlockMask(1, 2, p, same_count, OrderKind::kRaster)), Error);
  EXPECT_THROW(unite(mask, BlockMask(1, 2, p, p, OrderKind::kHilbert)), Error);
  EXPECT_THROW(intersect(mask, BlockMask(1, 1, p, p, OrderKind::kRaster)), Error);
  EXPECT_THROW(slice_heads(mask, 1, 3), Error);
  EXPECT_THROW(slice_heads(mask, 1, 1), Error);
}

TEST(Mask, RefusesImpossibleSizes) {
  const BlockPartition p{{{2, 4, 4}, 0, TextPlacement::kSuffix}, 8};
  const BlockPartition fine{{{1, 1, 1 << 24}, 0, TextPlacement::kSuffix}, 1};
  EXPECT_THROW(BlockMask(0, 1, p, p, OrderKind::kRaster), Error);
  EXPECT_THROW(BlockMask(1, -1, p, p, OrderKind::kRaster), Error);
  EXPECT_THROW(BlockMask(1, std::int64_t{1} << 62, p, p, OrderKind::kRaster), Error);
  EXPECT_THROW(BlockMask(1, 1, fine, fine, OrderKind::kRaster), Error);
  EXPECT_THROW(BlockMask(1, 1, BlockPartition{}, p, OrderKind::kRaster), Error);
}

TEST(Mask, DefaultMaskIsEmpty) {
  const BlockMask mask;
  EXPECT_EQ(mask.q_blocks(), 0);
  EXPECT_EQ(count_blocks(mask), 0);
  EXPECT_EQ(density(mask), 0.0);
}

}  // namespace
}  // namespace tulle
