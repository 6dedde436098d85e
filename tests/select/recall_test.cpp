// Recall: the share of true softmax mass that chosen blocks hold, and a lower bound for it that needs no true mass.
//
// One query block, n tokens in sub-blocks i of n_i; key sub-blocks j of m_j tokens. l_ab = scale * q_a . k_b are the
// logits of tokens; those of pooled sub-blocks are their means, s_ij = mean l_ab over a in i, b in j. With
// P_i(j) = m_j e^s_ij / sum_j' m_j' e^s_ij' the score of a key block v and its true mass are
//     S_v = sum_i n_i / n * sum_(j in v) P_i(j),       W_v = sum_i n_i / n * sum_(j in v) mean_(a in i) W_a(j),
// W_a(j) the softmax mass of query a on the tokens of j.
//
// Keys. Over b in j the logits l_ab have a mean t_aj and lie in an interval of width D_aj. By Jensen and by Hoeffding's
// lemma log mean_b e^l_ab = t_aj + x_aj with 0 <= x_aj <= D_aj^2 / 8.
// Normalisers. Put t_aj = s_ij + y_aj. Then W_a(j) = P_i(j) e^(y_aj + x_aj - g_a), where g_a = log sum_j P_i(j)
// e^(y_aj + x_aj) is the same for all j. It grows with every x_aj, so it lies between its values at x = 0 and at
// x = D^2 / 8: in c_a - h_a .. c_a + h_a.
// Queries. y_aj has mean 0 over a in i, so z_aj = y_aj - c_a has mean -c_i, c_i the mean of the c_a. Let z_aj lie in an
// interval of width R_ij over a. Once more by Jensen and Hoeffding mean_a e^z_aj is in e^-c_i * [1, e^(R_ij^2 / 8)].
// Together:
//     -c_i - max_a h_a  <=  log mean_a W_a(j) - log P_i(j)  <=  -c_i + R_ij^2 / 8 + max_a (D_aj^2 / 8 + h_a).
// W_v / S_v is a weighted mean of such ratios over i and j in v, so log W_v - log S_v lies in [low_v, high_v], the
// smallest of the left sides and the largest of the right sides. All of it is of second order in the spreads inside
// pairs of sub-blocks (c_a too, on average over a), which is why sub-blocks and a local order help.
//
// Bounds. (1) With 2 eps = max_v high_v - min_v low_v the k best blocks by S hold at least e^(-2 eps) of what the k
// best by W hold: a block kept in the place of another has at least e^(-2 eps) of its mass. And those hold at least
// k e^D / (k e^D + M - k) of the whole, D the gap between the k-th and the (k+1)-th log W (the shape of the recall
// bound in Hu et al., "DFSAttn", 2026). (2) For any choice: with A = sum of S_v e^low_v over the kept and B = sum of
// S_v e^high_v over the dropped blocks, recall >= A / (A + B), for kept and dropped mass are all there is.
#include "select/recall.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "select/chooser.hpp"
#include "select/head_mass.hpp"
#include "select/scorer.hpp"
#include "select_data.hpp"
#include "structured.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::HeadKind;
using testing_data::make_structured;
using testing_data::noise;
using testing_data::Structured;
using testing_data::Tokens;
using testing_data::waves;

constexpr std::int32_t kBlock = 16, kSub = 4;

struct Sample {
  Sequence sequence;
  OrderKind order = OrderKind::kRaster;
  Tokens q, k;
  std::int32_t sub = kSub;

  BlockPartition blocks() const { return {sequence, kBlock}; }
};

Sample make_sample(const TokenGrid& grid, OrderKind order_kind, float sharpness, float noise_share,
                   std::uint32_t seed) {
  Sample s{{grid, 0, TextPlacement::kSuffix}, order_kind, {}, {}};
  const TokenOrder order = make_order(order_kind, grid);
  const std::array<std::int64_t, 4> shape = {1, grid.tokens(), 1, 16};
  s.q = waves(order, s.sequence, shape, seed, sharpness, noise_share, seed + 1);
  s.k = waves(order, s.sequence, shape, seed, sharpness, noise_share, seed + 2);
  return s;
}

