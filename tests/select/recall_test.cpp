// Recall: the share of true softmax mass that chosen blocks hold. For a query block let W_v be the true mean mass of
// key block v, and S_v its score. If all log S_v - log W_v lie in an interval of width 2 eps, the k best blocks by S
// hold at least exp(-2 eps) of what the k best by W hold; and those hold at least k e^D / (k e^D + M - k) of the whole,
// where D is the gap between the k-th and the (k+1)-th log W (the shape of the recall bound in Hu et al., "DFSAttn",
// 2026).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "select/scorer.hpp"
#include "select/selector.hpp"
#include "select_data.hpp"

namespace tulle {
namespace {

using testing_data::small_policy;
using testing_data::Tokens;
using testing_data::waves;

// True mean softmax mass [q block][k block] of one head, in double, token by token.
std::vector<std::vector<double>> true_mass(const Tokens& q, const Tokens& k, const BlockPartition& p) {
  const std::int64_t d = q.shape[3];
  std::vector<std::vector<double>> mass(static_cast<std::size_t>(p.count()),
                                        std::vector<double>(static_cast<std::size_t>(p.count())));
  std::vector<double> e(static_cast<std::size_t>(p.tokens()));
  for (std::int64_t i = 0; i < p.tokens(); ++i) {
    for (std::int64_t j = 0; j < p.tokens(); ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < d; ++c)
        dot += double(q.view().row<float>(0, i, 0)[c]) * k.view().row<float>(0, j, 0)[c];
      e[static_cast<std::size_t>(j)] = dot / std::sqrt(double(d));
    }
    const double top = *std::ranges::max_element(e);
    double total = 0;
    for (double& v : e) total += v = std::exp(v - top);
    auto& row = mass[static_cast<std::size_t>(p.block_of(i))];
    for (std::int64_t j = 0; j < p.tokens(); ++j) {
      row[static_cast<std::size_t>(p.block_of(j))] +=
          e[static_cast<std::size_t>(j)] / total / double(p.size(p.block_of(i)));
    }
  }
  return mass;
}

std::vector<float> scores_of(const Policy& policy, const Tokens& q, const Tokens& k, const Sequence& s) {
  const Threads one(1);
  const BlockPartition subs{s, policy.sub_block};
  const PooledTokens queries = pool_tokens(q.view(), subs, {}, one), keys = pool_tokens(k.view(), subs, {}, one);
  const KeyPanels panels = pack_keys(keys, 0, 0);
  const ScoreInput in = make_score_input(queries, panels, subs, 0, 0, policy.block_q, policy.block_k);
  std::vector<float> scores(static_cast<std::size_t>(in.q_blocks() * in.k_blocks()));
  find_scorer(policy.scorer).score(in, 0, in.q_blocks(), scores.data());
  return scores;
}

struct Sample {
  Policy policy = small_policy(16, 4);
  Sequence sequence;
  Tokens q, k;
};

Sample make_sample(const TokenGrid& grid, OrderKind order_kind, float sharpness, float noise_share,
                   std::uint32_t seed) {
  Sample s;
  s.sequence.grid = grid;
  s.policy.order = order_kind;
  const TokenOrder order = make_order(order_kind, grid);
  const std::array<std::int64_t, 4> shape = {1, grid.tokens(), 1, 16};
  s.q = waves(order, s.sequence, shape, seed, sharpness, noise_share, seed + 1);
  s.k = waves(order, s.sequence, shape, seed, sharpness, noise_share, seed + 2);
  return s;
}

BlockMask mask_of(const Sample& s, std::int32_t permille) {
  SelectCall call;
  call.partition = {s.sequence, s.policy.block_q};
  return choose_mask(s.policy, call, permille, s.q.view(), s.k.view(), Threads(1));
}

double kept_mass(const BlockMask& mask, std::int64_t u, const std::vector<double>& row) {
  double kept = 0;
  for_each_block(mask.row(0, 0, u), [&](std::int64_t v) { kept += row[static_cast<std::size_t>(v)]; });
  return kept;
}

double mean_recall(const Sample& s, const std::vector<std::vector<double>>& mass, std::int32_t permille) {
  const BlockMask mask = mask_of(s, permille);
  double sum = 0;
  for (std::int64_t u = 0; u < mask.q_blocks(); ++u) sum += kept_mass(mask, u, mass[static_cast<std::size_t>(u)]);
  return sum / double(mask.q_blocks());
}

RC_GTEST_PROP(Recall, NeverFallsBelowTheBound, ()) {
  const TokenGrid grid{*rc::gen::inRange(1, 6), *rc::gen::inRange(2, 9), *rc::gen::inRange(4, 9)};
  const Sample s =
      make_sample(grid, *rc::gen::element(OrderKind::kRaster, OrderKind::kHilbert, OrderKind::kGilbert),
                  static_cast<float>(*rc::gen::inRange(1, 40)) / 10, static_cast<float>(*rc::gen::inRange(0, 15)) / 10,
                  *rc::gen::inRange<std::uint32_t>(0, 100000));
  const BlockPartition p{s.sequence, s.policy.block_q};
  const auto mass = true_mass(s.q, s.k, p);
  const auto scores = scores_of(s.policy, s.q, s.k, s.sequence);
  const int permille = *rc::gen::inRange(50, 1001);
  const BlockMask mask = mask_of(s, permille);
  const auto blocks = static_cast<std::size_t>(p.count());
  for (std::size_t u = 0; u < blocks; ++u) {
    const double recall = kept_mass(mask, static_cast<std::int64_t>(u), mass[u]);
    double low = INFINITY, high = -INFINITY;
    for (std::size_t v = 0; v < blocks; ++v) {
      const double error = std::log(std::max(1e-300, double(scores[u * blocks + v]))) - std::log(mass[u][v]);
      low = std::min(low, error), high = std::max(high, error);
    }
    std::vector<double> sorted = mass[u];
    std::ranges::sort(sorted, std::greater<>{});
    const auto k = static_cast<std::size_t>(count_blocks(mask.row(0, 0, static_cast<std::int64_t>(u))));
    const double best = std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k), 0.0);
    const double shrink = std::exp(-(high - low));
    RC_ASSERT(recall >= shrink * best - 1e-9);
    const double gap = k < blocks ? sorted[k - 1] / sorted[k] : 1.0;  // e^D
    RC_ASSERT(best >= double(k) * gap / (double(k) * gap + double(blocks - k)) - 1e-9);
  }
}

