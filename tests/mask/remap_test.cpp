#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "mask/rank_maps.hpp"

namespace tulle {
namespace {

std::vector<std::uint8_t> same_level(const RankMap& map, std::uint8_t level) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(map.heads()), level);
}

bool nowhere_above(const RankMap& map, const RankMap& bound) {
  return map.same_geometry(bound) && std::ranges::equal(map.bytes(), bound.bytes(), std::less_equal<>{});
}

// --- the rule, frame by frame and pair by pair: slow, and written without the lists that remap() uses ---

struct Rect {
  double y0, y1, x0, x1;
  bool overlaps(const Rect& o) const {
    const double e = 1e-9;  // sides are fractions of at most 8 parts: they are equal or far apart
    return y0 < o.y1 - e && o.y0 < y1 - e && x0 < o.x1 - e && o.x0 < x1 - e;
  }
};

// [block][frame], empty (y0 > y1) where the block is not in the frame.
std::vector<std::vector<Rect>> rects_of(const BlockPartition& p, OrderKind kind) {
  const TokenGrid& g = p.sequence.grid;
  const TokenOrder order = make_order(kind, g);
  std::vector<std::vector<Rect>> rects;
  for (std::int64_t b = 0; b < p.count(); ++b) {
    rects.emplace_back(g.frames, Rect{2, -1, 2, -1});
    for (const Place& t : places_of(p, order, b)) {
      Rect& r = rects.back()[static_cast<std::size_t>(t.f)];
      r = {std::min(r.y0, t.y / double(g.height)), std::max(r.y1, (t.y + 1) / double(g.height)),
           std::min(r.x0, t.x / double(g.width)), std::max(r.x1, (t.x + 1) / double(g.width))};
    }
  }
  return rects;
}

using Rects = std::vector<std::vector<Rect>>;

struct Oracle {
  const RankMap& map;
  Rects q_from, k_from, q_to, k_to;
  int longest;

  // The smallest rank over rectangle `a` of queries and `b` of keys at one distance.
  int least(std::int64_t head, const Rect& a, const Rect& b, int distance) const {
    int found = 256;
    for (std::size_t u = 0; u < q_from.size(); ++u) {
      for (int f = 0; f <= longest; ++f) {
        const int g = f + distance;
        if (g < 0 || g > longest || !a.overlaps(q_from[u][static_cast<std::size_t>(f)])) continue;
        for (std::size_t v = 0; v < k_from.size(); ++v) {
          if (b.overlaps(k_from[v][static_cast<std::size_t>(g)])) found = std::min<int>(found, map.row(head, u)[v]);
        }
      }
    }
    return found;
  }

  int rank(std::int64_t head, std::size_t u, std::size_t v) const {
    int found = 256;
    for (int f = 0; f < int(q_to[u].size()); ++f) {
      for (int g = 0; g < int(k_to[v].size()); ++g) {
        const Rect &a = q_to[u][static_cast<std::size_t>(f)], &b = k_to[v][static_cast<std::size_t>(g)];
        if (a.y0 > a.y1 || b.y0 > b.y1) continue;
        found = std::min(found, least(head, a, b, std::clamp(g - f, -longest, longest)));
      }
    }
    return found;
  }

  // The smallest rank of the source rows over a target row, in any frame.
  int row_least(std::int64_t head, std::size_t u) const {
    int found = 256;
    for (const Rect& a : q_to[u]) {
      for (std::size_t s = 0; s < q_from.size(); ++s) {
        const bool over = std::ranges::any_of(q_from[s], [&](const Rect& r) { return a.overlaps(r); });
        if (over) found = std::min<int>(found, *std::ranges::min_element(map.row(head, s)));
      }
    }
    return found;
  }
};

