// The unconditional branch taken from the conditional one.
#include <gtest/gtest.h>

#include <algorithm>

#include "attend/attend_cpu.hpp"
#include "run/engine_fixture.hpp"
#include "tests/support/errors.hpp"

namespace tulle {
namespace {

using testing_data::message_of;

// Steps 2, 4 and 7 of 10 compute the unconditional branch, the others after 2 follow.
Trial following(std::int32_t fade) {
  Trial trial;
  trial.options.policy = small_blocks("dfsattn");
  trial.options.policy.schedule = {.reference_steps = 10, .dense_steps = 1, .interval = 3, .permille = {250}};
  trial.options.policy.follow = {.starts = {2, 4, 7}, .fade = fade};
  trial.options.sequence.grid = {3, 7, 11};
  trial.steps = 10;
  trial.steps_run = {0, 1, 2, 3, 4, 5, 6, 7, 9};
  return trial;
}

// The outputs of run_trial are of (step, layer, branch) in that order.
std::size_t at(const Trial& t, std::size_t step_run, std::int64_t layer, Branch branch) {
  return (step_run * static_cast<std::size_t>(t.options.layers) + static_cast<std::size_t>(layer)) * 2 +
         static_cast<std::size_t>(branch);
}

std::vector<float> floats(const Tensor& t) {
  const auto* x = reinterpret_cast<const float*>(t.bytes.data());
  return {x, x + t.bytes.size() / sizeof(float)};
}

TEST(Follow, IsTheOtherBranchPlusAFadingDifference) {
  const Trial trial = following(200);
  const TrialResult run = run_trial(trial, 1);
  struct Case {
    std::size_t step_run, made;
    float weight;
  };
  for (const Case& c : {Case{3, 2, 0.8f}, Case{5, 4, 0.8f}, Case{6, 4, 0.64f}, Case{8, 7, 0.64f}}) {
    for (std::int64_t layer = 0; layer < trial.options.layers; ++layer) {
      const auto got = floats(run.outputs[at(trial, c.step_run, layer, Branch::kUnconditional)]);
      const auto lead = floats(run.outputs[at(trial, c.step_run, layer, Branch::kConditional)]);
      const auto then = floats(run.outputs[at(trial, c.made, layer, Branch::kUnconditional)]);
      const auto lead_then = floats(run.outputs[at(trial, c.made, layer, Branch::kConditional)]);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], lead[i] + c.weight * (then[i] - lead_then[i]), 1e-5) << c.step_run << " layer " << layer;
      }
    }
  }
}

// Where it starts, and where the schedule keeps every block, the unconditional branch is dense attention.
TEST(Follow, ComputesAllBlocksAtItsStarts) {
  Trial trial = following(0), dense = trial;
  dense.options.policy = load_policy("dense");
  dense.options.policy.order = trial.options.policy.order;
  const TrialResult run = run_trial(trial, 1), truth = run_trial(dense, 1);
  for (const std::size_t step_run : {0, 2, 4, 7}) {
    const std::size_t call = at(trial, step_run, 1, Branch::kUnconditional);
    EXPECT_TRUE(run.outputs[call] == truth.outputs[call]) << step_run;
  }
  trial.options.policy.schedule.permille = {1000};
  EXPECT_TRUE(run_trial(trial, 1).outputs == truth.outputs);
}

TEST(Follow, CountsNothingWhereItFollows) {
  const Trial trial = following(0);
  const EngineStats books = run_trial(trial, 1).stats[0];
  EXPECT_EQ(books.kept_by_step[2], 0.5 * (books.kept_by_step[3] * 2 + books.all_by_step[2]));
  EXPECT_LT(books.kept_by_step[3], 0.2 * books.all_by_step[3]);
  std::vector<std::string> routes;
  for (const Route& r : books.routes) routes.push_back(r.what + ": " + r.route);
  for (const char* route : {"dense calls: difference", "unconditional branch: follow"}) {
    EXPECT_EQ(std::ranges::count(routes, route), 1) << route;
  }
}

