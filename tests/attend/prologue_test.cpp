// rope_norm against a plain double computation of its two formulas.
#include "attend/prologue.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "attention_cases.hpp"
#include "tulle/error.hpp"

namespace tulle::cases {
namespace {

struct Rows {
  std::int64_t batch = 2, tokens = 75, heads = 3, dim = 40;
  std::vector<float> weight, cos, sin;
  Tensor in;
};

Rows make_rows(DType dtype, Layout layout) {
  Rows s;
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < s.heads * s.dim; ++i) s.weight.push_back(1 + 0.2f * normal(random));
  for (std::int64_t i = 0; i < s.tokens * s.dim / 2; ++i) {
    const float angle = 3 * normal(random);
    s.cos.push_back(std::cos(angle));
    s.sin.push_back(std::sin(angle));
  }
  s.in = make_tensor({s.batch, s.tokens, s.heads, s.dim}, dtype, layout);
  fill_normal(s.in.view, random, 3);
  return s;
}

double expected(const Rows& s, bool norm, bool rotate, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i) {
  double sum = 0;
  for (std::int64_t n = 0; n < s.heads * s.dim; ++n) {
    const double x = get(s.in.view, b, t, n / s.dim, n % s.dim);
    sum += x * x;
  }
  const double factor = norm ? 1 / std::sqrt(sum / static_cast<double>(s.heads * s.dim) + 1e-6) : 1;
  const auto value = [&](std::int64_t at) {
    return get(s.in.view, b, t, h, at) * factor * (norm ? s.weight[h * s.dim + at] : 1);
  };
  if (!rotate) return value(i);
  const std::int64_t pair = i / 2;
  const double c = s.cos[t * s.dim / 2 + pair], sn = s.sin[t * s.dim / 2 + pair];
  return i % 2 == 0 ? value(i) * c - value(i + 1) * sn : value(i - 1) * sn + value(i) * c;
}

void expect_prologue(DType in, DType out, Layout layout, bool norm, bool rotate) {
  const Rows s = make_rows(in, layout);
  Tensor to = make_tensor(s.in.view.shape, out, layout);
  rope_norm(s.in.view, norm ? s.weight.data() : nullptr, 1e-6f, rotate ? s.cos.data() : nullptr,
            rotate ? s.sin.data() : nullptr, to.view, Threads(2));
  for_each_element(s.in.view.shape, [&](auto b, auto t, auto h, auto i) {
    const double truth = expected(s, norm, rotate, b, t, h, i);
    const double bound = out == DType::kF32 ? 1e-6 * (1 + std::abs(truth)) * 3 : 0.0040 * std::abs(truth) + 1e-6;
    ASSERT_NEAR(get(to.view, b, t, h, i), truth, bound);
  });
}

TEST(Prologue, NormalizesAndRotates) {
  for (const bool norm : {false, true}) {
    for (const bool rotate : {false, true}) {
      expect_prologue(DType::kF32, DType::kF32, Layout::kPacked, norm, rotate);
      expect_prologue(DType::kF32, DType::kBf16, Layout::kGaps, norm, rotate);
      expect_prologue(DType::kBf16, DType::kF32, Layout::kHeadsFirst, norm, rotate);
      expect_prologue(DType::kF16, DType::kF32, Layout::kPacked, norm, rotate);
    }
  }
}

TEST(Prologue, WithoutBothPartsItCopies) {
  const Rows s = make_rows(DType::kF32, Layout::kGaps);
  Tensor to = make_tensor(s.in.view.shape, DType::kF32, Layout::kPacked);
  rope_norm(s.in.view, nullptr, 0, nullptr, nullptr, to.view, Threads(1));
  for_each_element(s.in.view.shape, [&](auto b, auto t, auto h, auto i) {
    ASSERT_EQ(get(to.view, b, t, h, i), get(s.in.view, b, t, h, i));
  });
}

TEST(Prologue, ARowIsTheSameWhoeverComputesIt) {
  const Rows s = make_rows(DType::kF32, Layout::kPacked);
  Tensor all = make_tensor(s.in.view.shape, DType::kF32, Layout::kPacked);
  rope_norm(s.in.view, s.weight.data(), 1e-6f, s.cos.data(), s.sin.data(), all.view, Threads(3));
  for (const std::int64_t t : {0, 31, 32, 74}) {
    ConstTensorView one = s.in.view;
    one.data = s.in.view.row<float>(1, t, 0);
    one.shape[0] = one.shape[1] = 1;
    Tensor to = make_tensor(one.shape, DType::kF32, Layout::kPacked);
    rope_norm(one, s.weight.data(), 1e-6f, s.cos.data() + t * s.dim / 2, s.sin.data() + t * s.dim / 2, to.view,
              Threads(1));
    for_each_element(
        one.shape, [&](auto, auto, auto h, auto i) { ASSERT_EQ(get(to.view, 0, 0, h, i), get(all.view, 1, t, h, i)); });
  }
}

TEST(Prologue, WorksInPlace) {
  Rows s = make_rows(DType::kF32, Layout::kPacked);
  Tensor to = make_tensor(s.in.view.shape, DType::kF32, Layout::kPacked);
  rope_norm(s.in.view, s.weight.data(), 1e-6f, s.cos.data(), s.sin.data(), to.view, Threads(2));
  rope_norm(s.in.view, s.weight.data(), 1e-6f, s.cos.data(), s.sin.data(), s.in.view, Threads(2));
  for_each_element(s.in.view.shape, [&](auto b, auto t, auto h, auto i) {
    ASSERT_EQ(get(to.view, b, t, h, i), get(s.in.view, b, t, h, i));
  });
}

TEST(Prologue, RefusesWhatDoesNotFit) {
  const Rows s = make_rows(DType::kF32, Layout::kPacked);
  Tensor to = make_tensor(s.in.view.shape, DType::kF32, Layout::kPacked);
  const Threads threads(1);
  EXPECT_THROW(rope_norm(s.in.view, nullptr, 0, s.cos.data(), nullptr, to.view, threads), Error);
  TensorView wrong = to.view;
  wrong.shape[1] -= 1;
  EXPECT_THROW(rope_norm(s.in.view, nullptr, 0, nullptr, nullptr, wrong, threads), Error);
  wrong = to.view;
  wrong.dtype = DType::kF16;
  EXPECT_THROW(rope_norm(s.in.view, nullptr, 0, nullptr, nullptr, wrong, threads), Error);
  wrong = to.view;
  wrong.stride[3] = 2;
  EXPECT_THROW(rope_norm(s.in.view, nullptr, 0, nullptr, nullptr, wrong, threads), Error);
}

}  // namespace
}  // namespace tulle::cases