RC_GTEST_PROP(Remap, FollowsTheRule, ()) {
  const TokenGrid from = any_grid(3, 5), to = any_grid(3, 5);
  const RankMap map =
      random_map(2, blocks_of(from, *rc::gen::inRange(2, 12)), blocks_of(from, *rc::gen::inRange(2, 12)), any_order(),
                 *rc::gen::arbitrary<std::uint32_t>());
  const BlockPartition q = blocks_of(to, *rc::gen::inRange(2, 12)), k = blocks_of(to, *rc::gen::inRange(2, 12));
  const OrderKind order = any_order();
  const RankMap out = remap(map, q, k, order);
  const Oracle oracle{map,
                      rects_of(map.q(), map.order()),
                      rects_of(map.k(), map.order()),
                      rects_of(q, order),
                      rects_of(k, order),
                      from.frames - 1};
  for (std::int64_t h = 0; h < out.heads(); ++h) {
    for (std::size_t u = 0; u < std::size_t(q.count()); ++u) {
      std::vector<int> expected;
      for (std::size_t v = 0; v < std::size_t(k.count()); ++v) expected.push_back(oracle.rank(h, u, v));
      int& least = *std::ranges::min_element(expected);
      least = std::min(least, oracle.row_least(h, u));
      RC_ASSERT(std::ranges::equal(out.row(h, std::int64_t(u)), expected));
    }
  }
}

RC_GTEST_PROP(Remap, TheSameGeometryLosesNothing, ()) {
  const RankMap map = any_map();
  RC_ASSERT(nowhere_above(remap(map, map.q(), map.k(), map.order()), map));
}

// Whatever the change, a row keeps a block at the smallest rank that its source rows have.
RC_GTEST_PROP(Remap, NoRowIsLost, ()) {
  const RankMap map = any_map();
  const TokenGrid to = any_grid(9, 9);
  const RankMap out =
      remap(map, blocks_of(to, *rc::gen::inRange(1, 20)), blocks_of(to, *rc::gen::inRange(1, 20)), any_order());
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    int needed = 0;
    for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
      needed = std::max<int>(needed, *std::ranges::min_element(map.row(h, q)));
    }
    for (std::int64_t q = 0; q < out.q_blocks(); ++q) {
      RC_ASSERT(*std::ranges::min_element(out.row(h, q)) <= needed);
      RC_ASSERT(*std::ranges::min_element(out.row(h, q)) >= 1);
    }
  }
}

// --- a local map, remapped and made natively ---

struct Change {
  const char* name;
  TokenGrid from, to;
  OrderKind from_order, to_order;
  std::int32_t from_q, from_k, to_q, to_k;
};

const Change kChanges[] = {
    {"larger", {5, 6, 8}, {5, 9, 13}, OrderKind::kHilbert, OrderKind::kHilbert, 16, 16, 16, 16},
    {"smaller", {5, 9, 13}, {5, 6, 8}, OrderKind::kHilbert, OrderKind::kHilbert, 16, 16, 16, 16},
    {"aspect", {5, 6, 10}, {5, 10, 6}, OrderKind::kGilbert, OrderKind::kGilbert, 16, 16, 16, 16},
    {"more frames", {5, 6, 8}, {9, 6, 8}, OrderKind::kHilbert, OrderKind::kHilbert, 16, 16, 16, 16},
    {"fewer frames", {13, 5, 6}, {9, 5, 6}, OrderKind::kHilbert, OrderKind::kHilbert, 16, 16, 16, 16},
    {"raster to hilbert", {5, 8, 8}, {5, 8, 8}, OrderKind::kRaster, OrderKind::kHilbert, 16, 16, 16, 16},
    {"hilbert to raster", {5, 8, 8}, {5, 8, 8}, OrderKind::kHilbert, OrderKind::kRaster, 16, 16, 16, 16},
    {"ragged raster", {5, 7, 9}, {5, 8, 11}, OrderKind::kRaster, OrderKind::kRaster, 16, 16, 16, 16},
    {"finer blocks", {5, 8, 8}, {5, 8, 8}, OrderKind::kTile, OrderKind::kMorton, 32, 16, 8, 16},
    {"coarser blocks", {5, 8, 8}, {5, 8, 8}, OrderKind::kMorton, OrderKind::kTile, 8, 16, 32, 24},
    {"from one token", {1, 1, 1}, {3, 4, 5}, OrderKind::kRaster, OrderKind::kHilbert, 4, 4, 4, 4},
    {"to one token", {3, 4, 5}, {1, 1, 1}, OrderKind::kHilbert, OrderKind::kRaster, 4, 4, 4, 4},
};

class RemapOf : public testing::TestWithParam<Change> {};

