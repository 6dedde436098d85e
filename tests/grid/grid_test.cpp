#include "tulle/grid.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tulle/error.hpp"

namespace tulle {
namespace {

TEST(Grid, ParsesAndPrints) {
  EXPECT_EQ(parse_grid("13x20x24"), (TokenGrid{13, 20, 24}));
  EXPECT_EQ(to_string(TokenGrid{1, 2, 3}), "1x2x3");
  EXPECT_EQ(parse_grid("1x1x16777216").tokens(), kMaxTokens);
}

TEST(Grid, RefusesWhatIsNoGrid) {
  for (const char* text :
       {"", "x", "1x2", "1x2x", "1x2x3x", "1x2x3x4", "0x2x3", "-1x2x3", "1x2x3 ", " 1x2x3", "1x2x3.5",
        "99999999999x1x1", "1x1x16777217", "65536x65536x65536", "2147483647x2147483647x2147483647"}) {
    EXPECT_THROW(parse_grid(text), Error) << text;
  }
}

TEST(Grid, OrderNamesRoundTripAndErrorsListThem) {
  for (OrderKind kind : all_orders()) EXPECT_EQ(parse_order(to_string(kind)), kind);
  try {
    parse_order("peano");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("raster, tile, morton, hilbert, gilbert"), std::string::npos) << e.what();
  }
}

TEST(Partition, PutsTextInBlocksOfItsOwn) {
  const BlockPartition suffix{{{1, 5, 20}, 70, TextPlacement::kSuffix}, 64};
  EXPECT_EQ(suffix.count(), 4);
  EXPECT_EQ(suffix.begin(1), 64);
  EXPECT_EQ(suffix.end(1), 100);
  EXPECT_EQ(suffix.begin(2), 100);
  EXPECT_EQ(suffix.end(3), 170);
  EXPECT_TRUE(suffix.is_text(2));
  const BlockPartition prefix{{{1, 5, 20}, 70, TextPlacement::kPrefix}, 64};
  EXPECT_EQ(prefix.end(1), 70);
  EXPECT_EQ(prefix.end(2), 134);
  EXPECT_TRUE(prefix.is_text(1));
  EXPECT_FALSE(prefix.is_text(2));
  EXPECT_EQ(BlockPartition{}.count(), 0);
}

RC_GTEST_PROP(Partition, BlocksCoverAllTokensOnceAndNeverMixParts, ()) {
  BlockPartition p;
  p.sequence.grid = {*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 9), *rc::gen::inRange(1, 9)};
  p.sequence.text_tokens = *rc::gen::inRange(0, 200);
  p.sequence.placement = *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix);
  p.block = *rc::gen::inRange(1, 150);
  RC_ASSERT(p.begin(0) == 0);
  RC_ASSERT(p.begin(p.count()) == p.tokens());
  std::int64_t text = 0;
  for (std::int64_t i = 0; i < p.count(); ++i) {
    RC_ASSERT(p.size(i) >= 1 && p.size(i) <= p.block);
    for (std::int64_t token = p.begin(i); token < p.end(i); ++token) {
      RC_ASSERT(p.block_of(token) == i);
      const bool video = token >= p.sequence.video_begin() && token < p.sequence.video_end();
      RC_ASSERT(p.is_text(i) == !video);
    }
    text += p.is_text(i);
  }
  RC_ASSERT(text == p.text_blocks());
}

TEST(Partition, RefusesBadGeometry) {
  EXPECT_THROW(check_partition({{{1, 1, 1}, 0, TextPlacement::kSuffix}, 0}), Error);
  EXPECT_THROW(check_partition({{{1, 1, 1}, -1, TextPlacement::kSuffix}, 64}), Error);
  EXPECT_THROW(check_partition({{{0, 1, 1}, 0, TextPlacement::kSuffix}, 64}), Error);
  EXPECT_NO_THROW(check_partition({{{1, 1, 1}, 0, TextPlacement::kSuffix}, 1}));
}

}  // namespace
}  // namespace tulle
