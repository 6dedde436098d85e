// Many ranks give what one rank gives: outputs and masks bit for bit.
#include <gtest/gtest.h>

#include "run/engine_fixture.hpp"
#include "select/profiles.hpp"

namespace tulle {
namespace {

constexpr int kRankCounts[] = {2, 3, 5};

// The ranks' masks, head by head in the order of the plan, are the one rank's mask.
void expect_equal_masks(const std::vector<std::vector<BlockMask>>& many, const std::vector<BlockMask>& one,
                        const Plan& plan, std::size_t call) {
  for (std::size_t r = 0; r < many.size(); ++r) {
    ASSERT_EQ(many[r].size(), one.size()) << "call " << call << " rank " << r;
    if (one.empty()) continue;
    EXPECT_TRUE(many[r][0] == slice_heads(one[0], plan.heads[r].begin, plan.heads[r].end))
        << "call " << call << " rank " << r;
  }
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (double v : values) total += v;
  return total;
}

void expect_equal_books(const TrialResult& many, const TrialResult& one) {
  for (std::size_t step = 0; step < one.stats[0].kept_by_step.size(); ++step) {
    double kept = 0, all = 0;
    for (const EngineStats& s : many.stats) kept += s.kept_by_step[step], all += s.all_by_step[step];
    EXPECT_EQ(kept, one.stats[0].kept_by_step[step]) << "step " << step;
    EXPECT_EQ(all, one.stats[0].all_by_step[step]) << "step " << step;
  }
  for (std::size_t layer = 0; layer < one.stats[0].kept_by_head.size(); ++layer) {
    std::vector<double> heads;
    for (const EngineStats& s : many.stats) {
      heads.insert(heads.end(), s.kept_by_head[layer].begin(), s.kept_by_head[layer].end());
    }
    EXPECT_EQ(heads, one.stats[0].kept_by_head[layer]);
    EXPECT_EQ(sum(heads), one.stats[0].kept_by_layer[layer]);
  }
}

void expect_equal(const Trial& trial) {
  const TrialResult one = run_trial(trial, 1);
  for (int ranks : kRankCounts) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    const TrialResult many = run_trial(trial, ranks);
    ASSERT_EQ(many.plan.ranks, ranks);
    for (std::size_t i = 0; i < one.outputs.size(); ++i) {
      EXPECT_TRUE(many.outputs[i] == one.outputs[i]) << "call " << i;
      expect_equal_masks(many.masks[i], one.masks[i][0], many.plan, i);
    }
    expect_equal_books(many, one);
  }
}

std::size_t count_sparse(const TrialResult& result) {
  std::size_t sparse = 0;
  for (const auto& call : result.masks) sparse += call[0].size();
  return sparse;
}

Trial sparse_trial() {
  Trial trial;
  trial.options.policy = small_blocks("dfsattn");
  trial.options.sequence.grid = {5, 7, 11};
  trial.steps_run = {0, 1, 2, 3};  // warm-up, and three steps of falling density
  return trial;
}

// Budgets and rank maps are of the model's heads, whichever rank holds them; so is the tail of what they drop.
TEST(EngineEquality, PoliciesWithAProfileOrATail) {
  for (const char* preset : {"west", "west+fast", "tulle"}) {
    SCOPED_TRACE(preset);
    Trial trial = sparse_trial();
    trial.options.policy = small_blocks(preset);
    trial.options.policy.tail = 8;
    trial.options.profile = std::make_shared<const Profile>(testing_data::diagonal_profile(
        trial.options.sequence.grid, OrderKind::kHilbert, 32, trial.options.layers, trial.options.heads, 4));
    expect_equal(trial);
  }
}

// What keeps every block is dense, bit for bit: nothing is dropped, so there is no tail. Clusters cannot be: their keys
// stand in another order, so sums are rounded differently; permuted_test.cpp holds them to the error rule.
TEST(EngineEquality, DensityOneIsDense) {
  for (const std::string& preset : policy_presets()) {
    if (preset == "dense" || load_policy(preset).blocks == BlockShape::kClusters) continue;
    SCOPED_TRACE(preset);
    Trial trial = sparse_trial();
    Policy& p = trial.options.policy = small_blocks(preset);
    p.schedule.permille = {1000};
    p.density = p.top_p = 1000;
    if (p.tail > 0) p.tail = 8;
    p.fall = 1;
    trial.options.profile = std::make_shared<const Profile>(testing_data::diagonal_profile(
        trial.options.sequence.grid, p.order, 32, trial.options.layers, trial.options.heads, 4));
    Trial dense = trial;
    dense.options.policy = load_policy("dense");
    dense.options.policy.order = p.order;
    EXPECT_TRUE(run_trial(trial, 1).outputs == run_trial(dense, 1).outputs);
  }
}

// Steps 1, 2 and 6 of 30 compute all blocks; what that changed is added at 3 and 4.
TEST(EngineEquality, Residuals) {
  for (const std::int32_t tail : {0, 8}) {
    SCOPED_TRACE(tail);
    Trial trial = sparse_trial();
    trial.options.policy = small_blocks("tulle");
    trial.options.policy.tail = tail;
    trial.options.policy.schedule.starts = {1, 2, 6};
    trial.options.policy.follow = {};
    trial.steps = 30;
    trial.steps_run = {0, 1, 2, 3, 4, 6};
    expect_equal(trial);
    const EngineStats books = run_trial(trial, 1).stats[0];
    for (const std::size_t step : {0, 1, 2, 6}) EXPECT_EQ(books.kept_by_step[step], books.all_by_step[step]) << step;
    for (const std::size_t step : {3, 4}) EXPECT_LT(books.kept_by_step[step], 0.3 * books.all_by_step[step]) << step;
  }
}

TEST(EngineEquality, DenseOn97Tokens) {
  Trial trial;
  trial.options.sequence.grid = {1, 1, 97};
  expect_equal(trial);
}

TEST(EngineEquality, DenseOn1001Tokens) {
  Trial trial;
  trial.options.layers = 1;
  expect_equal(trial);
}

TEST(EngineEquality, SparseOn4Steps) {
  const Trial trial = sparse_trial();
  EXPECT_GT(count_sparse(run_trial(trial, 1)), 0u);
  expect_equal(trial);
}

TEST(EngineEquality, SparseOn30And50Steps) {
  for (std::int32_t steps : {30, 50}) {
    SCOPED_TRACE(steps);
    Trial trial = sparse_trial();
    trial.steps = steps;
    trial.steps_run = {0, steps / 2, steps / 2 + 1, steps - 1};
    EXPECT_GT(count_sparse(run_trial(trial, 1)), 0u);
    expect_equal(trial);
  }
}

TEST(EngineEquality, SparseOn97TokensWithPresetBlocks) {
  Trial trial = sparse_trial();
  trial.options.policy = load_policy("dfsattn");
  trial.options.sequence.grid = {1, 1, 97};
  expect_equal(trial);
}

TEST(EngineEquality, SparseOn1001Tokens) {
  Trial trial = sparse_trial();
  trial.options.sequence.grid = {7, 11, 13};
  trial.options.layers = 1;
  trial.steps_run = {3};
  expect_equal(trial);
}

TEST(EngineEquality, TextBeforeAndBehind) {
  for (TextPlacement placement : {TextPlacement::kPrefix, TextPlacement::kSuffix}) {
    SCOPED_TRACE(static_cast<int>(placement));
    Trial trial = sparse_trial();
    trial.steps_run = {2, 3};
    trial.options.sequence.text_tokens = 97;
    trial.options.sequence.placement = placement;
    expect_equal(trial);
  }
}

TEST(EngineEquality, BatchOfSamplesWithTextLengthsOfTheirOwn) {
  Trial trial = sparse_trial();
  trial.steps_run = {2, 3};
  trial.options.sequence.grid = {3, 7, 11};
  trial.options.sequence.text_tokens = 97;
  trial.options.batch = 2;
  trial.text_lengths = {97, 13};
  expect_equal(trial);
}

TEST(EngineEquality, PrologueBeforeTheExchange) {
  Trial trial = sparse_trial();
  trial.steps_run = {2, 3};
  trial.prologue = true;
  expect_equal(trial);
}

TEST(EngineEquality, Bf16) {
  Trial trial = sparse_trial();
  trial.steps_run = {2, 3};
  trial.options.dtype = DType::kBf16;
  expect_equal(trial);
}

TEST(EngineEquality, BeginAndFinishApart) {
  Trial trial = sparse_trial();
  trial.steps_run = {2, 3};
  const TrialResult together = run_trial(trial, 1);
  trial.split_calls = true;
  expect_equal(trial);
  EXPECT_TRUE(run_trial(trial, 1).outputs == together.outputs);
}

TEST(EngineEquality, AnyNumberOfThreads) {
  Trial trial = sparse_trial();
  trial.steps_run = {2, 3};
  const TrialResult one = run_trial(trial, 3, 1), two = run_trial(trial, 3, 2);
  EXPECT_TRUE(one.outputs == two.outputs);
  EXPECT_TRUE(one.masks == two.masks);
}

TEST(EngineEquality, RunAfterRun) {
  const Trial trial = sparse_trial();
  EXPECT_TRUE(run_trial(trial, 2).outputs == run_trial(trial, 2).outputs);
}

// The prediction of the plan is what really crosses each edge.
TEST(EngineBytes, EqualThePlan) {
  Trial trial;
  trial.options.sequence.grid = {3, 7, 11};
  trial.options.batch = 2;
  trial.options.sequence.text_tokens = 5;
  for (DType dtype : {DType::kF32, DType::kBf16}) {
    trial.options.dtype = dtype;
    const TrialResult result = run_trial(trial, 5);
    for (std::size_t from = 0; from < 5; ++from) {
      for (std::size_t to = 0; to < 5; ++to) {
        const auto calls = static_cast<std::int64_t>(result.outputs.size());
        EXPECT_EQ(result.sent[from][to], calls * result.plan.bytes_per_call[from][to]) << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace tulle
