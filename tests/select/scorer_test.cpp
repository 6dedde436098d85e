#include "select/scorer.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "select_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::noise;
using testing_data::Tokens;

struct Case {
  Sequence sequence;
  std::int32_t block_q = 8, block_k = 8, sub_block = 4;
  std::int64_t head_dim = 16;
  std::vector<std::pair<std::int64_t, std::int64_t>> hidden;  // of one sample
};

std::vector<float> scores_of(const Case& c, const Tokens& q, const Tokens& k, std::int64_t q_begin,
                             std::int64_t q_end) {
  const Threads one(1);
  const BlockPartition subs{c.sequence, c.sub_block};
  const PooledTokens queries = pool_tokens(q.view(), subs, {}, one), keys = pool_tokens(k.view(), subs, c.hidden, one);
  const KeyPanels panels = pack_keys(keys, 0, 0);
  const ScoreInput in = make_score_input(queries, panels, subs, 0, 0, c.block_q, c.block_k);
  std::vector<float> scores(static_cast<std::size_t>((q_end - q_begin) * in.k_blocks()));
  find_scorer("pooled_softmax").score(in, q_begin, q_end, scores.data());
  return scores;
}

std::int64_t video_blocks(const Case& c, std::int32_t block) {
  return BlockPartition{c.sequence, block}.video_blocks();
}

std::vector<float> scores_of(const Case& c, const Tokens& q, const Tokens& k) {
  return scores_of(c, q, k, 0, video_blocks(c, c.block_q));
}

bool hidden(const Case& c, std::int64_t t) {
  return !c.hidden.empty() && t >= c.hidden[0].first && t < c.hidden[0].second;
}

// Mean of the seen tokens of a sub-block, in double.
struct Mean {
  std::vector<double> value;
  double count = 0;
};

Mean mean_of(const Case& c, const Tokens& x, const BlockPartition& subs, std::int64_t sub, bool keys) {
  Mean m{std::vector<double>(static_cast<std::size_t>(c.head_dim)), 0};
  for (std::int64_t t = subs.begin(sub); t < subs.end(sub); ++t) {
    if (keys && hidden(c, t)) continue;
    ++m.count;
    for (std::size_t i = 0; i < m.value.size(); ++i) m.value[i] += x.view().row<float>(0, t, 0)[i];
  }
  for (double& v : m.value) v /= std::max(1.0, m.count);
  return m;
}

// The same score by its definition, in double, sub-block by sub-block.
std::vector<double> reference_scores(const Case& c, const Tokens& q, const Tokens& k) {
  const BlockPartition subs{c.sequence, c.sub_block}, qb{c.sequence, c.block_q}, kb{c.sequence, c.block_k};
  const std::int64_t rows = qb.video_blocks(), columns = kb.video_blocks();
  std::vector<double> scores(static_cast<std::size_t>(rows * columns));
  const std::int64_t first_q = qb.block_of(c.sequence.video_begin()), first_k = kb.block_of(c.sequence.video_begin());
  for (std::int64_t i = 0; i < subs.count(); ++i) {
    if (subs.is_text(i)) continue;
    const Mean query = mean_of(c, q, subs, i, false);
    std::vector<double> mass;
    double total = 0;
    for (std::int64_t j = 0; j < subs.count(); ++j) {
      const Mean key = mean_of(c, k, subs, j, true);
      double dot = 0;
      for (std::size_t t = 0; t < key.value.size(); ++t) dot += query.value[t] * key.value[t];
      mass.push_back(key.count > 0 ? key.count * std::exp(dot / std::sqrt(double(c.head_dim))) : 0);
      total += mass.back();
    }
    const std::int64_t u = qb.block_of(subs.begin(i));
    for (std::int64_t j = 0; j < subs.count(); ++j) {
      if (subs.is_text(j)) continue;
      const std::int64_t v = kb.block_of(subs.begin(j));
      scores[static_cast<std::size_t>((u - first_q) * columns + v - first_k)] +=
          query.count / double(qb.size(u)) * mass[static_cast<std::size_t>(j)] / total;
    }
  }
  return scores;
}

Case any_case() {
  Case c;
  c.sequence.grid = {*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 9), *rc::gen::inRange(1, 9)};
  c.sequence.text_tokens = *rc::gen::element(0, 1, 7, 13, 30);
  c.sequence.placement = *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix);
  c.sub_block = *rc::gen::inRange(1, 6);
  c.block_q = c.sub_block * *rc::gen::inRange(1, 7);
  c.block_k = c.sub_block * *rc::gen::inRange(1, 7);
  c.head_dim = *rc::gen::element(8, 16, 24);
  if (c.sequence.text_tokens > 1) {
    const std::int64_t begin = c.sequence.placement == TextPlacement::kPrefix ? 0 : c.sequence.video_end();
    c.hidden = {{begin + *rc::gen::inRange<std::int64_t>(1, c.sequence.text_tokens), begin + c.sequence.text_tokens}};
  }
  return c;
}

Tokens tokens_for(const Case& c, std::uint32_t seed) {
  return noise({1, c.sequence.tokens(), 1, c.head_dim}, seed, 2.0f);
}

