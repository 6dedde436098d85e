#include "select/scorer.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "select/chooser.hpp"
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
  OrderKind order = OrderKind::kRaster;
  std::vector<std::pair<std::int64_t, std::int64_t>> hidden;  // of one sample
};

constexpr const char* kPooled = "pooled_softmax";

BlockPlaces places_of(const Case& c) {
  return place_blocks(make_order(c.order, c.sequence.grid), c.block_q, c.block_k);
}

std::vector<float> scores_of(const Case& c, const Tokens& q, const Tokens& k, std::int64_t q_begin, std::int64_t q_end,
                             const char* name = kPooled) {
  const Scorer& scorer = find_scorer(name);
  const BlockPlaces places = places_of(c);
  const ScoreData data = prepare_scores(scorer, {c.sequence, c.block_q, c.block_k, c.sub_block}, &places, q.view(),
                                        k.view(), c.hidden, Threads(1));
  const ScoreInput in = data.input(0, 0);
  std::vector<float> scores(static_cast<std::size_t>((q_end - q_begin) * in.k_blocks()));
  scorer.score(in, q_begin, q_end, scores.data());
  return scores;
}

std::int64_t video_blocks(const Case& c, std::int32_t block) {
  return BlockPartition{c.sequence, block}.video_blocks();
}

std::vector<float> scores_of(const Case& c, const Tokens& q, const Tokens& k, const char* name = kPooled) {
  return scores_of(c, q, k, 0, video_blocks(c, c.block_q), name);
}

bool hidden(const Case& c, std::int64_t t) {
  return !c.hidden.empty() && t >= c.hidden[0].first && t < c.hidden[0].second;
}

// What stands for some tokens, in double.
struct Stand {
  std::vector<double> value, variance;
  double likeness = 0, count = 0;
  std::int64_t block = -1;  // video block; -1: text
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::vector<double> token(const Case& c, const Tokens& x, std::int64_t t) {
  const float* row = x.view().row<float>(0, t, 0);
  return {row, row + c.head_dim};
}

void add_to(std::vector<double>& sum, const std::vector<double>& x, double factor) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * x[i];
}

Stand stand_for(const Case& c, const std::vector<std::vector<double>>& tokens) {
  const auto d = static_cast<std::size_t>(c.head_dim);
  Stand s{std::vector<double>(d), std::vector<double>(d), 0, double(tokens.size()), -1};
  for (const auto& x : tokens) add_to(s.value, x, 1 / s.count);
  for (const auto& x : tokens) {
    for (std::size_t i = 0; i < d; ++i) s.variance[i] += (x[i] - s.value[i]) * (x[i] - s.value[i]) / s.count;
    s.likeness += dot(x, s.value) / std::sqrt(dot(x, x) * dot(s.value, s.value)) / s.count;
  }
  return s;
}

// Sub-blocks of `sub` tokens; text included for keys, where hidden tokens do not count.
std::vector<Stand> stands(const Case& c, const Tokens& x, std::int32_t sub, std::int32_t block, bool keys,
                          bool middle = false) {
  std::vector<Stand> out;
  const BlockPartition subs{c.sequence, sub}, blocks{c.sequence, block};
  const std::int64_t first = blocks.block_of(c.sequence.video_begin());
  for (std::int64_t i = 0; i < subs.count(); ++i) {
    if (subs.is_text(i) && !keys) continue;
    std::vector<std::vector<double>> tokens;
    for (std::int64_t t = subs.begin(i); t < subs.end(i); ++t)
      if (!keys || !hidden(c, t)) tokens.push_back(token(c, x, t));
    if (tokens.empty()) continue;
    Stand s = stand_for(c, tokens);
    if (middle) s.value = tokens[tokens.size() / 2];
    if (!subs.is_text(i)) s.block = blocks.block_of(subs.begin(i)) - first;
    out.push_back(std::move(s));
  }
  return out;
}

struct Reference {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> scores;

  explicit Reference(const Case& c) : rows(video_blocks(c, c.block_q)), columns(video_blocks(c, c.block_k)) {
    scores.resize(static_cast<std::size_t>(rows * columns));
  }
  double& at(std::int64_t u, std::int64_t v) { return scores[static_cast<std::size_t>(u * columns + v)]; }
};