// At a renewal the unconditional branch has the conditional one's mask, tail and residual.
TEST(Follow, RenewsWithTheBlocksAndTheResidualOfTheOtherBranch) {
  for (const bool residual : {false, true}) {
    SCOPED_TRACE(residual);
    Trial trial = following(100);
    Policy& p = trial.options.policy;
    p.residual = residual, p.tail = 8;
    p.follow.starts = {1}, p.follow.renew = 2;
    trial.steps_run = {0, 1, 2, 3, 4, 5};
    const TrialResult run = run_trial(trial, 1);
    EXPECT_EQ(std::ranges::count(run.stats[0].routes, std::string("renew"), &Route::route), 1);
    for (std::int64_t layer = 0; layer < trial.options.layers; ++layer) {
      const std::size_t renewed = at(trial, 3, layer, Branch::kUnconditional), lead = renewed - 1;
      ASSERT_EQ(run.masks[renewed][0].size(), 1u);
      EXPECT_TRUE(run.masks[renewed][0][0] == run.masks[lead][0][0]);
      // The residual of both: what the conditional output has beyond its blocks and tail.
      const auto bare = [&](Branch branch) {
        Tensor q = input_of(trial, 3, static_cast<std::int32_t>(layer), branch, 0),
               k = input_of(trial, 3, static_cast<std::int32_t>(layer), branch, 1),
               v = input_of(trial, 3, static_cast<std::int32_t>(layer), branch, 2), out(DType::kF32, trial.shape());
        AttentionArgs args;
        args.q = q.view(), args.k = k.view(), args.v = v.view(), args.out = out.view();
        args.mask = &run.masks[lead][0][0];
        attend_cpu(args, {.tail = 8}, Threads(1));
        return floats(out);
      };
      const auto c = bare(Branch::kConditional), u = bare(Branch::kUnconditional);
      const auto got_c = floats(run.outputs[lead]), got_u = floats(run.outputs[renewed]);
      double apart = 0;
      for (std::size_t i = 0; i < c.size(); ++i) {
        ASSERT_NEAR(got_u[i] - u[i], got_c[i] - c[i], 1e-5) << i;
        apart = std::max(apart, std::abs(double(got_c[i] - c[i])));
      }
      EXPECT_EQ(apart > 1e-4, residual);
    }
  }
}

TEST(Follow, IsEqualOnAnyNumberOfRanksAndExchangesNothing) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    Trial trial = following(50);
    trial.options.dtype = dtype;
    trial.options.policy.residual = true;
    trial.options.policy.tail = 8;
    trial.options.policy.follow.renew = 2;  // step 6
    const TrialResult one = run_trial(trial, 1);
    for (const int ranks : {2, 3, 5}) {
      const TrialResult many = run_trial(trial, ranks);
      EXPECT_TRUE(many.outputs == one.outputs) << ranks;
      const auto calls = static_cast<std::int64_t>(one.outputs.size()) - 2 * trial.options.layers;  // 3 and 5
      for (std::size_t p = 1; p < many.sent.size(); ++p) {
        EXPECT_EQ(many.sent[0][p], calls * many.plan.bytes_per_call[0][p]) << ranks << " ranks, to " << p;
      }
    }
  }
}

// One rank, one layer, by hand.
struct Pair {
  Pair() : trial(following(0)), fabric(make_self_fabric()), threads(1), engine(trial.options, *fabric, threads) {}
  Tensor run(std::int32_t step, Branch branch) {
    Tensor q = input_of(trial, step, 0, branch, 0), k = input_of(trial, step, 0, branch, 1),
           v = input_of(trial, step, 0, branch, 2), out(trial.options.dtype, trial.shape());
    engine.attend(call(step, branch), q.view(), k.view(), v.view(), out.view());
    return out;
  }
  Tensor both(std::int32_t step) {
    run(step, Branch::kConditional);
    return run(step, Branch::kUnconditional);
  }
  AttendCall call(std::int32_t step, Branch branch = Branch::kUnconditional) const {
    AttendCall c;
    c.step = step, c.steps = trial.steps, c.branch = branch;
    return c;
  }
  Trial trial;
  std::unique_ptr<Fabric> fabric;
  Threads threads;
  Engine engine;
};

TEST(Follow, NeedsNoInputs) {
  Pair with, without;
  with.both(2), without.both(2);
  const Tensor truth = with.both(3);
  without.run(3, Branch::kConditional);
  EXPECT_FALSE(without.engine.follows(without.call(3, Branch::kConditional)));
  ASSERT_TRUE(without.engine.follows(without.call(3)));
  Tensor out(without.trial.options.dtype, without.trial.shape());
  without.engine.follow(without.call(3), out.view());
  EXPECT_TRUE(out == truth);
}

// What is missing is computed, with all blocks: a step without its conditional call, one whose difference was never
// made, a video that starts again.
TEST(Follow, ComputesWhatItHasNothingFor) {
  const auto truth = [](std::int32_t step) {
    Trial dense = following(0);
    dense.options.policy = load_policy("dense");
    dense.options.policy.order = following(0).options.policy.order;
    dense.steps_run = {step};
    return run_trial(dense, 1).outputs[1];
  };
  Pair p;
  p.both(2);
  EXPECT_TRUE(p.run(3, Branch::kUnconditional) == truth(3)) << "no conditional call at this step";
  EXPECT_TRUE(p.both(5) == truth(5)) << "the difference is of another interval";
  EXPECT_FALSE(p.both(6) == truth(6));
  EXPECT_TRUE(p.both(5) == truth(5)) << "a video that has gone back";
  p.engine.reset();
  EXPECT_TRUE(p.both(6) == truth(6)) << "a new video";
}

TEST(Follow, IsRefusedWhereThereIsNothingToFollow) {
  Pair p;
  Tensor out(p.trial.options.dtype, p.trial.shape());
  const std::string message = message_of([&] { p.engine.follow(p.call(3), out.view()); }, ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("step 3 of 10, layer 0, unconditional"), std::string::npos) << message;
  EXPECT_THROW(p.engine.follows(p.call(10)), Error);
}

}  // namespace
}  // namespace tulle
