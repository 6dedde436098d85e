// attend_cpu against fp64: the table of cases, all tails, random shapes, every instruction set.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "attend/attend_cpu.hpp"
#include "attend/kernel_cpu.hpp"
#include "attend/tiles.hpp"
#include "compare.hpp"
#include "tests/support/errors.hpp"

namespace tulle::cases {
namespace {

const Threads& two_threads() {
  static const Threads threads(2);
  return threads;
}

class Table : public testing::TestWithParam<AttentionCase> {};

TEST_P(Table, ObeysTheErrorRule) {
  Problem p = make_problem(GetParam());
  expect_error_rule(p, two_threads());
}

std::vector<AttentionCase> small_cases() {
  auto all = attention_cases();
  std::erase_if(all, [](const AttentionCase& c) { return c.speed; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Attention, Table, testing::ValuesIn(small_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Tails, EveryCountOfKeysAndQueriesUpTo127) {
  for (std::int64_t n = 1; n < 128; ++n) {
    Problem keys = make_problem({.name = "keys", .dim = 16, .q_video = 5, .k_video = n}, n);
    expect_error_rule(keys, two_threads());
    Problem queries = make_problem({.name = "queries", .dim = 16, .q_video = n, .k_video = 19}, n);
    expect_error_rule(queries, two_threads());
  }
}

TEST(Tails, EveryTailOfASparseSequence) {
  for (std::int64_t tail = 1; tail < 128; tail += 6) {
    Problem p =
        make_problem({.name = "tail", .dim = 8, .q_video = 128 + tail, .k_video = 128 + tail, .density = 0.5}, tail);
    expect_error_rule(p, two_threads());
  }
}

TEST(Targets, EachInstructionSetObeysTheErrorRule) {
  const std::string best = attention_target();
  ASSERT_FALSE(cpu::targets().empty());
  EXPECT_EQ(best, cpu::targets().front());
  for (const char* name : cpu::targets()) {
    cpu::use_target(name);
    EXPECT_EQ(attention_target(), name);
    for (const AttentionCase& c : small_cases()) {
      if (c.batch * c.heads * c.nq() * c.nk() * c.dim > 4'000'000) continue;
      SCOPED_TRACE(std::string(name) + " " + c.name);
      Problem p = make_problem(c, 3);
      expect_error_rule(p, two_threads());
    }
  }
  cpu::use_target("");
  EXPECT_EQ(attention_target(), best);
  EXPECT_THROW(cpu::use_target("ABACUS"), Error);
}

// Matrix units: the emulated one everywhere, the real one where there is one, and both alike.
class Units : public testing::Test {
 protected:
  void TearDown() override { cpu::use_tile_unit(before_); }
  static std::vector<cpu::TileUnit> all() {
    std::vector<cpu::TileUnit> units = {cpu::TileUnit::kEmulated};
    if (cpu::has_amx()) units.push_back(cpu::TileUnit::kAmx);
    return units;
  }
  const cpu::TileUnit before_ = cpu::tile_unit();
};

AttentionCase in_bf16(AttentionCase c) {
  c.dtype = DType::kBf16;
  return c;
}

TEST_F(Units, ObeyTheErrorRule) {
  for (const cpu::TileUnit unit : all()) {
    cpu::use_tile_unit(unit);
    for (const AttentionCase& c : small_cases()) {
      if (c.batch * c.heads * c.nq() * c.nk() * c.dim > 2'000'000) continue;
      SCOPED_TRACE(std::string(c.name) + (unit == cpu::TileUnit::kAmx ? ", AMX" : ""));
      Problem p = make_problem(in_bf16(c), 3);
      expect_error_rule(p, two_threads());
    }
  }
}

TEST_F(Units, EveryTailOfKeysQueriesAndDepth) {
  for (const cpu::TileUnit unit : all()) {
    cpu::use_tile_unit(unit);
    for (std::int64_t n = 1; n < 128; n += 3) {
      Problem keys = make_problem(in_bf16({.name = "keys", .dim = 16, .q_video = 5, .k_video = n}), n);
      expect_error_rule(keys, two_threads());
      Problem queries = make_problem(in_bf16({.name = "queries", .dim = 16, .q_video = n, .k_video = 19}), n);
      expect_error_rule(queries, two_threads());
    }
    for (std::int64_t dim = 8; dim <= 256; dim += 8) {
      Problem p = make_problem(in_bf16({.name = "depth", .dim = dim, .q_video = 20, .k_video = 40}), dim);
      expect_error_rule(p, two_threads());
    }
  }
}

// A unit that rounds its sums otherwise may move a bf16 result to its neighbour.
TEST_F(Units, AmxAndItsEmulationAgree) {
  if (!cpu::has_amx()) GTEST_SKIP() << "no AMX here";
  for (const AttentionCase& c : small_cases()) {
    if (c.batch * c.heads * c.nq() * c.nk() * c.dim > 2'000'000) continue;
    Problem real = make_problem(in_bf16(c), 3), emulated = make_problem(in_bf16(c), 3);
    cpu::use_tile_unit(cpu::TileUnit::kAmx);
    attend_cpu(real.args(), two_threads());
    cpu::use_tile_unit(cpu::TileUnit::kEmulated);
    attend_cpu(emulated.args(), two_threads());
    for_each_element(real.out.view.shape, [&](auto b, auto t, auto h, auto i) {
      const float x = get(real.out.view, b, t, h, i), y = get(emulated.out.view, b, t, h, i);
      ASSERT_NEAR(x, y, std::abs(y) / 128 + 1e-6) << c.name;
    });
  }
}

TEST(Exp2, RelativeErrorIsBelowTwoTenMillionths) {
  for (const char* name : cpu::targets()) {
    cpu::use_target(name);
    std::vector<float> x, y;
    for (double t = -126; t <= 0; t += 126.0 / 400'000) x.push_back(static_cast<float>(t));
    y.resize(x.size());
    cpu::exp2_nonpositive(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(y[i] / std::exp2(double{x[i]}) - 1));
    EXPECT_LT(worst, 2e-7) << name;
    EXPECT_GT(worst, 1e-9) << "a worst error this small says that nothing was measured";
    const float edge[] = {0.0f, -200.0f, -std::numeric_limits<float>::infinity(), std::nanf("")};
    float result[4];
    cpu::exp2_nonpositive(edge, result, 4);
    EXPECT_EQ(result[0], 1.0f);
    EXPECT_EQ(result[1], 0x1p-126f);
    EXPECT_EQ(result[2], 0x1p-126f);
    EXPECT_TRUE(std::isnan(result[3])) << name;
  }
  cpu::use_target("");
}

TEST(LargeLogits, TheSoftmaxDoesNotOverflow) {
  Problem p = make_problem({.name = "large", .q_video = 70, .k_video = 150, .scale = 40.0f});
  expect_error_rule(p, two_threads());
}

TEST(Empty, NoKeysGiveZeroAndMinusInfinity) {
  AttentionCase c{.name = "no_keys", .heads = 2, .q_video = 10, .k_video = 8};
  Problem p = make_problem(c);
  for (Tensor* t : {&p.k, &p.v}) t->view.shape[1] = 0;
  attend_cpu(p.args(), two_threads());
  for_each_element(p.out.view.shape,
                   [&](auto b, auto t, auto h, auto i) { ASSERT_EQ(get(p.out.view, b, t, h, i), 0.0f); });
  for (const float x : p.lse) ASSERT_EQ(x, -std::numeric_limits<float>::infinity());
}

TEST(Empty, NoQueriesAndNoSamplesDoNothing) {
  Problem p = make_problem({.name = "none", .q_video = 10, .k_video = 8});
  p.q.view.shape[1] = p.out.view.shape[1] = 0;
  attend_cpu(p.args(), two_threads());
  for (const float x : p.lse) ASSERT_TRUE(std::isnan(x));
}

void expect_refused(Problem& p, const std::string& word) {
  const std::string message = testing_data::message_of([&] { attend_cpu(p.args(), two_threads()); }, std::nullopt);
  EXPECT_NE(message.find(word), std::string::npos) << "about " << word << ": " << message;
}

TEST(Check, NamesWhatDoesNotFit) {
  const AttentionCase c{.name = "c", .batch = 2, .heads = 2, .q_video = 70, .k_video = 70, .density = 0.5};
  const auto broken = [&](const std::string& word, auto&& breaking) {
    Problem p = make_problem(c);
    breaking(p);
    expect_refused(p, word);
  };
  broken("head_dim", [](Problem& p) { p.k.view.shape[3] = 32; });
  broken("heads", [](Problem& p) { p.v.view.shape[2] = 1; });
  broken("tokens", [](Problem& p) { p.v.view.shape[1] = 69; });
  broken("samples", [](Problem& p) { p.out.view.shape[0] = 1; });
  broken("stride", [](Problem& p) { p.q.view.stride[3] = 2; });
  broken("no memory", [](Problem& p) { p.k.view.data = nullptr; });
  broken("one type", [](Problem& p) { p.k.view.dtype = DType::kBf16; });
  broken("all as bf16", [](Problem& p) { p.out.view.dtype = DType::kBf16; });
  broken("scale", [](Problem& p) { p.c.scale = std::numeric_limits<float>::infinity(); });
  broken("one range per sample", [](Problem& p) { p.hidden = {{0, 3}}; });
  broken("hidden key range", [](Problem& p) { p.hidden = {{0, 3}, {5, 71}}; });
  broken("key tokens", [&](Problem& p) {
    AttentionCase other = c;
    other.k_video = 60;
    p.mask = make_mask(other, 64, 64);
  });
  broken("query tokens", [&](Problem& p) {
    AttentionCase other = c;
    other.q_video = 60;
    p.mask = make_mask(other, 64, 64);
  });
  broken("mask has 3 heads", [&](Problem& p) {
    AttentionCase other = c;
    other.heads = 3;
    p.mask = make_mask(other, 64, 64);
  });
  broken("multiple of 8", [](Problem& p) {
    for (Tensor* t : {&p.q, &p.k, &p.v, &p.out}) t->view.shape[3] = 60;
  });
}

TEST(Workspace, IsBoundedByTheBudgetOrByOneHead) {
  const auto bytes = [](std::int64_t heads, std::int64_t tokens, int threads) {
    AttentionArgs args;
    static float any;
    args.q = args.k = args.v = ConstTensorView{&any, DType::kF32, {1, tokens, heads, 64}, {0, 0, 0, 1}};
    args.out = TensorView{&any, DType::kF32, {1, tokens, heads, 64}, {0, 0, 0, 1}};
    return static_cast<double>(attention_workspace_bytes(args, threads));
  };
  EXPECT_LT(bytes(40, 4096, 1), 26 << 20);
  EXPECT_LT(bytes(1, 100'000, 1), 1.1 * 2 * 100'000 * 64 * 4);
  EXPECT_GT(bytes(1, 100'000, 1), 2.0 * 100'000 * 64 * 4);
  EXPECT_GT(bytes(6, 4096, 8), bytes(6, 4096, 1));
}

RC_GTEST_PROP(RandomShapes, ObeyTheErrorRule, ()) {
  AttentionCase c{.name = "random"};
  c.batch = *rc::gen::inRange(1, 3);
  c.heads = *rc::gen::inRange(1, 4);
  c.dim = 8 * *rc::gen::inRange(1, 6);
  c.q_video = *rc::gen::inRange(1, 120);
  c.k_video = *rc::gen::inRange(1, 120);
  c.text = *rc::gen::inRange(0, 40);
  c.placement = *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix);
  c.block_q = *rc::gen::inRange(1, 80);
  c.block_k = *rc::gen::inRange(1, 80);
  c.density = *rc::gen::element(-1.0, 0.1, 0.5, 0.9);
  c.dtype = *rc::gen::element(DType::kF32, DType::kBf16);
  c.layout = *rc::gen::element(Layout::kPacked, Layout::kHeadsFirst, Layout::kGaps);
  if (c.text > 0) c.hidden.assign(c.batch, *rc::gen::inRange<std::int64_t>(0, c.text));
  Problem p = make_problem(c, *rc::gen::arbitrary<std::uint32_t>());
  expect_error_rule(p, two_threads());
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace
}  // namespace tulle::cases