double logit(const Case& c, const Stand& q, const Stand& k, bool second_order = false) {
  double out = dot(q.value, k.value) / std::sqrt(double(c.head_dim));
  if (!second_order) return out;
  for (std::size_t i = 0; i < q.value.size(); ++i)
    out += q.value[i] * q.value[i] * k.variance[i] / double(c.head_dim) / 2;
  return out;
}

Reference softmax_reference(const Case& c, const std::vector<Stand>& queries, const std::vector<Stand>& keys,
                            bool second_order = false) {
  Reference out(c);
  std::vector<double> tokens(static_cast<std::size_t>(out.rows));
  for (const Stand& q : queries) tokens[static_cast<std::size_t>(q.block)] += q.count;
  for (const Stand& q : queries) {
    double top = -INFINITY, total = 0;
    for (const Stand& k : keys) top = std::max(top, logit(c, q, k, second_order));
    for (const Stand& k : keys) total += k.count * std::exp(logit(c, q, k, second_order) - top);
    const double share = q.count / tokens[static_cast<std::size_t>(q.block)];
    for (const Stand& k : keys)
      if (k.block >= 0)
        out.at(q.block, k.block) += share * k.count * std::exp(logit(c, q, k, second_order) - top) / total;
  }
  return out;
}

Reference lse_reference(const Case& c, const std::vector<Stand>& queries, const std::vector<Stand>& keys) {
  Reference lse(c);
  double top = -INFINITY;
  for (const Stand& q : queries)
    for (const Stand& k : keys) top = std::max(top, logit(c, q, k));
  for (const Stand& q : queries)
    for (const Stand& k : keys)
      if (k.block >= 0) lse.at(q.block, k.block) += q.count * k.count * std::exp(logit(c, q, k) - top);
  for (std::int64_t u = 0; u < lse.rows; ++u) {
    double best = 0;
    for (std::int64_t v = 0; v < lse.columns; ++v) best = std::max(best, lse.at(u, v));
    for (std::int64_t v = 0; v < lse.columns; ++v) lse.at(u, v) /= best;
  }
  return lse;
}

Reference sparge_reference(const Case& c, const Tokens& q, const Tokens& k) {
  const std::vector<Stand> queries = stands(c, q, c.block_q, c.block_q, false);
  const std::vector<Stand> all = stands(c, k, c.block_k, c.block_k, true);
  std::vector<Stand> alike;
  for (const Stand& key : all)
    if (key.block < 0 || key.likeness >= kAlike) alike.push_back(key);
  Reference out = softmax_reference(c, queries, alike);
  for (std::int64_t u = 0; u < out.rows; ++u) {
    const bool unlike = queries[static_cast<std::size_t>(u)].likeness < kAlike;
    for (const Stand& key : all)
      if (key.block >= 0 && (unlike || key.likeness < kAlike)) out.at(u, key.block) = kAlwaysKept;
  }
  return out;
}

// By pairs of tokens: each pair has the mass of its pair of clusters, over the tokens of the key's.
Reference clusters_reference(const Case& c, const Tokens& q, const Tokens& k) {
  const auto grouped = [&](const std::vector<Stand>& tokens, std::int64_t per_cluster) {
    std::vector<float> values;
    for (const Stand& t : tokens) values.insert(values.end(), t.value.begin(), t.value.end());
    const auto n = static_cast<std::int64_t>(tokens.size());
    return cluster_tokens(values, c.head_dim, (n + per_cluster - 1) / per_cluster);
  };
  std::vector<Stand> queries = stands(c, q, 1, c.block_q, false), keys = stands(c, k, 1, c.block_k, true);
  const auto to_centroids = [&](std::vector<Stand>& tokens, const Clusters& g) {
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto first = g.centroids.begin() + g.of_token[t] * c.head_dim;
      tokens[t].value.assign(first, first + c.head_dim);
    }
  };
  to_centroids(queries, grouped(queries, 64));
  to_centroids(keys, grouped(keys, 32));
  return softmax_reference(c, queries, keys);
}

