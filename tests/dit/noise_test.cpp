#include "dit/noise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tulle/model.hpp"

namespace tulle {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers that the authors publish with Random123.
TEST(Noise, PhiloxGivesItsKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, AnyPartEqualsThatPartOfTheWhole) {
  std::vector<float> whole(1000);
  fill_noise(42, 0, whole);
  for (const std::size_t first : {0, 1, 2, 3, 5, 998}) {
    for (const std::size_t count : {0, 1, 2, 7, 300}) {
      if (first + count > whole.size()) continue;
      std::vector<float> part(count);
      fill_noise(42, first, part);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + first, whole.begin() + first + count));
    }
  }
}

TEST(Noise, IsStandardNormalAndDependsOnTheSeed) {
  const std::size_t n = 1 << 18;
  std::vector<float> a(n), b(n);
  fill_noise(1, 0, a);
  fill_noise(2, 0, b);
  double mean = 0, square = 0, fourth = 0, cross = 0, next = 0;
  for (std::size_t i = 0; i < n; ++i) {
    mean += a[i], square += a[i] * a[i], fourth += std::pow(a[i], 4), cross += a[i] * b[i];
    next += a[i] * a[(i + 1) % n];
  }
  const double bound = 5 / std::sqrt(static_cast<double>(n));  // five standard deviations of a mean
  EXPECT_NEAR(mean / n, 0, bound);
  EXPECT_NEAR(square / n, 1, bound * std::sqrt(2.0));
  EXPECT_NEAR(fourth / n, 3, bound * std::sqrt(96.0));
  EXPECT_NEAR(cross / n, 0, bound);
  EXPECT_NEAR(next / n, 0, bound);
}

TEST(Noise, CountsBeyond32Bits) {
  std::vector<float> low(4), high(4);
  fill_noise(9, 0, low);
  fill_noise(9, std::uint64_t{1} << 35, high);
  EXPECT_NE(low, high);
}

}  // namespace
}  // namespace tulle
