#include "dit/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.hpp"

namespace tulle {
namespace {

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.3f, 1.5f);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

struct Pass {
  std::int64_t dim, rows, rows_per_sample;
  bool update, gate, scale;
  RowNorm norm;
};

void check_pass(const Pass& p, DType type, int width) {
  const auto samples = (p.rows + p.rows_per_sample - 1) / p.rows_per_sample;
  auto x = random_values(p.rows * p.dim, 1);
  const auto old = x, update = random_values(x.size(), 2), gate = random_values(samples * p.dim, 3);
  const auto scale = random_values(samples * p.dim, 4), shift = random_values(samples * p.dim, 5);
  std::vector<float> out(x.size());
  std::vector<Bf16> narrow(x.size());
  ResidualNorm r;
  r.x = x.data(), r.dim = p.dim, r.rows = p.rows, r.rows_per_sample = p.rows_per_sample, r.norm = p.norm;
  r.gate_stride = r.scale_stride = p.dim;
  if (p.update) r.update = update.data();
  if (p.gate) r.gate = gate.data();
  if (p.scale) r.scale = scale.data(), r.shift = shift.data();
  r.out_type = type;
  r.out = type == DType::kBf16 ? static_cast<void*>(narrow.data()) : out.data();
  residual_norm(r, Threads(width));
  const double tolerance = type == DType::kBf16 ? 1.0 / 128 : 2e-6;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t s = row / p.rows_per_sample * p.dim, at = row * p.dim;
    std::vector<double> want(p.dim);
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < p.dim; ++i) {
      want[i] = old[at + i] + (p.update ? double{update[at + i]} * (p.gate ? gate[s + i] : 1.f) : 0.0);
      EXPECT_NEAR(x[at + i], want[i], 2e-6);
      mean += want[i] / static_cast<double>(p.dim);
    }
    for (double v : want) variance += (v - mean) * (v - mean) / static_cast<double>(p.dim);
    for (std::int64_t i = 0; i < p.dim; ++i) {
      double y = p.norm == RowNorm::kLayer ? (want[i] - mean) / std::sqrt(variance + 1e-6) : want[i];
      if (p.scale) y = y * scale[s + i] + shift[s + i];
      const double got = type == DType::kBf16 ? to_f32(narrow[at + i]) : out[at + i];
      EXPECT_NEAR(got, y, tolerance * (1 + std::fabs(y))) << row << " " << i;
    }
  }
}

TEST(ResidualNorm, AgreesWithDouble) {
  for (const std::int64_t dim : {8, 13, 40, 384}) {
    for (const DType type : {DType::kF32, DType::kBf16}) {
      check_pass({dim, 5, 3, true, true, true, RowNorm::kLayer}, type, 2);
      check_pass({dim, 5, 5, true, false, true, RowNorm::kLayer}, type, 1);
      check_pass({dim, 130, 65, false, false, true, RowNorm::kLayer}, type, 2);
      check_pass({dim, 4, 4, true, true, false, RowNorm::kNone}, type, 1);
    }
  }
}

TEST(ResidualNorm, MayWriteOverTheUpdate) {
  auto x = random_values(3 * 24, 1), update = random_values(3 * 24, 2);
  auto other_x = x;
  std::vector<float> out(x.size());
  ResidualNorm r;
  r.x = x.data(), r.update = update.data(), r.dim = 24, r.rows = 3, r.rows_per_sample = 3, r.out = out.data();
  residual_norm(r, Threads(1));
  r.x = other_x.data(), r.out = update.data();
  residual_norm(r, Threads(1));
  EXPECT_EQ(update, out);
}

TEST(RmsNorm, NormsRowsInPlaceAndLeavesTheRest) {
  for (const std::int64_t dim : {8, 21, 384}) {
    auto data = random_values(4 * 2 * dim, 1);
    const auto old = data, weight = random_values(dim, 2);
    std::vector<Bf16> narrow;
    for (float v : data) narrow.push_back(from_f32<Bf16>(v));
    rms_norm(data.data(), DType::kF32, 4, dim, 2 * dim, weight.data(), 1e-6f, Threads(2));
    rms_norm(narrow.data(), DType::kBf16, 4, dim, 2 * dim, weight.data(), 1e-6f, Threads(2));
    for (std::int64_t row = 0; row < 4; ++row) {
      double square = 0;
      for (std::int64_t i = 0; i < dim; ++i)
        square += double{old[row * 2 * dim + i]} * old[row * 2 * dim + i] / static_cast<double>(dim);
      for (std::int64_t i = 0; i < 2 * dim; ++i) {
        const std::int64_t at = row * 2 * dim + i;
        const double want = i < dim ? old[at] / std::sqrt(square + 1e-6) * weight[i] : old[at];
        EXPECT_NEAR(data[at], want, 2e-6 * (1 + std::fabs(want)));
        EXPECT_NEAR(to_f32(narrow[at]), want, 0.02 * (1 + std::fabs(want)));
      }
    }
  }
}

TEST(Gelu, AgreesWithDoubleFromEndToEnd) {
  std::vector<float> values{0.f, -0.f, 1e-30f, -1e-30f, 6.f, -6.f, 30.f, -30.f, 1e20f, -1e20f, 3e38f, -3e38f};
  for (int i = 0; i < 2001; ++i) values.push_back(static_cast<float>(i - 1000) * 0.0123f);
  const auto old = values;
  gelu_tanh(values);
  for (std::size_t i = 0; i < old.size(); ++i) {
    const double x = old[i], u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double want = x / (1 + std::exp(-2 * u));
    EXPECT_NEAR(values[i], want, 1e-6 * (1 + std::fabs(u)) * std::fabs(want) + 1e-30) << x;
  }
  std::vector<float> alone{old[20]}, nan{std::numeric_limits<float>::quiet_NaN()};
  gelu_tanh(alone);
  gelu_tanh(nan);
  EXPECT_EQ(alone[0], values[20]);
  EXPECT_TRUE(std::isnan(nan[0]));
}

TEST(Convert, RoundsToNearestEvenAsTheScalarDoes) {
  auto values = random_values(1001, 3);
  values[3] = std::numeric_limits<float>::infinity();
  values[4] = std::bit_cast<float>(0x3f808000u);  // a tie
  values[5] = std::bit_cast<float>(0x3f818000u);  // another, odd
  values[6] = std::bit_cast<float>(0x7fffffffu);  // a NaN whose rounding would overflow
  std::vector<Bf16> got(values.size());
  convert_to(values, got.data(), DType::kBf16);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i].bits, from_f32<Bf16>(values[i]).bits) << i;
}

TEST(AllFinite, FindsOneBadValueAnywhere) {
  const Threads threads(2);
  std::vector<float> values(70'001, 1.f);
  EXPECT_TRUE(all_finite(values, threads));
  EXPECT_TRUE(all_finite({}, threads));
  for (const std::size_t at : {0, 7, 65'535, 65'536, 70'000}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      values[at] = bad;
      EXPECT_FALSE(all_finite(values, threads)) << at;
      values[at] = std::numeric_limits<float>::max();
      EXPECT_TRUE(all_finite(values, threads));
    }
  }
}

}  // namespace
}  // namespace tulle