Sample sample_of(const Structured& s) { return {s.sequence, s.order.kind, s.q, s.k}; }

using Rows = std::vector<std::vector<double>>;

Rows logits_of(const Sample& s) {
  const std::int64_t n = s.q.shape[1], d = s.q.shape[3];
  Rows out(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(n)));
  for (std::int64_t a = 0; a < n; ++a)
    for (std::int64_t b = 0; b < n; ++b) {
      const float *q = s.q.values.data() + a * d, *k = s.k.values.data() + b * d;
      out[a][b] = std::inner_product(q, q + d, k, 0.0) / std::sqrt(double(d));
    }
  return out;
}

double log_sum_exp(const std::vector<double>& x) {
  const double top = *std::ranges::max_element(x);
  double sum = 0;
  for (double v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

// log W_a(block): [tokens][blocks of `p`].
Rows log_token_mass(const Rows& logits, const BlockPartition& p) {
  Rows out;
  for (const auto& row : logits) {
    const double total = log_sum_exp(row);
    auto& masses = out.emplace_back();
    for (std::int64_t v = 0; v < p.count(); ++v)
      masses.push_back(log_sum_exp({row.begin() + p.begin(v), row.begin() + p.end(v)}) - total);
  }
  return out;
}

// True mean mass [q block][k block], in double, token by token.
Rows true_mass(const Sample& s) {
  const BlockPartition p = s.blocks();
  const Rows tokens = log_token_mass(logits_of(s), p);
  Rows out(static_cast<std::size_t>(p.count()), std::vector<double>(static_cast<std::size_t>(p.count())));
  for (std::int64_t a = 0; a < p.tokens(); ++a)
    for (std::int64_t v = 0; v < p.count(); ++v)
      out[p.block_of(a)][v] += std::exp(tokens[a][v]) / double(p.size(p.block_of(a)));
  return out;
}

// What the bound says of one query block; all [key blocks].
struct RowBound {
  std::vector<double> log_score, low, high;
};

// The spreads of one query sub-block; a counts its tokens, j all key sub-blocks.
struct Spreads {
  std::vector<double> log_p;  // [j]
  Rows y, x_most;             // [a][j]: y_aj and D_aj^2 / 8
  std::vector<double> c, h;   // [a]
};

Spreads spreads_of(const Rows& logits, const BlockPartition& subs, std::int64_t i) {
  const auto keys = static_cast<std::size_t>(subs.count());
  const double queries = double(subs.size(i));
  Spreads out{std::vector<double>(keys), {}, {}, {}, {}};
  for (std::int64_t a = subs.begin(i); a < subs.end(i); ++a) {
    auto& mean = out.y.emplace_back();
    auto& most = out.x_most.emplace_back();
    for (std::int64_t j = 0; j < subs.count(); ++j) {
      const auto first = logits[a].begin() + subs.begin(j), last = logits[a].begin() + subs.end(j);
      const auto [least, largest] = std::minmax_element(first, last);
      mean.push_back(std::accumulate(first, last, 0.0) / double(subs.size(j)));
      most.push_back((*largest - *least) * (*largest - *least) / 8);
      out.log_p[j] += mean.back() / queries;  // s_ij so far
    }
  }
  for (auto& row : out.y)
    for (std::size_t j = 0; j < keys; ++j) row[j] -= out.log_p[j];
  for (std::size_t j = 0; j < keys; ++j) out.log_p[j] += std::log(double(subs.size(static_cast<std::int64_t>(j))));
  const double total = log_sum_exp(out.log_p);
  for (double& p : out.log_p) p -= total;
  for (std::size_t a = 0; a < out.y.size(); ++a) {
    std::vector<double> least(keys), most(keys);
    for (std::size_t j = 0; j < keys; ++j) {
      least[j] = out.log_p[j] + out.y[a][j];
      most[j] = least[j] + out.x_most[a][j];
    }
    const double from = log_sum_exp(least), to = log_sum_exp(most);
    out.c.push_back((from + to) / 2);
    out.h.push_back((to - from) / 2);
  }
  return out;
}

// Widens [low, high] by what holds for key sub-block j.
void widen(const Spreads& s, std::size_t j, double& low, double& high) {
  double z_least = INFINITY, z_most = -INFINITY, above = 0, c = 0;
  for (std::size_t a = 0; a < s.y.size(); ++a) {
    z_least = std::min(z_least, s.y[a][j] - s.c[a]);
    z_most = std::max(z_most, s.y[a][j] - s.c[a]);
    above = std::max(above, s.x_most[a][j] + s.h[a]);
    c += s.c[a] / double(s.c.size());
  }
  low = std::min(low, -c - *std::ranges::max_element(s.h));
  high = std::max(high, -c + (z_most - z_least) * (z_most - z_least) / 8 + above);
}

RowBound bound_of(const Sample& s, const Rows& logits, std::int64_t u) {
  const BlockPartition p = s.blocks(), subs{s.sequence, s.sub};
  const auto blocks = static_cast<std::size_t>(p.count());
  RowBound out{{}, std::vector<double>(blocks, INFINITY), std::vector<double>(blocks, -INFINITY)};
  Rows terms(blocks);
  for (std::int64_t i = 0; i < subs.count(); ++i) {
    if (p.block_of(subs.begin(i)) != u) continue;
    const Spreads spreads = spreads_of(logits, subs, i);
    for (std::int64_t j = 0; j < subs.count(); ++j) {
      const auto v = static_cast<std::size_t>(p.block_of(subs.begin(j)));
      widen(spreads, static_cast<std::size_t>(j), out.low[v], out.high[v]);
      terms[v].push_back(std::log(double(subs.size(i)) / double(p.size(u))) + spreads.log_p[j]);
    }
  }
  for (const auto& of_block : terms) out.log_score.push_back(log_sum_exp(of_block));
  return out;
}

std::vector<float> scores_of(const Sample& s, const char* name) {
  const Scorer& scorer = find_scorer(name);
  const BlockPlaces places = place_blocks(make_order(s.order, s.sequence.grid), kBlock, kBlock);
  const ScoreData data =
      prepare_scores(scorer, {s.sequence, kBlock, kBlock, s.sub}, &places, s.q.view(), s.k.view(), {}, Threads(1));
  const ScoreInput in = data.input(0, 0);
  std::vector<float> scores(static_cast<std::size_t>(in.q_blocks() * in.k_blocks()));
  scorer.score(in, 0, in.q_blocks(), scores.data());
  return scores;
}

BlockMask mask_of(const Sample& s, std::int32_t permille, const char* scorer = "pooled_softmax") {
  const std::vector<float> scores = scores_of(s, scorer);
  BlockMask mask(1, 1, s.blocks(), s.blocks(), s.order);
  const auto blocks = static_cast<std::size_t>(mask.k_blocks());
  std::vector<std::uint8_t> kept(blocks);
  for (std::int64_t u = 0; u < mask.q_blocks(); ++u) {
    std::ranges::fill(kept, std::uint8_t{0});
    const auto row = std::span(scores).subspan(blocks * static_cast<std::size_t>(u), blocks);
    find_chooser("top_k").choose({.scores = row, .permille = permille, .seed = static_cast<std::uint64_t>(u)}, kept);
    for (std::size_t v = 0; v < blocks; ++v) mask.set(0, 0, u, static_cast<std::int64_t>(v), kept[v] != 0);
  }
  return mask;
}

BlockMass mass_of(const Sample& s) {
  SelectCall call;
  call.partition = s.blocks();
  return block_mass(s.q.view(), s.k.view(), call, kBlock, Threads(1));
}

double mean_recall(const Sample& s, const BlockMass& mass, std::int32_t permille, const char* scorer) {
  return recall_of(mask_of(s, permille, scorer), mass)[0].mean;
}

// The share that the best blocks hold when as many are kept.
double oracle_recall(const BlockMass& mass, std::int32_t permille) {
  double sum = 0;
  const std::int64_t count = kept_count(mass.k_blocks, permille);
  for (std::int64_t u = 0; u < mass.q_blocks; ++u) {
    std::vector<float> row(mass.row(0, u).begin(), mass.row(0, u).end());
    std::ranges::sort(row, std::greater<>{});
    sum += std::accumulate(row.begin(), row.begin() + count, 0.0);
  }
  return sum / double(mass.q_blocks);
}

// ---- The bound ----

struct Tightness {
  std::int64_t rows = 0, violations = 0;
  double by_eps = 0, by_blocks = 0;  // sums of bound over recall

  std::string to_text() const {
    return std::to_string(by_eps / double(rows)) + " by eps, " + std::to_string(by_blocks / double(rows)) +
           " by blocks, over " + std::to_string(rows) + " rows";
  }
};

// The choice is made from f32 scores: blocks that differ by less may have changed places.
constexpr double kRounding = 1e-3;

void check_row(const RowBound& bound, const std::vector<double>& mass, const BlockMask& mask, std::int64_t u,
               Tightness& out) {
  double recall = 0, least = 0, most = 0;
  for (std::size_t v = 0; v < mass.size(); ++v) {
    // log W_v where the mass is not too small for a double.
    if (mass[v] > 1e-290) {
      const double away = std::log(mass[v]) - bound.log_score[v];
      out.violations += away < bound.low[v] - 1e-6 || away > bound.high[v] + 1e-6;
    }
    if (mask.test(0, 0, u, static_cast<std::int64_t>(v)))
      recall += mass[v], least += std::exp(bound.log_score[v] + bound.low[v]);
    else
      most += std::exp(bound.log_score[v] + bound.high[v]);
  }
  std::vector<double> sorted = mass;
  std::ranges::sort(sorted, std::greater<>{});
  const std::int64_t k = count_blocks(mask.row(0, 0, u));
  const double best = std::accumulate(sorted.begin(), sorted.begin() + k, 0.0);
  const double two_eps = *std::ranges::max_element(bound.high) - *std::ranges::min_element(bound.low);
  const double by_eps = std::exp(-two_eps) * best, by_blocks = most == 0 ? 1.0 : least / (least + most);
  out.violations += recall < by_eps * (1 - kRounding) - 1e-9;
  out.violations += recall < by_blocks * (1 - kRounding) - 1e-9;
  out.rows += 1;
  out.by_eps += by_eps / recall;
  out.by_blocks += by_blocks / recall;

  if (k == mask.k_blocks() || sorted[static_cast<std::size_t>(k)] <= 0) return;
  const double gap = sorted[static_cast<std::size_t>(k - 1)] / sorted[static_cast<std::size_t>(k)];  // e^D
  out.violations += best < double(k) * gap / (double(k) * gap + double(mask.k_blocks() - k)) - 1e-9;
}

Tightness check_bound(const Sample& s, std::int32_t permille) {
  const Rows mass = true_mass(s), logits = logits_of(s);
  const BlockMask mask = mask_of(s, permille);
  Tightness out;
  for (std::int64_t u = 0; u < mask.q_blocks(); ++u)
    check_row(bound_of(s, logits, u), mass[static_cast<std::size_t>(u)], mask, u, out);
  return out;
}

Tightness operator+(const Tightness& a, const Tightness& b) {
  return {a.rows + b.rows, a.violations + b.violations, a.by_eps + b.by_eps, a.by_blocks + b.by_blocks};
}

TokenGrid any_grid() { return {*rc::gen::inRange(1, 5), *rc::gen::inRange(2, 9), *rc::gen::inRange(4, 9)}; }
OrderKind any_order() { return *rc::gen::element(OrderKind::kRaster, OrderKind::kHilbert, OrderKind::kGilbert); }

RC_GTEST_PROP(RecallBound, HoldsForSmoothAndForRandomFeatures, ()) {
  Sample s =
      make_sample(any_grid(), any_order(), static_cast<float>(*rc::gen::inRange(1, 40)) / 10,
                  static_cast<float>(*rc::gen::inRange(0, 15)) / 10, *rc::gen::inRange<std::uint32_t>(0, 100000));
  s.sub = *rc::gen::element(1, 2, 4, 8, 16);
  RC_ASSERT(check_bound(s, *rc::gen::inRange(50, 1001)).violations == 0);
}

RC_GTEST_PROP(RecallBound, HoldsForHeadsOfKnownCharacter, ()) {
  const auto kind = *rc::gen::element(HeadKind::kLocal, HeadKind::kTemporal, HeadKind::kSink, HeadKind::kMoving);
  const Sample s = sample_of(
      make_structured(kind, any_grid(), any_order(), 32, static_cast<float>(*rc::gen::inRange(1, 20)),
                      static_cast<float>(*rc::gen::inRange(0, 10)) / 10, *rc::gen::inRange<std::uint32_t>(0, 100000)));
  RC_ASSERT(check_bound(s, *rc::gen::inRange(50, 1001)).violations == 0);
}

// Tokens that the means hide: opposite pairs, one key or query that outweighs its sub-block, huge and equal ones.
Sample make_adversarial(const TokenGrid& grid, int trick, float size, std::uint32_t seed) {
  const std::array<std::int64_t, 4> shape = {1, grid.tokens(), 1, 16};
  Sample s{{grid, 0, TextPlacement::kSuffix}, OrderKind::kRaster, noise(shape, seed, 1), noise(shape, seed + 1, 1)};
  for (std::int64_t t = 0; t < grid.tokens(); ++t)
    for (std::int64_t c = 0; c < 16; ++c) {
      float &q = s.q.values[t * 16 + c], &k = s.k.values[t * 16 + c];
      const float sign = t % 2 ? 1.0f : -1.0f;
      if (trick == 0) k = sign * size + k / 8;        // keys cancel
      if (trick == 1) q = sign * size + q / 8;        // queries cancel
      if (trick == 2) k *= t % 7 == 3 ? size : 0.1f;  // hot keys
      if (trick == 3) q *= t % 5 == 2 ? size : 0.1f;  // hot queries
      if (trick == 4) q = sign * size + q / 8, k = sign * size + k / 8;
      if (trick == 5) q = k = 1.0f;          // all alike
      if (trick == 6) q *= size, k *= size;  // very sharp
    }
  return s;
}

RC_GTEST_PROP(RecallBound, HoldsAgainstAdversaries, ()) {
  const Sample s = make_adversarial(any_grid(), *rc::gen::inRange(0, 7), static_cast<float>(*rc::gen::inRange(1, 12)),
                                    *rc::gen::inRange<std::uint32_t>(0, 100000));
  RC_ASSERT(check_bound(s, *rc::gen::inRange(50, 1001)).violations == 0);
}

// Nothing to lose inside sub-blocks: the scores are the masses and both bounds are met exactly.
TEST(RecallBound, IsTightWhereSubBlocksAreUniform) {
  Sample s = make_sample({3, 8, 8}, OrderKind::kHilbert, 2.0f, 0.5f, 3);
  for (Tokens* x : {&s.q, &s.k})
    for (std::size_t i = 0; i < x->values.size(); ++i) x->values[i] = x->values[i / (16 * kSub) * (16 * kSub) + i % 16];
  const Tightness t = check_bound(s, 250);
  EXPECT_EQ(t.violations, 0);
  EXPECT_NEAR(t.by_eps / double(t.rows), 1.0, 1e-3);
  EXPECT_NEAR(t.by_blocks / double(t.rows), 1.0, 1e-3);
}

// How much the bound gives away, and that it says more where the spread is smaller.
TEST(RecallBound, SaysMoreOfSmootherFeatures) {
  double before = 0;
  for (const float sharpness : {2.0f, 1.0f, 0.5f}) {
    Tightness sum;
    for (std::uint32_t seed = 0; seed < 4; ++seed)
      sum = sum + check_bound(make_sample({4, 8, 8}, OrderKind::kHilbert, sharpness, 0.3f, 100 * seed), 200);
    EXPECT_EQ(sum.violations, 0);
    const double blocks = sum.by_blocks / double(sum.rows);
    EXPECT_GT(blocks, before);
    EXPECT_LE(blocks, 1 + kRounding);
    before = blocks;
    RecordProperty("sharpness_" + std::to_string(sharpness).substr(0, 3), "bound over recall " + sum.to_text());
  }
  EXPECT_GT(before, 0.5);
}

TEST(RecallBound, TightnessOnHeadsOfKnownCharacter) {
  for (HeadKind kind : {HeadKind::kLocal, HeadKind::kTemporal, HeadKind::kSink, HeadKind::kMoving}) {
    const Structured head = make_structured(kind, {4, 8, 8}, OrderKind::kHilbert, 32, 4.0f, 0.3f, 5);
    const Tightness t = check_bound(sample_of(head), 200);
    EXPECT_EQ(t.violations, 0) << to_string(kind);
    RecordProperty(to_string(kind), "bound over recall " + t.to_text());
  }
}

// ---- The measure ----

TEST(BlockMass, IsTheTrueMass) {
  const Sample s = make_sample({3, 7, 9}, OrderKind::kHilbert, 2.0f, 0.5f, 4);  // 189 tokens: a ragged last block
  const BlockMass got = mass_of(s);
  const Rows want = true_mass(s);
  ASSERT_EQ(got.q_blocks, 12);
  for (std::int64_t u = 0; u < got.q_blocks; ++u)
    for (std::int64_t v = 0; v < got.k_blocks; ++v) EXPECT_NEAR(got.row(0, u)[v], want[u][v], 2e-6 + 2e-5 * want[u][v]);
}

TEST(BlockMass, LeavesTheShareOfTheTextAndOfHiddenTokens) {
  const Sequence sequence{{2, 5, 6}, 9, TextPlacement::kPrefix};
  const Tokens q = noise({2, 69, 3, 8}, 1), k = noise({2, 69, 3, 8}, 2);
  SelectCall call;
  call.partition = {sequence, kBlock};
  const std::vector<std::pair<std::int64_t, std::int64_t>> hidden = {{4, 9}, {9, 9}};
  call.hidden_keys = hidden;
  const BlockMass mass = block_mass(q.view(), k.view(), call, 8, Threads(2));
  const BlockPartition keys{sequence, 8};
  for (std::int64_t map = 0; map < 6; ++map) {
    std::vector<double> want(static_cast<std::size_t>(mass.k_blocks));
    for (std::int64_t a = 9; a < 9 + kBlock; ++a) {  // the first video block
      std::vector<double> e(69);
      for (std::int64_t b = 0; b < 69; ++b) {
        const float *x = q.view().row<float>(map / 3, a, map % 3), *y = k.view().row<float>(map / 3, b, map % 3);
        const bool seen = b < hidden[map / 3].first || b >= hidden[map / 3].second;
        e[b] = seen ? std::exp(std::inner_product(x, x + 8, y, 0.0) / std::sqrt(8.0)) : 0;
      }
      const double total = std::accumulate(e.begin(), e.end(), 0.0);
      for (std::int64_t b = 9; b < 69; ++b) want[keys.block_of(b) - keys.text_blocks()] += e[b] / total / kBlock;
    }
    for (std::size_t v = 0; v < want.size(); ++v) EXPECT_NEAR(mass.row(map, 0)[v], want[v], 1e-6);
  }
}

TEST(BlockMass, RowsAverageToBlocks) {
  const Sequence sequence{{2, 5, 6}, 9, TextPlacement::kSuffix};
  const Tokens q = noise({2, 69, 3, 8}, 1), k = noise({2, 69, 3, 8}, 2);
  SelectCall call;
  call.partition = {sequence, kBlock};
  const std::vector<std::pair<std::int64_t, std::int64_t>> hidden = {{65, 69}, {67, 69}};
  call.hidden_keys = hidden;
  const BlockMass mass = block_mass(q.view(), k.view(), call, 8, Threads(1));
  std::vector<std::int64_t> tokens(60);
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  std::vector<float> rows(static_cast<std::size_t>(60 * mass.k_blocks));
  HeadMass(q.view(), k.view(), 1, 2, call.partition, {sequence, 8}, hidden, Threads(2)).rows(tokens, rows, Threads(2));
  for (std::int64_t u = 0; u < mass.q_blocks; ++u)
    for (std::int64_t v = 0; v < mass.k_blocks; ++v) {
      double sum = 0;
      const std::int64_t end = std::min<std::int64_t>(60, (u + 1) * kBlock);
      for (std::int64_t t = u * kBlock; t < end; ++t) sum += rows[t * mass.k_blocks + v];
      EXPECT_NEAR(sum / double(end - u * kBlock), mass.row(5, u)[v], 1e-6);
    }
}

TEST(BlockMass, RefusesWhatDoesNotFit) {
  const Tokens q = noise({1, 60, 2, 8}, 1), other = noise({1, 60, 3, 8}, 2);
  Tokens bad = q;
  bad.values[100] = NAN;
  SelectCall call;
  call.partition = {{{2, 5, 6}, 0, TextPlacement::kSuffix}, kBlock};
  const Threads one(1);
  EXPECT_THROW(block_mass(q.view(), other.view(), call, 8, one), Error);
  EXPECT_THROW(block_mass(q.view(), q.view(), call, 0, one), Error);
  EXPECT_THROW(block_mass(q.view(), bad.view(), call, 8, one), Error);
  EXPECT_THROW(recall_of(BlockMask(1, 1, call.partition, call.partition, OrderKind::kRaster),
                         block_mass(q.view(), q.view(), call, 8, one)),
               Error);
}

TEST(RecallOf, CountsWhatIsKept) {
  BlockMass mass{1, 3, 2, {0.75f, 0.25f, 0.5f, 0.25f, 0.0f, 0.5f}};  // rows 2 and 3 give text the rest
  const BlockPartition q{{{1, 3, 2}, 4, TextPlacement::kPrefix}, 2}, k{q.sequence, 3};
  BlockMask mask(1, 1, q, k, OrderKind::kRaster);
  mask.set(0, 0, 2, 2), mask.set(0, 0, 3, 3), mask.set(0, 0, 4, 2), mask.set(0, 0, 4, 3);
  const std::vector<Recall> recall = recall_of(mask, mass);
  ASSERT_EQ(recall.size(), 1u);
  EXPECT_DOUBLE_EQ(recall[0].mean, (0.75 + 0.5 + 1.0) / 3);
  EXPECT_DOUBLE_EQ(recall[0].low, 0.5);
}

// ---- What the parts are for ----

// On smooth features, Hilbert order holds more mass than raster order at equal density, and sub-blocks choose better
// than whole blocks.
TEST(Recall, HilbertOrderAndSubBlocksHelp) {
  double raster = 0, hilbert = 0, whole_blocks = 0, oracle = 0;
  constexpr int kSamples = 6;
  for (std::uint32_t seed = 0; seed < kSamples; ++seed) {
    const Sample r = make_sample({4, 8, 9}, OrderKind::kRaster, 2.0f, 0.5f, 100 * seed);
    Sample h = make_sample({4, 8, 9}, OrderKind::kHilbert, 2.0f, 0.5f, 100 * seed);
    const BlockMass mass = mass_of(h);
    raster += mean_recall(r, mass_of(r), 200, "pooled_softmax") / kSamples;
    hilbert += mean_recall(h, mass, 200, "pooled_softmax") / kSamples;
    h.sub = kBlock;
    whole_blocks += mean_recall(h, mass, 200, "pooled_softmax") / kSamples;
    oracle += oracle_recall(mass, 200) / kSamples;
  }
  EXPECT_GT(hilbert, raster + 0.02);
  EXPECT_GE(hilbert, whole_blocks);
  EXPECT_GT(hilbert, 0.8 * oracle);
  EXPECT_LE(hilbert, oracle + 1e-6);
  RecordProperty("recall", "raster " + std::to_string(raster) + ", hilbert " + std::to_string(hilbert) +
                               ", whole blocks " + std::to_string(whole_blocks) + ", oracle " + std::to_string(oracle));
}

// Mean recall at density 0.2 of every scorer, over four heads of one kind in blocks of 16 and sub-blocks of 4.
std::map<std::string, double> recalls_on(HeadKind kind, float noise_spread) {
  constexpr int kHeads = 4;
  std::map<std::string, double> out;
  for (std::uint32_t seed = 0; seed < kHeads; ++seed) {
    const Sample s =
        sample_of(make_structured(kind, {6, 12, 12}, OrderKind::kHilbert, 64, 8.0f, noise_spread, 1000 * seed));
    const BlockMass mass = mass_of(s);
    for (const Scorer& scorer : scorers()) out[scorer.name] += mean_recall(s, mass, 200, scorer.name) / kHeads;
    out["oracle"] += oracle_recall(mass, 200) / kHeads;
    for (float m : mass.values) out["chance"] += m * 0.2 / double(mass.q_blocks) / kHeads;
  }
  return out;
}

std::map<std::string, double> measured(HeadKind kind) {
  const std::map<std::string, double> recall = recalls_on(kind, 0.5f);
  for (const auto& [name, value] : recall) {
    testing::Test::RecordProperty(name, std::to_string(value));
    EXPECT_LE(value, recall.at("oracle") + 1e-6) << name;
  }
  EXPECT_GE(recall.at("second_order"), recall.at("pooled_softmax"));  // what it costs more must be worth something
  return recall;
}

TEST(Recall, OnLocalHeads) {
  const auto r = measured(HeadKind::kLocal);
  EXPECT_GT(r.at("window"), 2 * r.at("chance"));
  EXPECT_GT(r.at("pooled_softmax"), r.at("window"));
  EXPECT_GT(r.at("pooled_softmax"), r.at("representatives"));
}

TEST(Recall, OnTemporalHeads) {
  const auto r = measured(HeadKind::kTemporal);
  EXPECT_GT(r.at("pooled_softmax"), r.at("window") + 0.1);
  EXPECT_GT(r.at("pooled_softmax"), r.at("radial") + 0.1);
}

TEST(Recall, OnSinkHeads) {
  const auto r = measured(HeadKind::kSink);
  EXPECT_GT(r.at("radial"), r.at("window") + 0.1);  // it knows the first frame
  EXPECT_GT(r.at("pooled_softmax"), r.at("radial") + 0.1);
  // Keys without content are unlike each other: the guard keeps them all, and the sink is left out.
  EXPECT_LT(r.at("sparge"), r.at("chance") + 0.05);
}

TEST(Recall, OnMovingObjects) {
  const auto r = measured(HeadKind::kMoving);
  EXPECT_GT(r.at("pooled_softmax"), r.at("window") + 0.1);
  EXPECT_GT(r.at("clusters"), r.at("pooled_softmax"));  // objects do not keep to blocks
}

}  // namespace
}  // namespace tulle