RC_GTEST_PROP(PooledSoftmax, IsItsDefinition, ()) {
  const Case c = any_case();
  const auto seed = *rc::gen::inRange<std::uint32_t>(0, 1000000);
  const Tokens q = tokens_for(c, seed), k = tokens_for(c, seed + 1);
  const std::vector<float> got = scores_of(c, q, k);
  const std::vector<double> want = reference_scores(c, q, k);
  RC_ASSERT(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) RC_ASSERT(std::abs(got[i] - want[i]) <= 2e-5 * want[i] + 1e-12);
}

RC_GTEST_PROP(PooledSoftmax, RowsDoNotDependOnTheirNeighbours, ()) {
  const Case c = any_case();
  const Tokens q = tokens_for(c, 1), k = tokens_for(c, 2);
  const std::vector<float> whole = scores_of(c, q, k);
  const std::int64_t rows = video_blocks(c, c.block_q), columns = video_blocks(c, c.block_k);
  const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, rows);
  const std::vector<float> one = scores_of(c, q, k, row, row + 1);
  for (std::int64_t v = 0; v < columns; ++v) RC_ASSERT(one[v] == whole[row * columns + v]);
}

TEST(PooledSoftmax, EqualKeysWeighAsManyTokensAsTheyAre) {
  Case c;
  c.sequence.grid = {1, 3, 7};  // blocks of 8, 8, 5; sub-blocks of 4, 4, 4, 4, 4, 1
  const Tokens q = tokens_for(c, 3);
  Tokens k = tokens_for(c, 4);
  std::fill(k.values.begin(), k.values.end(), 0.25f);
  const std::vector<float> scores = scores_of(c, q, k);
  for (int u = 0; u < 3; ++u) {
    EXPECT_NEAR(scores[u * 3 + 0], 8.0 / 21, 1e-6);
    EXPECT_NEAR(scores[u * 3 + 2], 5.0 / 21, 1e-6);
  }
}

TEST(PooledSoftmax, HiddenTextChangesNothingWhateverItHolds) {
  Case c;
  c.sequence = {{2, 4, 5}, 20, TextPlacement::kSuffix};
  c.hidden = {{46, 60}};
  const Tokens q = tokens_for(c, 5);
  Tokens k = tokens_for(c, 6);
  const std::vector<float> before = scores_of(c, q, k);
  for (std::int64_t t = 46; t < 60; ++t) k.values[static_cast<std::size_t>(t * c.head_dim)] = NAN;
  EXPECT_EQ(scores_of(c, q, k), before);
}

TEST(PooledSoftmax, NotFiniteInputGivesNotFiniteScores) {
  Case c;
  c.sequence.grid = {2, 4, 5};
  for (float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    const Tokens q = tokens_for(c, 7);
    Tokens k = tokens_for(c, 8);
    for (std::int64_t i = 0; i < c.head_dim; ++i) k.values[static_cast<std::size_t>(13 * c.head_dim + i)] = bad;
    EXPECT_FALSE(std::isfinite(scores_of(c, q, k)[0])) << bad;
  }
}

TEST(PooledSoftmax, SharpRowsStayFinite) {
  Case c;
  c.sequence.grid = {2, 4, 5};
  const Tokens q = noise({1, 40, 1, c.head_dim}, 9, 300.0f), k = noise({1, 40, 1, c.head_dim}, 10, 300.0f);
  const std::vector<float> scores = scores_of(c, q, k);
  for (int u = 0; u < 5; ++u) {
    float sum = 0;
    for (int v = 0; v < 5; ++v) sum += scores[u * 5 + v];
    EXPECT_NEAR(sum, 1.0f, 1e-5f);
  }
}

// Lane counts from 4 to 16 and targets with and without fused multiply-add must agree in every bit.
TEST(PooledSoftmax, AllInstructionSetsGiveTheSameBits) {
  Case c;
  c.sequence = {{3, 7, 11}, 10, TextPlacement::kPrefix};
  c.head_dim = 64;
  const Tokens q = tokens_for(c, 11), k = tokens_for(c, 12);
  const std::vector<float> best = scores_of(c, q, k);
  int tried = 0;
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t rest = supported; rest != 0; rest &= rest - 1, ++tried) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    EXPECT_EQ(scores_of(c, q, k), best) << hwy::TargetName(rest & -rest);
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(tried, 1);
}

TEST(Pool, RefusesWhatDoesNotFit) {
  const Threads one(1);
  const Tokens x = noise({2, 50, 1, 8}, 1);
  const BlockPartition subs{{{1, 4, 10}, 10, TextPlacement::kSuffix}, 4};
  const std::vector<std::pair<std::int64_t, std::int64_t>> video = {{0, 0}, {39, 45}}, one_range = {{45, 50}};
  EXPECT_NO_THROW(pool_tokens(x.view(), subs, {}, one));
  EXPECT_THROW(pool_tokens(x.view(), subs, video, one), Error);
  EXPECT_THROW(pool_tokens(x.view(), subs, one_range, one), Error);
  EXPECT_THROW(pool_tokens(x.view(), {{{1, 4, 10}, 9, TextPlacement::kSuffix}, 4}, {}, one), Error);
  ConstTensorView half = x.view();
  half.dtype = DType::kF16;
  EXPECT_THROW(pool_tokens(half, subs, {}, one), Error);
}

TEST(Scorers, UnknownNamesAreRefused) { EXPECT_THROW(find_scorer("pooled"), Error); }

}  // namespace
}  // namespace tulle
