// Engines whose policy cuts heads into clusters: equal on any number of ranks, honest books, nothing left to the next
// video.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "run/engine_fixture.hpp"
#include "select/permuted.hpp"

namespace tulle {
namespace {

Trial cluster_trial() {
  Trial trial;
  Policy& p = trial.options.policy = load_policy("svg2");
  p.block_q = 16, p.block_k = 8, p.sub_block = 1;
  trial.options.sequence.grid = {5, 7, 11};
  trial.steps = 30;
  trial.steps_run = {0, 3, 4, 5};  // dense, from evenly spaced tokens, and twice from the step before
  return trial;
}

Trial with_text(TextPlacement placement) {
  Trial trial = cluster_trial();
  trial.options.sequence.text_tokens = 29;
  trial.options.sequence.placement = placement;
  trial.options.batch = 2;
  trial.text_lengths = {29, 4};
  trial.steps_run = {3, 4};
  return trial;
}

double kept_of(const TrialResult& result) {
  double kept = 0;
  for (const EngineStats& s : result.stats) {
    for (const double k : s.kept_by_step) kept += k;
  }
  return kept;
}

void expect_equal(const Trial& trial) {
  const TrialResult one = run_trial(trial, 1);
  for (const int ranks : {2, 3, 5}) {
    const TrialResult many = run_trial(trial, ranks);
    EXPECT_TRUE(many.outputs == one.outputs) << ranks << " ranks";
    EXPECT_EQ(kept_of(many), kept_of(one)) << ranks << " ranks";
  }
  const TrialResult wide = run_trial(trial, 3, 2);
  EXPECT_TRUE(wide.outputs == one.outputs) << "2 threads a rank";
}

TEST(EngineClusters, ManyRanksAndThreadsGiveTheSameBits) { expect_equal(cluster_trial()); }

TEST(EngineClusters, TextAndSamplesOnManyRanks) {
  expect_equal(with_text(TextPlacement::kPrefix));
  expect_equal(with_text(TextPlacement::kSuffix));
}

TEST(EngineClusters, Bf16OnManyRanks) {
  Trial trial = cluster_trial();
  trial.options.dtype = DType::kBf16;
  trial.steps_run = {3, 4};
  expect_equal(trial);
}

TEST(EngineClusters, BeginAndFinishApart) {
  Trial trial = cluster_trial();
  const TrialResult together = run_trial(trial, 1);
  trial.split_calls = true;
  EXPECT_TRUE(run_trial(trial, 1).outputs == together.outputs);
}

// The books against masks chosen outside of the Engine from the same q and k, pair by pair.
TEST(EngineClusters, BooksCountTokenPairs) {
  for (Trial trial : {cluster_trial(), with_text(TextPlacement::kSuffix)}) {
    const EngineOptions& o = trial.options;
    const Threads threads(1);
    ClusterSelector selector(o.policy);
    std::vector<std::vector<double>> kept(static_cast<std::size_t>(o.layers),
                                          std::vector<double>(static_cast<std::size_t>(o.heads)));
    for (const std::int32_t step : trial.steps_run) {
      for (std::int32_t layer = 0; layer < o.layers; ++layer) {
        for (const Branch branch : {Branch::kConditional, Branch::kUnconditional}) {
          Tensor q = input_of(trial, step, layer, branch, 0), k = input_of(trial, step, layer, branch, 1);
          const SelectCall call{step, trial.steps, layer, branch, {o.sequence, o.policy.block_q}};
          const ClusterMask* mask = selector.choose(call, q.view(), k.view(), threads);
          for (std::int64_t b = 0; b < o.batch; ++b) {
            for (std::int64_t h = 0; h < o.heads; ++h) {
              const std::int64_t all = o.sequence.tokens() * o.sequence.tokens();
              kept[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)] +=
                  static_cast<double>(mask != nullptr ? kept_pairs(mask->map(b, h)) : all);
            }
          }
        }
      }
    }
    EXPECT_EQ(run_trial(trial, 1).stats[0].kept_by_head, kept);
  }
}

// Keys stand in another order than memory's, so sums do too: equal within the error rule, not bit for bit.
TEST(EngineClusters, DensityOneIsDenseWithinTheErrorRule) {
  for (Trial trial : {cluster_trial(), with_text(TextPlacement::kPrefix)}) {
    trial.options.policy.top_p = 1000;
    Trial dense = trial;
    dense.options.policy = load_policy("dense");
    dense.options.policy.order = trial.options.policy.order;
    const TrialResult ours = run_trial(trial, 1), theirs = run_trial(dense, 1);
    EXPECT_EQ(kept_of(ours), kept_of(theirs));
    for (std::size_t call = 0; call < ours.outputs.size(); ++call) {
      const auto* a = reinterpret_cast<const float*>(ours.outputs[call].bytes.data());
      const auto* b = reinterpret_cast<const float*>(theirs.outputs[call].bytes.data());
      double largest = 0, squares = 0, norm = 0;
      for (std::size_t i = 0; i < ours.outputs[call].bytes.size() / sizeof(float); ++i) {
        const double away = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        largest = std::max(largest, std::abs(away));
        squares += away * away;
        norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
      }
      EXPECT_LT(largest, 1e-5) << "call " << call;
      EXPECT_LT(std::sqrt(squares / norm), 1e-5) << "call " << call;
    }
  }
}

TEST(EngineClusters, FewClustersAreNotDense) {
  Trial trial = cluster_trial();
  trial.options.policy.top_p = 200;
  trial.steps_run = {3};
  const TrialResult result = run_trial(trial, 1);
  double all = 0;
  for (const double a : result.stats[0].all_by_step) all += a;
  EXPECT_LT(kept_of(result), 0.5 * all);
  EXPECT_GT(kept_of(result), 0.05 * all);
}

TEST(EngineClusters, ShowNoBlockMaskAndSayWhy) {
  const TrialResult result = run_trial(cluster_trial(), 1);
  for (const auto& call : result.masks) EXPECT_TRUE(call[0].empty());
  const auto& routes = result.stats[0].routes;
  const auto route = std::ranges::find(routes, "selection", &Route::what);
  ASSERT_NE(route, routes.end());
  EXPECT_NE(route->route.find("permuted"), std::string::npos) << route->route;
  EXPECT_NE(route->why.find("no block mask"), std::string::npos) << route->why;
}

TEST(EngineClusters, ResetStartsANewVideo) {
  const Trial trial = cluster_trial();
  run_ranks(1, 60, [&](Fabric& fabric) {
    const Threads threads(1);
    Engine used(trial.options, fabric, threads), fresh(trial.options, fabric, threads);
    const auto attend = [&](Engine& engine, std::int32_t step) {
      AttendCall call;
      call.step = step, call.steps = trial.steps;
      Tensor out(DType::kF32, trial.shape());
      Tensor q = input_of(trial, step, 0, call.branch, 0), k = input_of(trial, step, 0, call.branch, 1),
             v = input_of(trial, step, 0, call.branch, 2);
      engine.attend(call, q.view(), k.view(), v.view(), out.view());
      return out;
    };
    attend(used, 3);
    used.reset();
    EXPECT_TRUE(attend(used, 4) == attend(fresh, 4));
    EXPECT_FALSE(attend(used, 5) == Tensor(DType::kF32, trial.shape()));
  });
}

}  // namespace
}  // namespace tulle