TEST_P(RemapOf, ALocalMapKeepsEveryBlockOfTheNativeMap) {
  const Change& c = GetParam();
  const RankMap source = local_map(2, c.from, c.from_q, c.from_k, c.from_order);
  const RankMap native = local_map(2, c.to, c.to_q, c.to_k, c.to_order);
  const RankMap remapped = remap(source, native.q(), native.k(), c.to_order);
  EXPECT_TRUE(nowhere_above(remapped, native));
  for (std::int32_t permille : {50, 150, 300}) {
    const auto levels = same_level(native, rank_level(permille));
    BlockMask lost = mask_at(native, levels);
    const std::int64_t active = count_blocks(lost);
    intersect(lost, mask_at(remapped, levels));
    EXPECT_EQ(count_blocks(lost), active) << permille;
    RecordProperty("native density at " + std::to_string(permille), std::to_string(density(mask_at(native, levels))));
    RecordProperty("remapped density at " + std::to_string(permille),
                   std::to_string(density(mask_at(remapped, levels))));
  }
}

std::string name_of(const testing::TestParamInfo<Change>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Changes, RemapOf, testing::ValuesIn(kChanges), name_of);

// Conservative is not the same as keeping everything: a local map stays local. Each side of a pair grows by up to one
// source block in all three directions, so the ratio falls with the size of a block in the frame.
TEST(Remap, ALocalMapStaysLocal) {
  const TokenGrid from = {9, 16, 20}, to = {9, 20, 24};
  for (OrderKind order : all_orders()) {
    const RankMap source = local_map(1, from, 16, 16, order), native = local_map(1, to, 16, 16, order);
    const RankMap remapped = remap(source, native.q(), native.k(), order);
    const double asked = density_at(native, rank_level(150)), got = density_at(remapped, rank_level(150));
    RecordProperty(to_string(order), std::to_string(asked) + " -> " + std::to_string(got));
    EXPECT_LT(got, 4 * asked) << to_string(order);
    EXPECT_LT(got, 0.5) << to_string(order);
  }
}

// --- shares of the sequence ---

RC_GTEST_PROP(RemapScaled, KeepsEveryBlockOfTheNativeMap, ()) {
  const TokenGrid from = any_grid(4, 9);
  TokenGrid to = any_grid(1, 13);
  to.frames = from.frames;
  const RankMap source = local_map(2, from, *rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20), OrderKind::kRaster);
  const RankMap native = local_map(2, to, *rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20), OrderKind::kRaster);
  RC_ASSERT(nowhere_above(remap_scaled(source, native.q(), native.k()), native));
}

RC_GTEST_PROP(RemapScaled, TheSameGeometryLosesNothing, ()) {
  const TokenGrid grid = any_grid();
  const RankMap map =
      random_map(2, blocks_of(grid, *rc::gen::inRange(1, 20)), blocks_of(grid, *rc::gen::inRange(1, 20)),
                 OrderKind::kRaster, *rc::gen::arbitrary<std::uint32_t>());
  RC_ASSERT(nowhere_above(remap_scaled(map, map.q(), map.k()), map));
}

TEST(RemapScaled, IsNoWiderThanItsRow) {
  const RankMap source = local_map(2, {5, 10, 14}, 32, 32, OrderKind::kRaster);
  const RankMap native = local_map(2, {5, 15, 21}, 32, 32, OrderKind::kRaster);
  const RankMap scaled = remap_scaled(source, native.q(), native.k());
  EXPECT_LT(density_at(scaled, rank_level(100)), 0.8);
}

TEST(RemapScaled, RefusesWhereSharesSayNothing) {
  const BlockPartition p = blocks_of({3, 4, 4}, 8), frames = blocks_of({4, 4, 4}, 8);
  EXPECT_THROW(remap_scaled(RankMap(1, p, p, OrderKind::kHilbert), p, p), Error);
  EXPECT_THROW(remap_scaled(RankMap(1, p, p, OrderKind::kRaster), frames, frames), Error);
}

TEST(Remap, RefusesAGeometryWithText) {
  const RankMap map(1, blocks_of({2, 4, 4}, 8), blocks_of({2, 4, 4}, 8), OrderKind::kRaster);
  BlockPartition text = map.q();
  text.sequence.text_tokens = 2;
  EXPECT_THROW(remap(map, text, text, OrderKind::kRaster), Error);
}

}  // namespace
}  // namespace tulle