Reference distance_reference(const Case& c, bool radial) {
  Reference out(c);
  const TokenOrder order = make_order(c.order, c.sequence.grid);
  const auto centre = [&](std::int64_t i, std::int32_t block) {
    std::array<double, 4> sum{};
    const std::int64_t begin = i * block, end = std::min(c.sequence.grid.tokens(), begin + block);
    for (std::int64_t t = begin; t < end; ++t) {
      const int r = order.raster_of_memory[static_cast<std::size_t>(t)], w = c.sequence.grid.width,
                h = c.sequence.grid.height;
      const std::array<double, 4> add = {double(r / w / h), double(r / w % h), double(r % w), double(r / w / h == 0)};
      for (std::size_t a = 0; a < 4; ++a) sum[a] += add[a] / double(end - begin);
    }
    return sum;
  };
  for (std::int64_t u = 0; u < out.rows; ++u)
    for (std::int64_t v = 0; v < out.columns; ++v) {
      const auto a = centre(u, c.block_q), b = centre(v, c.block_k);
      const double f = std::abs(a[0] - b[0]), y = std::abs(a[1] - b[1]), x = std::abs(a[2] - b[2]);
      const TokenGrid& g = c.sequence.grid;
      if (radial) {
        const double window = (1 + std::max(y, x)) * std::exp2(std::floor(std::log2(std::max(1.0, f + 1e-4))));
        out.at(u, v) = 1 / (b[3] > 0 ? std::min(window, 2 / b[3]) : window);
      } else {
        const double nf = f / g.frames, ny = y / g.height, nx = x / g.width;
        out.at(u, v) = 1 / (1 + std::max({nf, ny, nx}) + (nf + ny + nx) / 16);
      }
    }
  return out;
}

std::int32_t quarter(std::int32_t block) {
  for (std::int32_t count : {4, 3, 2})
    if (block % count == 0) return block / count;
  return block;
}

// Every scorer by its definition, in double.
Reference reference(const Case& c, const Tokens& q, const Tokens& k, std::string_view name) {
  const auto keys = [&](std::int32_t sub, bool middle = false) { return stands(c, k, sub, c.block_k, true, middle); };
  const auto queries = [&](std::int32_t sub, bool middle = false) {
    return stands(c, q, sub, c.block_q, false, middle);
  };
  if (name == "query_mass") return softmax_reference(c, queries(1), keys(c.sub_block));
  if (name == "second_order") return softmax_reference(c, queries(c.sub_block), keys(c.sub_block), true);
  if (name == "sub_block_lse") return lse_reference(c, queries(c.sub_block), keys(c.sub_block));
  if (name == "representatives")
    return lse_reference(c, queries(quarter(c.block_q), true), keys(quarter(c.block_k), true));
  if (name == "sparge") return sparge_reference(c, q, k);
  if (name == "clusters") return clusters_reference(c, q, k);
  if (name == "window" || name == "radial") return distance_reference(c, name == "radial");
  EXPECT_EQ(name, kPooled) << "no definition of this scorer stands in the tests";
  return softmax_reference(c, queries(c.sub_block), keys(c.sub_block));
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
  c.order = *rc::gen::element(OrderKind::kRaster, OrderKind::kHilbert);
  if (c.sequence.text_tokens > 1) {
    const std::int64_t begin = c.sequence.placement == TextPlacement::kPrefix ? 0 : c.sequence.video_end();
    c.hidden = {{begin + *rc::gen::inRange<std::int64_t>(1, c.sequence.text_tokens), begin + c.sequence.text_tokens}};
  }
  return c;
}

Tokens tokens_for(const Case& c, std::uint32_t seed) {
  return noise({1, c.sequence.tokens(), 1, c.head_dim}, seed, 2.0f);
}

// Tokens that are alike and tokens that are not, so that both sides of a guard occur.
Tokens mixed_tokens_for(const Case& c, std::uint32_t seed) {
  Tokens t = tokens_for(c, seed);
  const Tokens common = noise({1, 1, 1, c.head_dim}, seed + 77, 2.0f);
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    const std::size_t place = i / static_cast<std::size_t>(c.head_dim);
    if (place * 2 < t.values.size() / static_cast<std::size_t>(c.head_dim))
      t.values[i] = t.values[i] / 4 + common.values[i % static_cast<std::size_t>(c.head_dim)];
  }
  return t;
}

