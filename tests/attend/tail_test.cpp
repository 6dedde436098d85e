// The tail against its definition in double: every dropped group of tokens is one key and one value, the means, with
// the weight of the group's tokens.
#include "attend/attend_cpu.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "compare.hpp"
#include "tulle/error.hpp"

namespace tulle::cases {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

double dot(const ConstTensorView& q, std::int64_t i, const std::vector<double>& k, std::int64_t b, std::int64_t h) {
  double sum = 0;
  for (std::size_t c = 0; c < k.size(); ++c) sum += double(get(q, b, i, h, std::int64_t(c))) * k[c];
  return sum;
}

std::vector<double> mean(const ConstTensorView& x, std::int64_t b, std::int64_t h, std::int64_t first,
                         std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(x.head_dim()));
  for (std::int64_t t = first; t < first + count; ++t) {
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += get(x, b, t, h, std::int64_t(c)) / double(count);
  }
  return out;
}

struct Row {
  std::vector<double> out;
  double lse = kNothing;

  void add(double logit, const std::vector<double>& value) {
    const double top = std::max(lse, logit), a = std::exp(lse - top), b = std::exp(logit - top);
    if (out.empty()) out.resize(value.size());
    for (std::size_t c = 0; c < value.size(); ++c) out[c] = (a * out[c] + b * value[c]) / (a + b);
    lse = top + std::log(a + b);
  }
};

// Row i by the definition: kept and text keys one by one, then the means of what was left out.
Row by_definition(Problem& p, std::int32_t tail, std::int64_t b, std::int64_t h, std::int64_t i) {
  const BlockPartition& keys = p.mask->k();
  const double scale = p.c.scale != 0 ? double(p.c.scale) : 1 / std::sqrt(double(p.c.dim));
  Row row;
  const auto take = [&](std::int64_t first, std::int64_t count) {
    row.add(scale * dot(p.q.view, i, mean(p.k.view, b, h, first, count), b, h) + std::log(double(count)),
            mean(p.v.view, b, h, first, count));
  };
  for (std::int64_t j = 0; j < p.c.nk(); ++j) {
    if (is_seen(p, b, h, i, j)) take(j, 1);
  }
  const std::int64_t begin = keys.sequence.video_begin();
  for (std::int64_t g = 0; g < keys.sequence.grid.tokens() / tail; ++g) {
    const std::int64_t first = begin + g * tail;
    if (!p.mask->test(0, h, p.mask->q().block_of(i), keys.block_of(first))) take(first, tail);
  }
  return row;
}

void expect_definition(const AttentionCase& c, std::int32_t tail, double tolerance) {
  Problem p = make_problem(c, 7);
  const Threads threads(2);
  attend_cpu(p.args(), Dropped{.tail = tail}, threads);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.nq(); ++i) {
        const Row want = by_definition(p, tail, b, h, i);
        const float lse = p.lse[static_cast<std::size_t>(lse_index(p.q.view.shape, b, h, i))];
        if (want.out.empty()) {
          ASSERT_EQ(lse, float(kNothing));
          continue;
        }
        ASSERT_NEAR(lse, want.lse, tolerance) << c.name << " row " << i;
        for (std::int64_t x = 0; x < c.dim; ++x) {
          ASSERT_NEAR(get(p.out.view, b, i, h, x), want.out[static_cast<std::size_t>(x)], tolerance)
              << c.name << " row " << i;
        }
      }
    }
  }
}

AttentionCase tail_case(const char* name, double density) {
  return {.name = name,
          .batch = 2,
          .heads = 2,
          .dim = 16,
          .q_video = 70,
          .k_video = 90,
          .block_q = 16,
          .block_k = 16,
          .density = density};
}

TEST(Tail, FollowsItsDefinition) {
  for (const double density : {0.0, 0.3, 0.7, 1.0}) {
    for (const std::int32_t tail : {1, 4, 16}) expect_definition(tail_case("f32", density), tail, 2e-5);
  }
}

TEST(Tail, LeavesTextAloneAndKnowsWhereVideoBegins) {
  AttentionCase c = tail_case("prefix", 0.3);
  c.text = 11;
  c.placement = TextPlacement::kPrefix;
  expect_definition(c, 8, 2e-5);
  c.placement = TextPlacement::kSuffix;
  c.hidden = {3, 0};
  expect_definition(c, 8, 2e-5);
}

TEST(Tail, WorksInBf16AndOnAnyStride) {
  AttentionCase c = tail_case("bf16", 0.4);
  c.dtype = DType::kBf16;
  c.layout = Layout::kGaps;
  expect_definition(c, 8, 3e-2);
}

// Where the tokens of every group are alike, the tail is no approximation.
TEST(Tail, IsExactForConstantGroups) {
  const AttentionCase c = tail_case("constant", 0.3);
  Problem sparse = make_problem(c, 3), dense = make_problem(c, 3);
  for (Problem* p : {&sparse, &dense}) {
    for (Tensor* t : {&p->k, &p->v}) {
      for_each_element(t->view.shape, [&](auto b, auto token, auto h, auto i) {
        if (token < 88) set(t->view, b, token, h, i, get(t->view, b, token / 8 * 8, h, i));
      });
    }
    for (std::int64_t q = 0; q < p->mask->q_blocks(); ++q) {  // the last two tokens are no whole group: keep them
      for (std::int64_t h = 0; h < c.heads; ++h) p->mask->set(0, h, q, p->mask->k_blocks() - 1);
    }
  }
  const Threads threads(2);
  attend_cpu(sparse.args(), Dropped{.tail = 8}, threads);
  dense.mask->fill(true);
  attend_cpu(dense.args(), threads);
  for (std::size_t i = 0; i < dense.lse.size(); ++i) EXPECT_NEAR(sparse.lse[i], dense.lse[i], 1e-5);
  for_each_element(dense.out.view.shape, [&](auto b, auto t, auto h, auto i) {
    ASSERT_NEAR(get(sparse.out.view, b, t, h, i), get(dense.out.view, b, t, h, i), 1e-5);
  });
}

TEST(Tail, RefusesWhatItCannotDo) {
  Problem p = make_problem(tail_case("bad", 0.5));
  const Threads threads(1);
  EXPECT_THROW(attend_cpu(p.args(), Dropped{.tail = -1}, threads), Error);
  EXPECT_THROW(attend_cpu(p.args(), Dropped{.tail = 5}, threads), Error);
  AttentionArgs args = p.args();
  args.mask = nullptr;
  EXPECT_THROW(attend_cpu(args, Dropped{.tail = 8}, threads), Error);
}

}  // namespace
}  // namespace tulle::cases
