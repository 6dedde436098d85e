#include "select/chooser.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "tulle/error.hpp"
#include "tulle/rank_map.hpp"

namespace tulle {
namespace {

std::vector<std::uint8_t> chosen(const std::vector<float>& scores, std::int32_t permille, std::uint64_t seed) {
  std::vector<std::uint8_t> kept(scores.size());
  find_chooser("top_k").choose({.scores = scores, .permille = permille, .seed = seed}, kept);
  return kept;
}

TEST(KeptCount, IsTheNearestNumberOfBlocks) {
  EXPECT_EQ(kept_count(98, 300), 29);  // 29.4
  EXPECT_EQ(kept_count(98, 200), 20);  // 19.6
  EXPECT_EQ(kept_count(10, 250), 3);   // 2.5: halves up
  EXPECT_EQ(kept_count(3, 1), 1);      // never none
  EXPECT_EQ(kept_count(1182, 1000), 1182);
  EXPECT_EQ(kept_count(1 << 24, 999), 16760439);
}

RC_GTEST_PROP(TopK, KeepsTheLargestAndExactlyAsMany, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 200);
  // Few different values: many ties.
  std::vector<float> scores;
  for (int v : *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(0, 12)))
    scores.push_back(static_cast<float>(v) / 4);
  const int permille = *rc::gen::inRange(1, 1001);
  const auto kept = chosen(scores, permille, *rc::gen::arbitrary<std::uint64_t>());
  RC_ASSERT(std::accumulate(kept.begin(), kept.end(), std::int64_t{0}) ==
            kept_count(static_cast<std::int64_t>(count), permille));
  float lowest_kept = INFINITY, highest_dropped = -INFINITY;
  for (std::size_t i = 0; i < count; ++i) {
    if (kept[i])
      lowest_kept = std::min(lowest_kept, scores[i]);
    else
      highest_dropped = std::max(highest_dropped, scores[i]);
  }
  RC_ASSERT(lowest_kept >= highest_dropped);
}

TEST(TopK, TiesFavourNoRegion) {
  constexpr int kBlocks = 64, kRows = 8000;
  std::vector<double> times(kBlocks);
  for (int row = 0; row < kRows; ++row) {
    const auto kept = chosen(std::vector<float>(kBlocks, 0.5f), 250, mix(mix(3, 1), row));
    for (int i = 0; i < kBlocks; ++i) times[i] += kept[i];
  }
  const double expected = kRows * 0.25;
  double chi_square = 0;
  for (double t : times) chi_square += (t - expected) * (t - expected) / (expected * 0.75);
  EXPECT_LT(chi_square, 120);  // 63 degrees of freedom: 5 standard deviations above the mean
  const double first_half = std::accumulate(times.begin(), times.begin() + kBlocks / 2, 0.0);
  EXPECT_NEAR(first_half / (kRows * kBlocks * 0.125), 1.0, 0.01);
}

TEST(TopK, TiesAreBrokenAlikeEveryTime) {
  const std::vector<float> scores(100, 1.0f);
  EXPECT_EQ(chosen(scores, 300, 42), chosen(scores, 300, 42));
  EXPECT_NE(chosen(scores, 300, 42), chosen(scores, 300, 43));
}

// A row with its storage: few different values, so that there are many ties.
struct AnyRow {
  std::vector<float> scores;
  std::vector<std::uint8_t> ranks;  // empty: no prior
  ChooseRow row;

  std::size_t blocks() const { return scores.size(); }
  std::vector<std::uint8_t> kept_by(std::string_view chooser) const {
    std::vector<std::uint8_t> kept(scores.size());
    find_chooser(chooser).choose(row, kept);
    return kept;
  }
};

std::unique_ptr<AnyRow> any_row(bool with_ranks) {
  auto r = std::make_unique<AnyRow>();  // on the heap: the row refers to its neighbours
  const auto count = *rc::gen::inRange<std::size_t>(1, 120);
  const bool wide = *rc::gen::arbitrary<bool>();
  for (int v : *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(0, wide ? 100000 : 7)))
    r->scores.push_back(v == 6 ? kAlwaysKept : static_cast<float>(v) / (wide ? 1e5f : 7.0f));
  r->row.scores = r->scores;
  r->row.permille = *rc::gen::inRange(1, 1001);
  r->row.seed = *rc::gen::arbitrary<std::uint64_t>();
  r->row.top_p = *rc::gen::inRange(1, 1001);
  r->row.floor = *rc::gen::inRange(0, 400);
  if (!with_ranks) return r;
  for (int v : *rc::gen::container<std::vector<int>>(count, rc::gen::inRange(1, 256)))
    r->ranks.push_back(static_cast<std::uint8_t>(v));
  r->row.ranks = r->ranks;
  r->row.envelope = static_cast<std::uint8_t>(*rc::gen::inRange(1, 256));
  return r;
}