// What the parts are for: on smooth features, Hilbert order holds more mass than raster order at equal density, and
// sub-blocks choose better than whole blocks.
TEST(Recall, HilbertOrderAndSubBlocksHelp) {
  double raster = 0, hilbert = 0, whole_blocks = 0, oracle = 0;
  constexpr int kSamples = 6;
  for (std::uint32_t seed = 0; seed < kSamples; ++seed) {
    const Sample r = make_sample({4, 8, 9}, OrderKind::kRaster, 2.0f, 0.5f, 100 * seed);
    Sample h = make_sample({4, 8, 9}, OrderKind::kHilbert, 2.0f, 0.5f, 100 * seed);
    const BlockPartition p{r.sequence, r.policy.block_q};
    const auto raster_mass = true_mass(r.q, r.k, p), hilbert_mass = true_mass(h.q, h.k, p);
    raster += mean_recall(r, raster_mass, 200) / kSamples;
    hilbert += mean_recall(h, hilbert_mass, 200) / kSamples;
    h.policy.sub_block = 16;
    whole_blocks += mean_recall(h, hilbert_mass, 200) / kSamples;
    for (auto row : hilbert_mass) {
      std::ranges::sort(row, std::greater<>{});
      oracle += std::accumulate(row.begin(), row.begin() + 4, 0.0) / double(hilbert_mass.size()) / kSamples;
    }
  }
  EXPECT_GT(hilbert, raster + 0.02);
  EXPECT_GE(hilbert, whole_blocks);
  EXPECT_GT(hilbert, 0.8 * oracle);
  EXPECT_LE(hilbert, oracle + 1e-9);
  RecordProperty("recall", "raster " + std::to_string(raster) + ", hilbert " + std::to_string(hilbert) +
                               ", whole blocks " + std::to_string(whole_blocks) + ", oracle " + std::to_string(oracle));
}

}  // namespace
}  // namespace tulle
