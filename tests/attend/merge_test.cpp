// merge_parts, attention_flops and the reference itself.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numbers>

#include "compare.hpp"
#include "tulle/error.hpp"

namespace tulle::cases {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Two problems over the same tensors, one with the kept blocks of `whole`, where side(j), the other where not.
template <class Side>
std::pair<Problem, Problem> split_keys(const AttentionCase& c, Side&& side) {
  std::pair<Problem, Problem> parts{make_problem(c), make_problem(c)};
  for (Problem* p : {&parts.first, &parts.second}) {
    BlockMask& mask = *p->mask;
    for (std::int64_t n = 0; n < mask.heads() * mask.q_blocks() * mask.k_blocks(); ++n) {
      const std::int64_t j = n % mask.k_blocks(), i = n / mask.k_blocks() % mask.q_blocks();
      if (side(i, j) != (p == &parts.first)) mask.set(0, n / (mask.k_blocks() * mask.q_blocks()), i, j, false);
    }
  }
  return parts;
}

template <class Side>
void expect_merge_equals_whole(double density, Side&& side) {
  const AttentionCase c = ragged_case("merge", density);
  Problem whole = make_problem(c);
  auto [a, b] = split_keys(c, side);
  const Threads threads(2);
  for (Problem* p : {&whole, &a, &b}) attend_cpu(p->args(), threads);
  merge_parts(a.out.view, a.lse.data(), b.out.view, b.lse.data());
  const Exact truth = exact(whole);
  EXPECT_LE(distance_of_kernel(a, truth).relative(), 2 * distance_of_kernel(whole, truth).relative() + 1e-6);
  EXPECT_LE(distance_of_kernel(a, truth).largest, 2 * distance_of_kernel(whole, truth).largest + 1e-6);
  expect_lse(a.lse, truth.lse);
}

TEST(Merge, SplitKeySetsEqualTheWhole) {
  expect_merge_equals_whole(1.0, [](auto, auto j) { return j < 4; });
  expect_merge_equals_whole(1.0, [](auto, auto j) { return j % 2 == 0; });
  expect_merge_equals_whole(0.5, [](auto i, auto j) { return (i + j) % 3 == 0; });
  expect_merge_equals_whole(0.1, [](auto i, auto) { return i % 2 == 0; });  // one side of each row is empty
}

TEST(Merge, AnEmptyPartChangesNoBit) {
  Problem a = make_problem({.name = "a", .heads = 2, .q_video = 30, .k_video = 40});
  Problem empty = make_problem({.name = "e", .heads = 2, .q_video = 30, .k_video = 40, .density = 0});
  const Threads threads(1);
  for (Problem* p : {&a, &empty}) attend_cpu(p->args(), threads);
  const auto out = a.out.bytes;
  const auto lse = a.lse;
  merge_parts(a.out.view, a.lse.data(), empty.out.view, empty.lse.data());
  EXPECT_EQ(a.out.bytes, out);
  EXPECT_EQ(a.lse, lse);
  merge_parts(empty.out.view, empty.lse.data(), a.out.view, a.lse.data());
  EXPECT_EQ(empty.out.bytes, out);
  EXPECT_EQ(empty.lse, lse);
}

TEST(Merge, TwoEmptyPartsStayEmpty) {
  float out[8] = {}, other[8] = {1, 1, 1, 1, 1, 1, 1, 1}, lse = kNothing, other_lse = kNothing;
  merge_parts(view_of(out, {1, 1, 1, 8}), &lse, view_of<const float>(other, {1, 1, 1, 8}), &other_lse);
  EXPECT_EQ(lse, kNothing);
  for (const float x : out) EXPECT_EQ(x, 0.0f);
}

TEST(Merge, DistantAndHugeLogSumsDoNotOverflow) {
  float out[8] = {}, other[8] = {1, 1, 1, 1, 1, 1, 1, 1}, lse = 3e4f, other_lse = -3e4f;
  merge_parts(view_of(out, {1, 1, 1, 8}), &lse, view_of<const float>(other, {1, 1, 1, 8}), &other_lse);
  EXPECT_EQ(lse, 3e4f);
  EXPECT_EQ(out[0], 0.0f);
  lse = other_lse = 3e4f;
  merge_parts(view_of(out, {1, 1, 1, 8}), &lse, view_of<const float>(other, {1, 1, 1, 8}), &other_lse);
  EXPECT_EQ(lse, static_cast<float>(3e4 + std::numbers::ln2));
  EXPECT_EQ(out[0], 0.5f);
}

TEST(Merge, RefusesPartsThatDoNotFit) {
  float a[16] = {}, lse[2] = {};
  EXPECT_THROW(merge_parts(view_of(a, {1, 2, 1, 8}), lse, view_of<const float>(a, {1, 1, 1, 8}), lse), Error);
  EXPECT_THROW(merge_parts(view_of(a, {1, 2, 1, 8}), nullptr, view_of<const float>(a, {1, 2, 1, 8}), lse), Error);
  Bf16 half[16] = {};
  EXPECT_THROW(merge_parts(view_of(half, {1, 2, 1, 8}), lse, view_of<const float>(a, {1, 2, 1, 8}), lse), Error);
}

RC_GTEST_PROP(MergeProperty, IsTheExactCombinationToOneRounding, ()) {
  const auto pick = [] { return static_cast<float>(*rc::gen::inRange(-9000, 9000)) / 100.0f; };
  const float la = pick(), lb = pick(), xa = pick(), xb = pick();
  float out[8] = {xa}, other[8] = {xb}, lse = la, other_lse = lb;
  merge_parts(view_of(out, {1, 1, 1, 8}), &lse, view_of<const float>(other, {1, 1, 1, 8}), &other_lse);
  const long double wa = std::exp(static_cast<long double>(la)), wb = std::exp(static_cast<long double>(lb));
  const long double x = (wa * xa + wb * xb) / (wa + wb), l = std::log(wa + wb);
  RC_ASSERT(std::abs(out[0] - x) <=
            1.2e-7L * std::max(std::abs(x), 1e-12L * (std::abs((long double)xa) + std::abs((long double)xb))) + 1e-12L);
  RC_ASSERT(std::abs(lse - l) <= 1.2e-7L * std::abs(l) + 1e-9L);
}

TEST(Flops, AreFourTimesDimTimesSeenPairs) {
  Problem dense = make_problem({.name = "d", .batch = 2, .heads = 3, .dim = 40, .q_video = 33, .k_video = 57});
  EXPECT_EQ(attention_flops(dense.args()), 4.0 * 40 * 2 * 3 * 33 * 57);
}

TEST(Flops, CountEachPairThatTheReferenceSees) {
  for (const double density : {-1.0, 0.0, 0.4, 1.0}) {
    Problem p = make_problem({.name = "s",
                              .batch = 2,
                              .heads = 2,
                              .dim = 8,
                              .q_video = 90,
                              .k_video = 101,
                              .text = 21,
                              .block_q = 16,
                              .block_k = 24,
                              .density = density,
                              .hidden = {0, 13}});
    double pairs = 0;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t n = 0; n < 2 * p.c.nq() * p.c.nk(); ++n) {
        pairs += is_seen(p, b, n / (p.c.nq() * p.c.nk()), n / p.c.nk() % p.c.nq(), n % p.c.nk());
      }
    }
    EXPECT_EQ(attention_flops(p.args()), 4.0 * 8 * pairs) << density;
  }
}