// Definitions again, slow and plain: candidates, and blocks best first.
bool is_candidate(const AnyRow& r, std::size_t i) {
  if (r.ranks.empty() || r.ranks[i] <= r.row.envelope) return true;
  for (std::uint8_t rank : r.ranks)
    if (rank <= r.row.envelope || rank < r.ranks[i]) return false;
  return true;
}

bool better(const AnyRow& r, std::size_t a, std::size_t b) {
  if (is_candidate(r, a) != is_candidate(r, b)) return is_candidate(r, a);
  if (r.scores[a] != r.scores[b]) return r.scores[a] > r.scores[b];
  return mix(r.row.seed, a) < mix(r.row.seed, b);
}

std::vector<std::size_t> best_first(const AnyRow& r) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < r.blocks(); ++i) {
    auto at = order.begin();
    while (at != order.end() && better(r, *at, i)) ++at;
    order.insert(at, i);
  }
  return order;
}

std::vector<std::uint8_t> first_of(const AnyRow& r, std::size_t count) {
  std::vector<std::uint8_t> kept(r.blocks());
  const std::vector<std::size_t> order = best_first(r);
  for (std::size_t i = 0; i < count; ++i) kept[order[i]] = is_candidate(r, order[i]);
  return kept;
}

std::size_t count_of(const std::vector<std::uint8_t>& kept) {
  return static_cast<std::size_t>(std::accumulate(kept.begin(), kept.end(), std::int64_t{0}));
}

RC_GTEST_PROP(TopK, KeepsTheFirstCandidatesOfTheOracle, (bool with_ranks)) {
  const auto r = any_row(with_ranks);
  const auto count = static_cast<std::size_t>(kept_count(static_cast<std::int64_t>(r->blocks()), r->row.permille));
  const auto kept = r->kept_by("top_k");
  RC_ASSERT(kept == first_of(*r, count));
  RC_ASSERT(count_of(kept) >= 1u);
}

RC_GTEST_PROP(TopP, KeepsTheFewestThatReachTheShare, (bool with_ranks)) {
  const auto r = any_row(with_ranks);
  const std::vector<std::size_t> order = best_first(*r);
  const auto mass = [&](std::size_t i) {
    return is_candidate(*r, i) && r->scores[i] < kAlwaysKept ? double(r->scores[i]) : 0.0;
  };
  double total = 0, held = 0;
  for (std::size_t i : order) total += mass(i);
  const auto least = static_cast<std::size_t>(
      std::max<std::int64_t>(1, (static_cast<std::int64_t>(r->blocks()) * r->row.floor + 500) / 1000));
  std::size_t count = 0;
  const auto goes_on = [&] {
    if (count == order.size() || !is_candidate(*r, order[count])) return false;
    return r->scores[order[count]] == kAlwaysKept || count < least || r->row.top_p == 1000 ||
           held * 1000 < total * r->row.top_p;
  };
  while (goes_on()) held += mass(order[count++]);
  const auto kept = r->kept_by("top_p");
  RC_ASSERT(kept == first_of(*r, count));
  RC_ASSERT(count_of(kept) == count && count >= 1u);
}

RC_GTEST_PROP(TopP, GrowsWithTheShareAndWithTheFloor, (bool with_ranks)) {
  const auto r = any_row(with_ranks);
  const auto small = r->kept_by("top_p");
  r->row.top_p = *rc::gen::inRange(r->row.top_p, 1001);
  r->row.floor = *rc::gen::inRange(r->row.floor, 1001);
  const auto large = r->kept_by("top_p");
  for (std::size_t i = 0; i < small.size(); ++i) RC_ASSERT(small[i] <= large[i]);
}

TEST(TopP, CutsAtTheShare) {
  const std::vector<float> scores = {0.0625f, 0.5f, 0.0f, 0.25f, 0.1875f};
  const auto kept = [&](std::int32_t top_p, std::int32_t floor) {
    std::vector<std::uint8_t> out(scores.size());
    find_chooser("top_p").choose({.scores = scores, .top_p = top_p, .floor = floor}, out);
    return out;
  };
  EXPECT_EQ(kept(1, 0), (std::vector<std::uint8_t>{0, 1, 0, 0, 0}));
  EXPECT_EQ(kept(500, 0), (std::vector<std::uint8_t>{0, 1, 0, 0, 0}));
  EXPECT_EQ(kept(750, 0), (std::vector<std::uint8_t>{0, 1, 0, 1, 0}));
  EXPECT_EQ(kept(800, 0), (std::vector<std::uint8_t>{0, 1, 0, 1, 1}));
  EXPECT_EQ(kept(950, 0), (std::vector<std::uint8_t>{1, 1, 0, 1, 1}));
  EXPECT_EQ(kept(1, 600), (std::vector<std::uint8_t>{0, 1, 0, 1, 1}));
  EXPECT_EQ(kept(1000, 0), (std::vector<std::uint8_t>{1, 1, 1, 1, 1}));
}