bool guard_is_close(const Case& c, const Tokens& q, const Tokens& k) {
  std::vector<Stand> all = stands(c, q, c.block_q, c.block_q, false);
  for (Stand& s : stands(c, k, c.block_k, c.block_k, true)) all.push_back(std::move(s));
  return std::ranges::any_of(all, [](const Stand& s) { return std::abs(s.likeness - kAlike) < 1e-4; });
}

RC_GTEST_PROP(Scorers, AreTheirDefinitions, ()) {
  const Case c = any_case();
  const auto seed = *rc::gen::inRange<std::uint32_t>(0, 1000000);
  const Tokens q = mixed_tokens_for(c, seed), k = mixed_tokens_for(c, seed + 1);
  RC_PRE(!guard_is_close(c, q, k));
  for (const Scorer& s : scorers()) {
    const std::vector<float> got = scores_of(c, q, k, s.name);
    const std::vector<double> want = reference(c, q, k, s.name).scores;
    RC_ASSERT(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::abs(got[i] - want[i]) <= 5e-5 * want[i] + 1e-12) continue;
      RC_FAIL(std::string(s.name) + " at " + std::to_string(i) + ": " + std::to_string(got[i]) + " is not " +
              std::to_string(want[i]));
    }
  }
}

RC_GTEST_PROP(Scorers, RowsDoNotDependOnTheirNeighbours, ()) {
  const Case c = any_case();
  const Tokens q = mixed_tokens_for(c, 1), k = mixed_tokens_for(c, 2);
  const std::int64_t rows = video_blocks(c, c.block_q), columns = video_blocks(c, c.block_k);
  const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, rows);
  const std::int64_t end = *rc::gen::inRange<std::int64_t>(row + 1, rows + 1);
  for (const Scorer& s : scorers()) {
    const std::vector<float> whole = scores_of(c, q, k, s.name), part = scores_of(c, q, k, row, end, s.name);
    const auto first = whole.begin() + row * columns;
    RC_ASSERT(std::equal(part.begin(), part.end(), first, first + (end - row) * columns));
  }
}