// By hand: two keys with logits ln 1 and ln 3 give weights 1/4 and 3/4.
TEST(Reference, GivesWhatOneCanComputeByHand) {
  float q[8] = {1}, k[16] = {}, v[16] = {}, out[8];
  k[8] = std::log(3.0f);
  v[0] = 8;
  v[8] = 16;
  double lse = 0, out64[8];
  AttentionArgs args{view_of<const float>(q, {1, 1, 1, 8}), view_of<const float>(k, {1, 2, 1, 8}),
                     view_of<const float>(v, {1, 2, 1, 8}), view_of(out, {1, 1, 1, 8})};
  args.scale = 1;
  attend_reference(args, out64, &lse);
  EXPECT_NEAR(out64[0], 14.0, 1e-6);
  EXPECT_NEAR(lse, std::log(4.0), 1e-6);
  EXPECT_EQ(out[0], static_cast<float>(out64[0]));
}

TEST(Reference, ReadsF16AndRefusesOtherOutputs) {
  Problem f32 = make_problem({.name = "f32", .q_video = 20, .k_video = 30});
  Problem f16 = make_problem({.name = "f16", .q_video = 20, .k_video = 30, .dtype = DType::kF16});
  const Exact a = exact(f32), b = exact(f16);
  for (std::size_t i = 0; i < a.out.size(); ++i) ASSERT_NEAR(a.out[i], b.out[i], 4e-3);
  EXPECT_NE(a.out, b.out);
  EXPECT_THROW(attend_reference(f16.args()), Error);
  EXPECT_THROW(attend_cpu(f16.args(), Threads(1)), Error);
}

}  // namespace
}  // namespace tulle::cases
