#include "dit/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/half.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

std::vector<float> random_values(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

double activate(double x, Activation a) {
  if (a == Activation::kNone) return x;
  if (a == Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

std::vector<double> reference(const LinearSpec& s, const std::vector<float>& x, const std::vector<float>& w,
                              const std::vector<float>& b, std::int64_t rows) {
  std::vector<double> y(static_cast<std::size_t>(rows * s.outputs));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      double sum = b[o];
      for (std::int64_t i = 0; i < s.inputs; ++i) sum += double{x[r * s.inputs + i]} * w[o * s.inputs + i];
      y[r * s.outputs + o] = activate(sum, s.activation);
    }
  }
  return y;
}

double relative_l2(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

std::vector<Bf16> rounded(const std::vector<float>& v) {
  std::vector<Bf16> out;
  for (float x : v) out.push_back(from_f32<Bf16>(x));
  return out;
}
std::vector<float> widened(const std::vector<Bf16>& v) {
  std::vector<float> out;
  for (Bf16 x : v) out.push_back(to_f32(x));
  return out;
}

TEST(Linear, F32AgreesWithDoubleForRaggedRows) {
  const Threads threads(2);
  for (const Activation a : {Activation::kNone, Activation::kGeluTanh, Activation::kSilu}) {
    for (const std::int64_t rows : {1, 7, 128, 129, 300}) {
      const LinearSpec spec{83, 50, DType::kF32, DType::kF32, a, 128};
      const auto w = random_values(83 * 50, 1, 0.2f), b = random_values(83, 2), x = random_values(rows * 50, 3);
      const Linear linear(spec, w, b);
      std::vector<float> y(rows * 83);
      linear.run(x.data(), rows, y.data(), threads);
      EXPECT_LT(relative_l2(y, reference(spec, x, w, b, rows)), 4e-7) << rows << " " << linear.route();
    }
  }
}

TEST(Linear, Bf16RoundsInputsWeightsAndResultOnly) {
  const Threads threads(2);
  const std::int64_t rows = 200;
  const auto w = random_values(96 * 64, 1, 0.2f), b = random_values(96, 2), x = random_values(rows * 64, 3);
  const auto xb = rounded(x);
  const auto want =
      reference({96, 64, DType::kF32, DType::kF32, Activation::kGeluTanh}, widened(xb), widened(rounded(w)), b, rows);
  {
    const Linear linear({96, 64, DType::kBf16, DType::kF32, Activation::kGeluTanh}, w, b);
    std::vector<float> y(rows * 96);
    linear.run(xb.data(), rows, y.data(), threads);
    EXPECT_LT(relative_l2(y, want), 1e-5) << linear.route() << linear.route_reason();
  }
  {
    const Linear linear({96, 64, DType::kBf16, DType::kBf16, Activation::kGeluTanh}, w, b);
    std::vector<Bf16> y(rows * 96);
    linear.run(xb.data(), rows, y.data(), threads);
    EXPECT_LT(relative_l2(widened(y), want), 4e-3);
    const bool native = linear.route().find("bf16") != std::string::npos;
    EXPECT_EQ(linear.route_reason().empty(), native) << linear.route();
  }
}

// What a rank computes for a row must not depend on how many rows it holds, where they begin, or on the threads.
TEST(Linear, ARowDoesNotDependOnItsCompany) {
  const LinearSpec spec{384, 832};
  const auto w = random_values(384 * 832, 1, 0.05f), b = random_values(384, 2), x = random_values(6240 * 832, 3);
  const Linear linear(spec, w, b);
  std::vector<float> all(6240 * 384), some(1560 * 384);
  linear.run(x.data(), 6240, all.data(), Threads(2));
  for (const std::int64_t first : {0, 1560, 1983, 4680}) {
    linear.run(x.data() + first * 832, 1560, some.data(), Threads(1));
    EXPECT_EQ(std::memcmp(some.data(), all.data() + first * 384, some.size() * sizeof(float)), 0) << first;
  }
}

TEST(Linear, MayRunOnSeveralThreadsAtOnce) {
  const LinearSpec spec{70, 30, DType::kF32, DType::kF32, Activation::kNone, 16};
  const auto w = random_values(70 * 30, 1), b = random_values(70, 2), x = random_values(100 * 30, 3);
  const Linear linear(spec, w, b);
  std::vector<float> want(100 * 70);
  linear.run(x.data(), 100, want.data(), Threads(1));
  std::vector<std::vector<float>> got(4, std::vector<float>(want.size()));
  std::vector<std::thread> callers;
  for (auto& y : got) {
    callers.emplace_back([&] {
      const Threads threads(2);
      for (int i = 0; i < 20; ++i) linear.run(x.data(), 100, y.data(), threads);
    });
  }
  for (auto& c : callers) c.join();
  for (const auto& y : got) EXPECT_EQ(y, want);
}

TEST(Linear, RefusesSizesThatDoNotFit) {
  const std::vector<float> w(6), b(2);
  EXPECT_THROW(Linear({2, 4}, w, b), Error);
  EXPECT_THROW(Linear({2, 3}, w, std::vector<float>(3)), Error);
  EXPECT_THROW(Linear({0, 3}, {}, {}), Error);
}

}  // namespace
}  // namespace tulle
