#include "tulle/plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/memory.hpp"
#include "tests/support/errors.hpp"

namespace tulle {
namespace {

PlanRequest request_of(std::int64_t tokens, std::int64_t heads, std::int64_t ranks) {
  PlanRequest r;
  r.sequence.grid = {1, 1, static_cast<std::int32_t>(tokens)};
  r.heads = heads;
  r.head_dim = 64;
  r.layers = 2;
  r.hidden = heads * 64;
  r.ffn = 4 * r.hidden;
  r.ranks = ranks;
  return r;
}

std::string refusal(const PlanRequest& request) {
  return testing_data::message_of([&] { make_plan(request); });
}

void expect_mentions(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

RC_GTEST_PROP(SplitEvenly, CoversDisjointAndBalanced, ()) {
  const std::int64_t count = *rc::gen::inRange<std::int64_t>(0, 200000);
  const std::int64_t parts = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto ranges = split_evenly(count, parts);
  RC_ASSERT(static_cast<std::int64_t>(ranges.size()) == parts);
  std::int64_t at = 0, previous = ranges[0].size();
  for (const Range& r : ranges) {
    RC_ASSERT(r.begin == at);
    RC_ASSERT(r.size() <= previous);
    RC_ASSERT(r.size() >= ranges[0].size() - 1);
    previous = r.size();
    at = r.end;
  }
  RC_ASSERT(at == count);
}

TEST(SplitEvenly, RefusesNonsense) {
  EXPECT_THROW(split_evenly(5, 0), Error);
  EXPECT_THROW(split_evenly(-1, 2), Error);
}

// Field case: 57,826 tokens on 8 ranks must stay 57,826.
TEST(SplitEvenly, RaggedCountsOfTheField) {
  for (const auto& [count, parts] : {std::pair<std::int64_t, std::int64_t>{57826, 8}, {14310, 4}, {8423, 8}}) {
    std::int64_t total = 0;
    for (const Range& r : split_evenly(count, parts)) total += r.size();
    EXPECT_EQ(total, count);
  }
}

TEST(MakePlan, UnevenHeadsAndRaggedTokens) {
  const Plan plan = make_plan(request_of(97, 6, 5));
  EXPECT_EQ(plan.parallel, "ulysses");
  EXPECT_EQ(plan.heads, (std::vector<Range>{{0, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(plan.tokens, (std::vector<Range>{{0, 20}, {20, 40}, {40, 59}, {59, 78}, {78, 97}}));
  // From rank 1 (20 tokens, 1 head) to rank 0 (20 tokens, 2 heads): 3 * 20 * 2 rows of q, k, v and 20 * 1 rows of O.
  EXPECT_EQ(plan.bytes_per_call[1][0], (3 * 20 * 2 + 20 * 1) * 64 * 4);
  EXPECT_EQ(plan.bytes_per_call[0][1], (3 * 20 * 1 + 20 * 2) * 64 * 4);
}

TEST(MakePlan, OneRankSendsNothing) {
  const Plan plan = make_plan(request_of(97, 6, 1));
  EXPECT_EQ(plan.parallel, "single");
  EXPECT_EQ(plan.bytes_per_call, (std::vector<std::vector<std::int64_t>>{{0}}));
}

// Each of Q, K, V and O leaves its rank once for every (token, head) whose owners differ, and never twice.
RC_GTEST_PROP(MakePlan, BytesConserve, ()) {
  PlanRequest request = request_of(*rc::gen::inRange<std::int64_t>(1, 5000), *rc::gen::inRange<std::int64_t>(1, 41), 1);
  request.sequence.text_tokens = *rc::gen::element<std::int64_t>(0, 1, 97, 512);
  request.element_bytes = *rc::gen::element<std::int64_t>(2, 4);
  request.batch = *rc::gen::inRange<std::int64_t>(1, 4);
  const std::int64_t n = request.sequence.tokens();
  request.ranks = *rc::gen::inRange<std::int64_t>(1, std::min(request.heads, n) + 1);
  const Plan plan = make_plan(request);

  std::int64_t stay = 0, sent = 0;
  for (std::size_t r = 0; r < plan.tokens.size(); ++r) {
    RC_ASSERT(plan.tokens[r].size() >= 1);
    RC_ASSERT(plan.heads[r].size() >= 1);
    RC_ASSERT(plan.bytes_per_call[r][r] == 0);
    stay += plan.tokens[r].size() * plan.heads[r].size();
    sent += std::accumulate(plan.bytes_per_call[r].begin(), plan.bytes_per_call[r].end(), std::int64_t{0});
  }
  RC_ASSERT(plan.tokens.back().end == n);
  RC_ASSERT(plan.heads.back().end == request.heads);
  RC_ASSERT(sent == 4 * (n * request.heads - stay) * request.head_dim * request.element_bytes * request.batch);
}

TEST(MakePlan, RefusalsNameTheDimensionAndTheNearestChoice) {
  expect_mentions(refusal(request_of(97, 6, 7)), {"7 ranks", "6 heads", "choice is 6"});
  expect_mentions(refusal(request_of(3, 6, 5)), {"5 ranks", "3 tokens", "choice is 3"});
  expect_mentions(refusal(request_of(3, 6, 9)), {"9 ranks", "6 heads", "choice is 3"});
  expect_mentions(refusal(request_of(97, 6, 0)), {"ranks is 0", "choice is 1"});
  expect_mentions(refusal(request_of(97, 0, 1)), {"heads is 0", "choice is 1"});
  PlanRequest odd = request_of(97, 6, 1);
  odd.element_bytes = 3;
  expect_mentions(refusal(odd), {"element size is 3", "choice is 4"});
}

TEST(MakePlan, RefusesSizesThatOverflow) {
  PlanRequest huge = request_of(1 << 24, 1 << 24, 1);
  huge.head_dim = 1 << 24;
  huge.hidden = 0;
  huge.ffn = 0;
  expect_mentions(refusal(huge), {"2^60 bytes"});
}

TEST(PlanHash, EqualPlansAgreeAndOthersDoNot) {
  const std::uint64_t h = hash(make_plan(request_of(97, 6, 3)));
  EXPECT_EQ(h, hash(make_plan(request_of(97, 6, 3))));
  EXPECT_NE(h, hash(make_plan(request_of(97, 6, 2))));
  EXPECT_NE(h, hash(make_plan(request_of(98, 6, 3))));
  EXPECT_NE(h, hash(make_plan(request_of(97, 7, 3))));
  PlanRequest half = request_of(97, 6, 3);
  half.element_bytes = 2;
  EXPECT_NE(h, hash(make_plan(half)));
}

TEST(Describe, OneLineARank) {
  const std::string text = describe(make_plan(request_of(97, 6, 3)));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  expect_mentions(text, {"rank 0 of 3 (ulysses): tokens 0 to 33, heads 0 to 2", "rank 2 of 3"});
}

TEST(PredictMemory, AddsUpByHand) {
  PlanRequest r = request_of(100, 3, 2);
  r.weight_bytes = 1000;
  const Plan plan = make_plan(r);
  const MemoryNeed need = predict_memory(r, plan);
  EXPECT_EQ(need.weights, 1000);
  EXPECT_EQ(need.activations, 100 * (6 * 192 + 768) * 4);
  // Rank 0: 50 tokens, 2 heads; rank 1: 50 tokens, 1 head. Masks: 2 blocks of 64 tokens, one word a row.
  const std::int64_t rows = 2 * 100 * 3 + (2 * 50 * 1 + 4 * 100 * 2) + (2 * 50 * 2 + 4 * 100 * 1);
  const std::int64_t packed = 3 * 2 * (100 + 64) * 64 * 4;  // all three heads fit the kernel's budget
  EXPECT_EQ(need.attention, rows * 64 * 4 + packed + 2 * 2 * 3 * 2 * 1 * 4);
  EXPECT_EQ(plan.peak_bytes, need.total());
}

RC_GTEST_PROP(PredictMemory, GrowsWithTokensAndBatch, ()) {
  PlanRequest r = request_of(*rc::gen::inRange<std::int64_t>(10, 5000), 6, *rc::gen::inRange<std::int64_t>(1, 7));
  const std::int64_t base = make_plan(r).peak_bytes;
  r.batch = 2;
  RC_ASSERT(make_plan(r).peak_bytes > base);
  RC_ASSERT(make_plan(r).peak_bytes <= 2 * base);
  r.batch = 1;
  r.sequence.grid.width += 64;
  RC_ASSERT(make_plan(r).peak_bytes > base);
}

}  // namespace
}  // namespace tulle