TEST(TopP, WhatIsAlwaysKeptTakesNoShare) {
  const std::vector<float> scores = {0.5f, kAlwaysKept, 0.25f, kAlwaysKept, 0.25f}, unjudged(5, kAlwaysKept);
  std::vector<std::uint8_t> kept(scores.size());
  find_chooser("top_p").choose({.scores = scores, .top_p = 400}, kept);
  EXPECT_EQ(kept, (std::vector<std::uint8_t>{1, 1, 0, 1, 0}));
  find_chooser("top_p").choose({.scores = unjudged, .top_p = 1}, kept);
  EXPECT_EQ(count_of(kept), 5u);
}

TEST(TopP, ARowWithoutMassKeepsItsFloor) {
  const std::vector<float> scores(20, 0.0f);
  std::vector<std::uint8_t> kept(scores.size());
  find_chooser("top_p").choose({.scores = scores, .top_p = 900, .floor = 250}, kept);
  EXPECT_EQ(count_of(kept), 5u);
}

RC_GTEST_PROP(RankThreshold, KeepsRanksUpToTheLevelAndNeverNothing, ()) {
  const auto r = any_row(true);
  if (*rc::gen::arbitrary<bool>()) r->row.scores = {};  // it needs none
  const auto kept = r->kept_by("rank_threshold");
  const int level = (255 * r->row.permille + 999) / 1000;
  const int lowest = *std::ranges::min_element(r->ranks);
  for (std::size_t i = 0; i < kept.size(); ++i)
    RC_ASSERT((kept[i] == 1) == (r->ranks[i] <= level || (lowest > level && r->ranks[i] == lowest)));
  RC_ASSERT(count_of(kept) >= 1u);
}

RC_GTEST_PROP(Choosers, DensityOneKeepsAll, ()) {
  const auto r = any_row(true);
  r->row.permille = r->row.top_p = 1000;
  r->row.envelope = kNeverRank;
  for (const Chooser& c : choosers()) RC_ASSERT(count_of(r->kept_by(c.name)) == r->blocks());
}

RC_GTEST_PROP(RankRest, IsTheOracleOrderWithoutTheKept, (bool with_ranks)) {
  const auto r = any_row(with_ranks);
  const auto kept = r->kept_by("top_k");
  std::vector<std::int32_t> rest = {7, 7}, want;
  rank_rest(r->row, kept, rest);
  for (std::size_t i : best_first(*r))
    if (!kept[i]) want.push_back(static_cast<std::int32_t>(i));
  RC_ASSERT(rest == want);
}

// Adding the first of the rest to a smaller choice gives the larger choice: augmentation and a larger density agree.
RC_GTEST_PROP(RankRest, ContinuesWhereTopKStops, ()) {
  const auto r = any_row(false);
  auto kept = r->kept_by("top_k");
  std::vector<std::int32_t> rest;
  rank_rest(r->row, kept, rest);
  r->row.permille = *rc::gen::inRange(r->row.permille, 1001);
  const auto larger = r->kept_by("top_k");
  for (std::size_t i = 0, more = count_of(larger) - count_of(kept); i < more; ++i)
    kept[static_cast<std::size_t>(rest[i])] = 1;
  RC_ASSERT(kept == larger);
}

TEST(RankRest, GoesByRankWhereThereAreNoScores) {
  const std::vector<std::uint8_t> ranks = {9, 3, 200, 4, 40};
  const ChooseRow row{.scores = {}, .permille = 20, .ranks = ranks};  // level 6
  std::vector<std::uint8_t> kept(ranks.size());
  find_chooser("rank_threshold").choose(row, kept);
  EXPECT_EQ(kept, (std::vector<std::uint8_t>{0, 1, 0, 1, 0}));
  std::vector<std::int32_t> rest;
  rank_rest(row, kept, rest);
  EXPECT_EQ(rest, (std::vector<std::int32_t>{0, 4, 2}));
}

TEST(Choosers, SayWhatTheyNeed) {
  EXPECT_TRUE(find_chooser("top_k").needs_scores && !find_chooser("top_k").needs_ranks);
  EXPECT_TRUE(find_chooser("top_p").needs_scores && !find_chooser("top_p").needs_ranks);
  EXPECT_TRUE(!find_chooser("rank_threshold").needs_scores && find_chooser("rank_threshold").needs_ranks);
  for (const Chooser& c : choosers()) EXPECT_EQ(c.needs_mass, std::string_view(c.name) == "top_p");
}

TEST(Choosers, UnknownNamesAreRefused) { EXPECT_THROW(find_chooser("top_q"), Error); }

}  // namespace
}  // namespace tulle
