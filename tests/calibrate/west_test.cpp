#include "calibrate/west.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tulle/error.hpp"

namespace tulle {
namespace {

// `blocks` blocks of 4 tokens, the last one ragged with 3.
BlockPartition row_of_blocks(std::int32_t blocks) { return {{TokenGrid{1, 1, 4 * blocks - 1}}, 4}; }

std::vector<float> random_mass(const RankMap& like, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<float> mass;
  std::vector<float> out(like.bytes().size());
  for (float& m : out) m = mass(random);
  return out;
}

TEST(RankBlocks, RanksARowByItsMass) {
  const BlockPartition q{{TokenGrid{1, 1, 19}}, 19}, k = row_of_blocks(5);  // one row of five blocks
  const std::vector<float> mass = {0.1f, 0.4f, 0.05f, 0.25f, 0.2f};
  const RankMap map = rank_blocks(mass, 1, q, k, OrderKind::kRaster, 0);
  const auto row = map.row(0, 0);
  EXPECT_EQ(std::vector<int>(row.begin(), row.end()), (std::vector<int>{204, 51, 255, 102, 153}));
}

RC_GTEST_PROP(RankBlocks, TheMaskOfADensityHoldsTheHeaviestBlocks, ()) {
  const auto blocks = *rc::gen::inRange(1, 40);
  const auto permille = *rc::gen::inRange(1, 1001);
  const BlockPartition p = row_of_blocks(blocks);
  const std::vector<float> mass = random_mass(RankMap(2, p, p, OrderKind::kTile), *rc::gen::arbitrary<std::uint32_t>());
  const RankMap map = rank_blocks(mass, 2, p, p, OrderKind::kTile, 3);
  for (std::int64_t u = 0; u < blocks; ++u) {
    const auto row = map.row(1, u);
    const float* m = mass.data() + (blocks + u) * blocks;
    std::int64_t kept = 0;
    float lightest = std::numeric_limits<float>::max(), heaviest = 0;
    for (std::size_t v = 0; v < row.size(); ++v) {
      const bool keep = row[v] <= rank_level(permille);
      kept += keep;
      keep ? lightest = std::min(lightest, m[v]) : heaviest = std::max(heaviest, m[v]);
    }
    RC_ASSERT(lightest >= heaviest);
    RC_ASSERT(kept >= permille * blocks / 1000);
  }
}

TEST(RankBlocks, TiesAreDeterministicAndFavourNoRegion) {
  const BlockPartition p = row_of_blocks(40);
  const std::vector<float> mass(40 * 40, 0.025f);
  const RankMap map = rank_blocks(mass, 1, p, p, OrderKind::kRaster, 1);
  EXPECT_EQ(map, rank_blocks(mass, 1, p, p, OrderKind::kRaster, 1));
  EXPECT_NE(map, rank_blocks(mass, 1, p, p, OrderKind::kRaster, 2)) << "layers break ties alike";
  int first_half = 0;
  for (std::int64_t u = 0; u < 40; ++u) {
    for (std::size_t v = 0; v < 20; ++v) first_half += map.row(0, u)[v] <= rank_level(500);
  }
  EXPECT_NEAR(first_half, 400, 60);  // of 800 kept
}

TEST(RankBlocks, RefusesMassThatIsNone) {
  const BlockPartition p = row_of_blocks(4);
  std::vector<float> mass(2 * 16, 0.5f);
  EXPECT_THROW(rank_blocks(std::span(mass).first(31), 2, p, p, OrderKind::kRaster, 0), Error);
  mass[16 + 9] = std::numeric_limits<float>::quiet_NaN();
  try {
    rank_blocks(mass, 2, p, p, OrderKind::kRaster, 6);
    FAIL() << "NaN was ranked";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
    EXPECT_NE(std::string(e.what()).find("layer 6, head 1, query block 2"), std::string::npos) << e.what();
  }
}

TEST(KeptShare, CountsRowsByTheirTokens) {
  const BlockPartition p{{TokenGrid{1, 1, 5}}, 4};  // blocks of 4 and 1 tokens
  RankMap map(1, p, p, OrderKind::kRaster);
  map.row(0, 0)[0] = 10;  // row 0 keeps 0.75 of its mass, row 1 nothing
  const std::vector<float> mass = {3, 1, 2, 2};
  EXPECT_DOUBLE_EQ(kept_share(map, mass, 10), 0.75 * 4 / 5);
  EXPECT_DOUBLE_EQ(kept_share(map, mass, 9), 0.0);
  EXPECT_DOUBLE_EQ(kept_share(map, mass, 255), 1.0);
}

TEST(West, UnitesCaptionsAndNotesWhatTheUnionKept) {
  const BlockPartition p = row_of_blocks(8);
  West west(2, 1, p, p, OrderKind::kRaster);
  const std::vector<float> a = random_mass(west.ranks()[0], 1), b = random_mass(west.ranks()[0], 2);
  // Captions a, then b; each in two calls, which add up.
  std::vector<float> half(a.size());
  for (int caption = 0; caption < 2; ++caption) {
    for (std::int64_t layer : {0, 1}) {
      std::ranges::transform(caption == 0 ? a : b, half.begin(), [](float m) { return 0.5f * m; });
      west.add(layer, 0, half);
      west.add(layer, 0, half);
    }
    west.end_caption();
    if (caption == 0) {
      EXPECT_EQ(west.held_out_mass(), 0.0f) << "nothing was there to keep it";
    }
  }
  const RankMap ra0 = rank_blocks(a, 1, p, p, OrderKind::kRaster, 0),
                ra1 = rank_blocks(a, 1, p, p, OrderKind::kRaster, 1);
  RankMap united = ra0;
  unite(united, rank_blocks(b, 1, p, p, OrderKind::kRaster, 0));
  EXPECT_EQ(west.ranks()[0], united);
  const std::uint8_t level = rank_level(kWestPermille);
  EXPECT_FLOAT_EQ(west.held_out_mass(),
                  static_cast<float>((kept_share(ra0, b, level) + kept_share(ra1, b, level)) / 2));
  ASSERT_EQ(west.union_density().size(), 2u);
  EXPECT_FLOAT_EQ(west.union_density()[0], static_cast<float>((density_at(ra0, level) + density_at(ra1, level)) / 2));
  EXPECT_GT(west.union_density()[1], west.union_density()[0]);
}

TEST(West, GoesOnFromWhereAnotherWas) {
  const BlockPartition p = row_of_blocks(8);
  West one(1, 2, p, p, OrderKind::kGilbert), two = one;
  const auto feed = [&](West& west, std::uint32_t seed) {
    const std::vector<float> mass = random_mass(west.ranks()[0], seed);
    for (std::int64_t h : {0, 1}) west.add(0, h, std::span(mass).subspan(static_cast<std::size_t>(64 * h), 64));
  };
  feed(one, 1);
  one.end_caption();
  feed(two, 9);  // an unfinished caption, which restore forgets
  two.restore(one.ranks()[0].bytes(), one.union_density(), one.held_out_mass());
  for (West* west : {&one, &two}) {
    feed(*west, 7);
    west->drop_caption();  // interrupted
    feed(*west, 2);
    west->end_caption();
  }
  EXPECT_EQ(one.ranks()[0], two.ranks()[0]);
  EXPECT_EQ(one.union_density(), two.union_density());
  EXPECT_EQ(one.held_out_mass(), two.held_out_mass());
  EXPECT_THROW(two.restore(one.ranks()[0].bytes().first(5), {}, 0), Error);
}

}  // namespace
}  // namespace tulle