RC_GTEST_PROP(Scorers, AreSharesOrAlwaysKept, ()) {
  const Case c = any_case();
  const Tokens q = mixed_tokens_for(c, 5), k = mixed_tokens_for(c, 6);
  const auto columns = static_cast<std::size_t>(video_blocks(c, c.block_k));
  for (const Scorer& s : scorers()) {
    const std::vector<float> got = scores_of(c, q, k, s.name);
    for (float score : got) RC_ASSERT(score >= 0.0f && (score <= 1 + 1e-5 || score == kAlwaysKept));
    const auto add_mass = [](double sum, float score) { return score == kAlwaysKept ? sum : sum + score; };
    for (auto at = got.begin(); s.is_mass && at != got.end(); at += static_cast<std::ptrdiff_t>(columns))
      RC_ASSERT(std::accumulate(at, at + static_cast<std::ptrdiff_t>(columns), 0.0, add_mass) <= 1 + 1e-5);
  }
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

TEST(Scorers, HiddenTextChangesNothingWhateverItHolds) {
  Case c;
  c.sequence = {{2, 4, 5}, 20, TextPlacement::kSuffix};
  c.hidden = {{46, 60}};
  const Tokens q = tokens_for(c, 5);
  Tokens k = tokens_for(c, 6);
  const Tokens clean = k;
  for (std::int64_t t = 46; t < 60; ++t) k.values[static_cast<std::size_t>(t * c.head_dim)] = NAN;
  for (const Scorer& s : scorers()) EXPECT_EQ(scores_of(c, q, k, s.name), scores_of(c, q, clean, s.name)) << s.name;
}

TEST(Scorers, NotFiniteInputGivesNotFiniteScores) {
  Case c;
  c.sequence.grid = {2, 4, 5};
  for (float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    const Tokens q = tokens_for(c, 7);
    Tokens k = tokens_for(c, 8);
    for (std::int64_t i = 0; i < c.head_dim; ++i) k.values[static_cast<std::size_t>(13 * c.head_dim + i)] = bad;
    for (const Scorer& s : scorers()) {
      // Token 13 is one of the representatives. Finite numbers may have finite scores where more tokens are averaged.
      if (!s.needs_tokens() || (std::isfinite(bad) && s.name != std::string_view(kPooled))) continue;
      EXPECT_FALSE(std::isfinite(scores_of(c, q, k, s.name)[0])) << s.name << " " << bad;
    }
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

TEST(SubBlockLse, SharpRowsAndStrongTextStayFinite) {
  Case c;
  c.sequence = {{2, 4, 5}, 8, TextPlacement::kSuffix};
  const Tokens q = noise({1, 48, 1, c.head_dim}, 9, 100.0f);
  Tokens k = noise({1, 48, 1, c.head_dim}, 10, 100.0f);
  for (std::size_t i = static_cast<std::size_t>(40 * c.head_dim); i < k.values.size(); ++i) k.values[i] *= 50;
  const std::vector<float> scores = scores_of(c, q, k, "sub_block_lse");
  for (auto row = scores.begin(); row != scores.end(); row += 5) EXPECT_EQ(*std::max_element(row, row + 5), 1.0f);
}

// With one token a sub-block there is nothing to estimate: all three are the true mass.
TEST(Scorers, SingleTokensAreExact) {
  Case c;
  c.sequence = {{2, 4, 5}, 7, TextPlacement::kPrefix};
  c.sub_block = 1;
  const Tokens q = tokens_for(c, 11), k = tokens_for(c, 12);
  const std::vector<float> pooled = scores_of(c, q, k);
  EXPECT_EQ(scores_of(c, q, k, "query_mass"), pooled);
  EXPECT_EQ(scores_of(c, q, k, "second_order"), pooled);
}

TEST(Sparge, GuardsKeepUnlikeBlocks) {
  Case c;
  c.sequence.grid = {1, 4, 8};  // 4 blocks
  Tokens q = tokens_for(c, 13), k = tokens_for(c, 14);
  std::fill(q.values.begin(), q.values.end(), 0.5f);
  std::fill(k.values.begin(), k.values.end(), 0.5f);
  for (std::int64_t t = 8; t < 16; ++t)  // key block 1 and query block 2: opposite tokens
    for (std::int64_t i = 0; i < c.head_dim; ++i) {
      k.values[static_cast<std::size_t>(t * c.head_dim + i)] = t % 2 ? 1.0f : -1.0f;
      q.values[static_cast<std::size_t>((t + 8) * c.head_dim + i)] = t % 2 ? 1.0f : -1.0f;
    }
  const std::vector<float> scores = scores_of(c, q, k, "sparge");
  for (int u : {0, 1, 3}) {
    EXPECT_FLOAT_EQ(scores[u * 4 + 0], 1.0f / 3);
    EXPECT_EQ(scores[u * 4 + 1], kAlwaysKept);
  }
  for (int v = 0; v < 4; ++v) EXPECT_EQ(scores[2 * 4 + v], kAlwaysKept);
}

TEST(Clusters, TokensBelongToTheNearestCentroid) {
  const std::int64_t d = 12, n = 300;
  const Tokens x = noise({1, n, 1, d}, 21);
  const Clusters c = cluster_tokens(x.values, d, 7);
  std::vector<std::int32_t> tokens(7);
  double within = 0, around_mean = 0;
  std::vector<double> mean(static_cast<std::size_t>(d));
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t i = 0; i < d; ++i) mean[i] += x.values[t * d + i] / double(n);
  for (std::int64_t t = 0; t < n; ++t) {
    std::vector<double> distance(7);
    for (std::int64_t g = 0; g < 7; ++g)
      for (std::int64_t i = 0; i < d; ++i)
        distance[g] += std::pow(double(x.values[t * d + i]) - c.centroids[g * d + i], 2);
    EXPECT_LE(distance[c.of_token[t]], *std::ranges::min_element(distance) + 1e-4);
    ++tokens[c.of_token[t]];
    within += distance[c.of_token[t]];
    for (std::int64_t i = 0; i < d; ++i) around_mean += std::pow(double(x.values[t * d + i]) - mean[i], 2);
  }
  EXPECT_EQ(tokens, c.tokens);
  EXPECT_LT(within, 0.9 * around_mean);
}

TEST(Clusters, FindGroupsThatAreThere) {
  const std::int64_t d = 16, n = 256;
  Tokens x = noise({1, n, 1, d}, 22, 0.1f);
  for (std::int64_t t = 0; t < n; ++t) x.values[t * d + t * 5 / n] += 10;  // 5 groups
  const Clusters c = cluster_tokens(x.values, d, 5);
  for (std::int64_t t = 1; t < n; ++t) EXPECT_EQ(c.of_token[t] == c.of_token[t - 1], t * 5 / n == (t - 1) * 5 / n) << t;
}

// What is kept at any density is one window: a pair that is nearer in every way never scores less.
RC_GTEST_PROP(Distance, NearerNeverScoresLess, ()) {
  Case c = any_case();
  c.block_q = c.block_k = 1;
  c.sequence.text_tokens = 0;
  c.hidden = {};
  const BlockPlaces p = places_of(c);
  const auto n = c.sequence.grid.tokens();
  const auto u = *rc::gen::inRange<std::int64_t>(0, n), v = *rc::gen::inRange<std::int64_t>(0, n),
             w = *rc::gen::inRange<std::int64_t>(0, n);
  const auto away = [&](std::int64_t i) {
    const BlockPlace &a = p.q[u], &b = p.k[i];
    return std::array{std::abs(a.frame - b.frame), std::abs(a.y - b.y), std::abs(a.x - b.x)};
  };
  const auto near = away(v), far = away(w);
  RC_PRE(near[0] <= far[0] && near[1] <= far[1] && near[2] <= far[2]);
  const std::vector<float> window = scores_of(c, {}, {}, "window"), radial = scores_of(c, {}, {}, "radial");
  RC_ASSERT(window[u * n + v] >= window[u * n + w]);
  if (p.k[w].first_frame == 0) RC_ASSERT(radial[u * n + v] >= radial[u * n + w]);
}

TEST(Radial, HalvesItsWindowAsFramesDoubleAndKeepsTheFirstFrame) {
  Case c;
  c.sequence.grid = {9, 8, 8};
  c.block_q = c.block_k = 1;
  const std::vector<float> scores = scores_of(c, {}, {}, "radial");
  const auto score = [&](int f, int x) { return scores[(1 * 64 + 0) * 576 + f * 64 + x]; };  // from frame 1, x = 0
  const auto reach = [&](int f, float window) {
    int x = 0;
    while (x < 8 && score(f, x) >= 1 / window) ++x;
    return x;
  };
  EXPECT_EQ(reach(1, 8), 8);
  EXPECT_EQ(reach(2, 8), 8);
  EXPECT_EQ(reach(3, 8), 4);
  EXPECT_EQ(reach(5, 8), 2);
  EXPECT_EQ(reach(8, 8), 2);
  EXPECT_EQ(reach(0, 2), 8);  // the sink is whole before the window is 3 wide
}

// Lane counts from 4 to 16 and targets with and without fused multiply-add must agree in every bit.
TEST(Scorers, AllInstructionSetsGiveTheSameBits) {
  Case c;
  c.sequence = {{3, 7, 11}, 10, TextPlacement::kPrefix};
  c.head_dim = 64;
  const Tokens q = mixed_tokens_for(c, 11), k = mixed_tokens_for(c, 12);
  int tried = 0;
  for (const Scorer& s : scorers()) {
    const std::vector<float> best = scores_of(c, q, k, s.name);
    const std::int64_t supported = hwy::SupportedTargets();
    for (std::int64_t rest = supported; rest != 0; rest &= rest - 1, ++tried) {
      hwy::SetSupportedTargetsForTest(rest & -rest);
      EXPECT_EQ(scores_of(c, q, k, s.name), best) << s.name << " " << hwy::TargetName(rest & -rest);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
  EXPECT_GE(tried, static_cast<int>(scorers().size()));
}

TEST(Scorers, NeedTheirPlaces) {
  const Scorer& window = find_scorer("window");
  const Sequence s{{2, 4, 5}, 0, TextPlacement::kSuffix};
  const BlockPlaces other = place_blocks(make_order(OrderKind::kRaster, {2, 5, 4}), 8, 8);
  EXPECT_FALSE(window.needs_tokens());
  EXPECT_THROW(prepare_scores(window, {s, 8, 8, 4}, nullptr, {}, {}, {}, Threads(1)), Error);
  EXPECT_THROW(prepare_scores(window, {s, 8, 8, 4}, &other, {}, {}, {}, Threads(1)), Error);
  EXPECT_THROW(place_blocks(make_order(OrderKind::kRaster, {2, 5, 4}), 0, 8), Error);
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
