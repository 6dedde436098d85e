// Masks remembered over steps: whatever the step count, branches, shapes and interruptions, a call gets the mask that
// a fresh run would have chosen at the first step of its interval.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>

#include "select/selector.hpp"
#include "select_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::noise;
using testing_data::small_policy;
using testing_data::Tokens;

constexpr int kLayers = 3;  // layer 0 is dense in the preset

const Threads& one_thread() {
  static const Threads threads(1);
  return threads;
}

struct Run {
  Policy policy = small_policy();
  std::vector<Sequence> shapes;
  int steps = 1;
  bool guidance = false;
  std::uint32_t seed = 0;  // of the video

  std::uint32_t data_seed(const SelectCall& call) const {
    const auto branch = static_cast<std::uint32_t>(call.branch);
    return seed + 17 * call.step + 5 * call.layer + 1009 * branch + 3 * call.partition.sequence.grid.width;
  }
};

BlockMask fresh_mask(const Run& run, SelectCall call) {
  // The first step of the interval in which the call stands.
  const StepRule rule = rule_for(run.policy, call.step, call.steps, call.layer);
  while (call.step > 0 && rule_for(run.policy, call.step - 1, call.steps, call.layer).interval_id == rule.interval_id) {
    --call.step;
  }
  const std::array<std::int64_t, 4> shape = {1, call.partition.tokens(), 2, 8};
  const Tokens q = noise(shape, run.data_seed(call)), k = noise(shape, run.data_seed(call) + 1);
  return choose_mask(run.policy, call, rule.permille, q.view(), k.view(), one_thread());
}

void check_one(const Run& run, Selector& selector, const SelectCall& call) {
  const std::array<std::int64_t, 4> shape = {1, call.partition.tokens(), 2, 8};
  const Tokens q = noise(shape, run.data_seed(call)), k = noise(shape, run.data_seed(call) + 1);
  const BlockMask* mask = selector.choose(call, q.view(), k.view(), one_thread());
  const bool dense = rule_for(run.policy, call.step, call.steps, call.layer).dense;
  RC_ASSERT((mask == nullptr) == dense);
  if (!dense) RC_ASSERT(*mask == fresh_mask(run, call));
}

// Runs steps [0, end) of one video.
void check_run(const Run& run, Selector& selector, int end) {
  for (int step = 0; step < end; ++step)
    for (int layer = 0; layer < kLayers; ++layer)
      for (const Sequence& s : run.shapes)
        for (Branch branch : {Branch::kConditional, Branch::kUnconditional}) {
          if (branch == Branch::kUnconditional && !run.guidance) continue;
          check_one(run, selector, {step, run.steps, layer, branch, {s, run.policy.block_q}});
        }
}

Run any_run() {
  Run run;
  run.shapes = {{{2, 3, 5}, 0, TextPlacement::kSuffix}};
  if (*rc::gen::arbitrary<bool>()) run.shapes.push_back({{1, 4, 8}, 3, TextPlacement::kPrefix});
  run.steps = *rc::gen::inRange(1, 101);
  run.guidance = *rc::gen::arbitrary<bool>();
  run.seed = *rc::gen::inRange<std::uint32_t>(0, 100000);
  return run;
}

RC_GTEST_PROP(Selector, AnyStepsBranchesAndShapes, ()) {
  const Run run = any_run();
  Selector selector(run.policy);
  check_run(run, selector, run.steps);
}

RC_GTEST_PROP(Selector, AnAbortedRunLeavesNothingBehind, ()) {
  const Run aborted = any_run();
  Run next = aborted;
  next.seed += 50000;  // another video of the same shape
  Selector selector(aborted.policy);
  check_run(aborted, selector, *rc::gen::inRange(0, aborted.steps + 1));
  if (*rc::gen::arbitrary<bool>()) {
    selector.reset();
    RC_ASSERT(selector.cached_masks() == 0u);
  }
  check_run(next, selector, next.steps);  // holds without reset as well
}

SelectCall call_at(int step, int layer = 1, Branch branch = Branch::kConditional) {
  return {step, 50, layer, branch, {{{2, 3, 5}, 0, TextPlacement::kSuffix}, 8}};
}

TEST(Selector, ChoosesOncePerInterval) {
  Selector selector(small_policy());
  const Tokens q = noise({1, 30, 2, 8}, 1);
  int chosen = 0;
  for (int step = 0; step < 50; ++step) {
    const BlockMask* mask = selector.choose(call_at(step), q.view(), q.view(), one_thread());
    ASSERT_EQ(mask == nullptr, step < 12);
    chosen += mask != nullptr && !selector.last_was_cached();
    EXPECT_EQ(selector.last_was_cached(), step > 12 && step != 24 && step != 36);
  }
  EXPECT_EQ(chosen, 3);  // at steps 12, 24 and 36: the last density keeps its mask
  EXPECT_EQ(selector.cached_masks(), 1u);
}

TEST(Selector, BranchesAndLayersHaveMasksOfTheirOwn) {
  Selector selector(small_policy());
  const Tokens q = noise({1, 30, 2, 8}, 1), other = noise({1, 30, 2, 8}, 2);
  const BlockMask* first = selector.choose(call_at(12), q.view(), q.view(), one_thread());
  const BlockMask* second =
      selector.choose(call_at(12, 1, Branch::kUnconditional), other.view(), other.view(), one_thread());
  EXPECT_FALSE(selector.last_was_cached());
  selector.choose(call_at(12, 2), q.view(), q.view(), one_thread());
  EXPECT_FALSE(selector.last_was_cached());
  EXPECT_EQ(selector.cached_masks(), 3u);
  EXPECT_FALSE(*first == *second);
}

TEST(Selector, TheSameStepAgainIsChosenAgain) {
  Selector selector(small_policy());
  const Tokens q = noise({1, 30, 2, 8}, 1);
  selector.choose(call_at(13), q.view(), q.view(), one_thread());
  selector.choose(call_at(13), q.view(), q.view(), one_thread());
  EXPECT_FALSE(selector.last_was_cached());
  selector.choose(call_at(14), q.view(), q.view(), one_thread());
  EXPECT_TRUE(selector.last_was_cached());
}

TEST(Selector, DenseCallsReadNothing) {
  Selector dense(load_policy("dense"));
  EXPECT_EQ(dense.choose({0, 1, 0, Branch::kConditional, {}}, {}, {}, one_thread()), nullptr);
}

TEST(Selector, MemoryIsBounded) {
  Selector selector(small_policy());
  const Tokens q = noise({1, 30, 1, 8}, 1);
  const int layers = static_cast<int>(Selector::kCapacity) + 40;
  for (int layer = 1; layer <= layers; ++layer) {
    selector.choose(call_at(12, layer), q.view(), q.view(), one_thread());
  }
  EXPECT_EQ(selector.cached_masks(), Selector::kCapacity);
  selector.choose(call_at(13, layers), q.view(), q.view(), one_thread());
  EXPECT_TRUE(selector.last_was_cached());
  selector.choose(call_at(13, 1), q.view(), q.view(), one_thread());  // the oldest was dropped
  EXPECT_FALSE(selector.last_was_cached());
}

TEST(Selector, RefusesBadPolicies) {
  Policy p = small_policy();
  p.schedule.permille = {0};
  EXPECT_THROW(Selector{p}, Error);
  p = small_policy();
  p.sub_block = 3;
  EXPECT_THROW(Selector{p}, Error);
}

}  // namespace
}  // namespace tulle
