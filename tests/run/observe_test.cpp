// What an observer of attention calls is shown.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "tests/run/engine_fixture.hpp"

namespace tulle {
namespace {

struct Seen {
  std::int32_t step = 0, layer = 0;
  std::int64_t first_head = 0;
  Tensor q, k;
  bool masked = false;
};

Tensor copy_of(ConstTensorView view) {
  Tensor t(view.dtype, view.shape);
  for (std::int64_t i = 0; i < view.tokens(); ++i) {
    for (std::int64_t h = 0; h < view.heads(); ++h) {
      const float* from = view.row<float>(0, i, h);
      float* to = t.view().row<float>(0, i, h);
      std::copy_n(from, view.head_dim(), to);
    }
  }
  return t;
}

// One call per (step, layer) on `ranks` ranks; what rank 0.. saw, ordered by first head.
std::vector<Seen> observe(const Trial& trial, int ranks, const AttendObserver& extra = {}) {
  std::vector<Seen> seen;
  std::mutex mutex;
  const TrialPrologue weights(trial);
  Tensor q = input_of(trial, 0, 0, Branch::kConditional, 0), k = input_of(trial, 0, 0, Branch::kConditional, 1);
  Tensor v = input_of(trial, 0, 0, Branch::kConditional, 2), out(trial.options.dtype, trial.shape());
  run_ranks(ranks, 20, [&](Fabric& fabric) {
    const Threads threads(1);
    Engine engine(trial.options, fabric, threads);
    engine.on_attend([&](const AttendCall& call, std::int64_t first_head, ConstTensorView fq, ConstTensorView fk,
                         const BlockMask* mask) {
      if (extra) extra(call, first_head, fq, fk, mask);
      const std::lock_guard lock(mutex);
      seen.push_back({call.step, call.layer, first_head, copy_of(fq), copy_of(fk), mask != nullptr});
    });
    const Range local = engine.local_tokens();
    AttendCall call;
    call.step = 1, call.steps = 2, call.layer = 1;
    if (trial.prologue) call.prologue = weights.at(local.begin, trial.options.head_dim);
    engine.attend(call, q.view(local), k.view(local), v.view(local), out.view(local));
    if (!extra) return;
    EXPECT_LT(engine.stats().attention_s + engine.stats().select_s, 0.2);
  });
  std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) { return a.first_head < b.first_head; });
  return seen;
}

TEST(Observer, SeesWhatAttentionSees) {
  Trial trial;
  const std::vector<Seen> seen = observe(trial, 1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].step, 1);
  EXPECT_EQ(seen[0].layer, 1);
  EXPECT_FALSE(seen[0].masked);
  EXPECT_EQ(seen[0].q, input_of(trial, 0, 0, Branch::kConditional, 0));
  EXPECT_EQ(seen[0].k, input_of(trial, 0, 0, Branch::kConditional, 1));
}

TEST(Observer, RanksSeeTheirHeadsOfAllTokensAfterTheQkPrologue) {
  Trial trial;
  trial.prologue = true;
  const Seen whole = observe(trial, 1).at(0);
  EXPECT_NE(whole.q, input_of(trial, 0, 0, Branch::kConditional, 0)) << "the prologue changes q";
  const std::vector<Seen> parts = observe(trial, 3);
  ASSERT_EQ(parts.size(), 3u);
  for (const Seen& part : parts) {
    ASSERT_EQ(part.q.shape[1], trial.options.sequence.tokens());
    Tensor q = part.q, all = whole.q;
    for (std::int64_t h = 0; h < q.shape[2]; ++h) {
      const float* mine = q.view().row<float>(0, 100, h);
      EXPECT_TRUE(std::equal(mine, mine + q.shape[3], all.view().row<float>(0, 100, part.first_head + h)));
    }
  }
}

TEST(Observer, IsGivenTheMaskAndItsTimeIsNotCounted) {
  Trial trial;
  trial.options.policy = small_blocks("dfsattn");
  const auto slow = [](const AttendCall&, std::int64_t, ConstTensorView, ConstTensorView, const BlockMask*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  const std::vector<Seen> seen = observe(trial, 1, slow);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].masked);
}

TEST(Observer, WhatItThrowsLeavesTheCall) {
  Trial trial;
  const auto broken = [](const AttendCall&, std::int64_t, ConstTensorView, ConstTensorView, const BlockMask*) {
    throw Error(ErrorCode::kCancelled, "no more");
  };
  EXPECT_THROW(observe(trial, 1, broken), Error);
}

}  // namespace
}  // namespace tulle
