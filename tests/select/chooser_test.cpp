#include "select/chooser.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tulle/error.hpp"

namespace tulle {
namespace {

std::vector<std::uint8_t> chosen(const std::vector<float>& scores, std::int32_t permille, std::uint64_t seed) {
  std::vector<std::uint8_t> kept(scores.size());
  find_chooser("top_k").choose({scores, permille, seed}, kept);
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

TEST(Choosers, UnknownNamesAreRefused) { EXPECT_THROW(find_chooser("top_q"), Error); }

}  // namespace
}  // namespace tulle
