// PSNR, SSIM and relative L2 against values that can be worked out by hand.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tulle/error.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

Video filled(std::int64_t frames, std::int64_t height, std::int64_t width, float value) {
  return {frames, height, width, std::vector<float>(static_cast<std::size_t>(frames * height * width * 3), value)};
}

// A smooth picture that differs from pixel to pixel.
Video pattern(float phase) {
  Video v = filled(2, 16, 20, 0);
  for (std::size_t i = 0; i < v.rgb.size(); ++i)
    v.rgb[i] = 0.5f + 0.4f * std::sin(0.37f * static_cast<float>(i) + phase);
  return v;
}

TEST(Psnr, OfAConstantDifference) {
  EXPECT_NEAR(psnr(filled(2, 3, 4, 0.5f), filled(2, 3, 4, 0.6f)), 20.0, 1e-5);  // mse 0.01
  EXPECT_NEAR(psnr(filled(1, 1, 1, 0.0f), filled(1, 1, 1, 1.0f)), 0.0, 1e-12);  // mse 1
}

TEST(Psnr, OfEqualClipsIsInfinite) { EXPECT_TRUE(std::isinf(psnr(pattern(0), pattern(0)))); }

TEST(Psnr, ClipsPixels) {
  EXPECT_TRUE(std::isinf(psnr(filled(1, 2, 2, 1.5f), filled(1, 2, 2, 1.0f))));
  EXPECT_NEAR(psnr(filled(1, 2, 2, -3.0f), filled(1, 2, 2, 0.1f)), 20.0, 1e-5);
}

TEST(Psnr, CountsTheWholeClip) {
  Video a = filled(2, 2, 2, 0.5f), b = a;
  for (std::size_t i = 0; i < 12; ++i) b.rgb[i] = 0.7f;  // one frame of two is 0.2 off: mse 0.02
  EXPECT_NEAR(psnr(a, b), -10 * std::log10(0.02), 1e-5);
}

TEST(Ssim, OfEqualClipsIsOne) { EXPECT_NEAR(ssim(pattern(0), pattern(0)), 1.0, 1e-12); }

TEST(Ssim, OfConstantPicturesIsTheLuminanceTerm) {
  const double a = 0.3, b = 0.6, c1 = 1e-4;
  EXPECT_NEAR(ssim(filled(1, 12, 13, 0.3f), filled(1, 12, 13, 0.6f)), (2 * a * b + c1) / (a * a + b * b + c1), 1e-6);
}

TEST(Ssim, OfAnInvertedPictureIsNegative) {
  Video a = pattern(0), b = a;
  for (float& v : b.rgb) v = 1 - v;
  EXPECT_LT(ssim(a, b), -0.5);
}

// One 11 x 11 window: the sums of the definition written out.
TEST(Ssim, OfOneWindowFollowsTheDefinition) {
  Video a = filled(1, 11, 11, 0), b = a;
  double weights = 0, ma = 0, mb = 0, aa = 0, bb = 0, ab = 0;
  for (int y = 0; y < 11; ++y) {
    for (int x = 0; x < 11; ++x) {
      const float va = 0.01f * static_cast<float>(5 * x + 3 * y), vb = 0.008f * static_cast<float>(x * y % 50);
      for (int c = 0; c < 3; ++c) a.rgb[(y * 11 + x) * 3 + c] = va, b.rgb[(y * 11 + x) * 3 + c] = vb;
      const double w = std::exp(-((x - 5) * (x - 5) + (y - 5) * (y - 5)) / (2 * 1.5 * 1.5));
      weights += w, ma += w * va, mb += w * vb, aa += w * va * va, bb += w * vb * vb, ab += w * va * vb;
    }
  }
  ma /= weights, mb /= weights, aa /= weights, bb /= weights, ab /= weights;
  const double expected = (2 * ma * mb + 1e-4) * (2 * (ab - ma * mb) + 9e-4) /
                          ((ma * ma + mb * mb + 1e-4) * (aa - ma * ma + bb - mb * mb + 9e-4));
  EXPECT_NEAR(ssim(a, b), expected, 1e-6);
}

TEST(Ssim, WeighsGreenMost) {
  Video a = filled(1, 11, 11, 0.5f), red = a, green = a;
  for (std::size_t i = 0; i < a.rgb.size(); i += 3) red.rgb[i] = 0.9f, green.rgb[i + 1] = 0.9f;
  EXPECT_GT(ssim(a, red), ssim(a, green));
}

TEST(Ssim, RefusesFramesSmallerThanItsWindow) { EXPECT_THROW(ssim(filled(1, 10, 20, 0), filled(1, 10, 20, 0)), Error); }

RC_GTEST_PROP(Ssim, IsSymmetricAndAtMostOne, (std::int16_t p, std::int16_t q)) {
  const Video a = pattern(static_cast<float>(p) / 1000), b = pattern(static_cast<float>(q) / 1000);
  RC_ASSERT(std::fabs(ssim(a, b) - ssim(b, a)) < 1e-12);
  RC_ASSERT(ssim(a, b) <= 1 + 1e-12);
}

TEST(RelativeL2, OfSmallVectors) {
  const std::vector<float> reference = {3, 4}, value = {3, 5};
  EXPECT_NEAR(relative_l2(value, reference), 0.2, 1e-7);
  EXPECT_EQ(relative_l2(reference, reference), 0);
  EXPECT_TRUE(std::isinf(relative_l2(value, std::vector<float>{0, 0})));
}

TEST(Metrics, RefuseShapesThatDiffer) {
  EXPECT_THROW(psnr(filled(1, 2, 3, 0), filled(1, 3, 2, 0)), Error);
  EXPECT_THROW(ssim(filled(1, 12, 12, 0), filled(2, 12, 12, 0)), Error);
  EXPECT_THROW(psnr(Video{}, Video{}), Error);
  EXPECT_THROW(relative_l2(std::vector<float>{1}, std::vector<float>{1, 2}), Error);
}

}  // namespace
}  // namespace tulle
