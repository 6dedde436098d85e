// Quality metrics: PSNR, SSIM and relative L2.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/fail.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kWindow = 11;
constexpr double kSigma = 1.5;
constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;  // (K L)^2 with L = 1

void check_pair(const Video& a, const Video& b) {
  require(a.frames == b.frames && a.height == b.height && a.width == b.width,
          "clips of {} x {} x {} and {} x {} x {} cannot be compared: give both the same frames, height and width",
          a.frames, a.height, a.width, b.frames, b.height, b.width);
  const auto size = static_cast<std::size_t>(a.frames * a.height * a.width * 3);
  require(size > 0 && a.rgb.size() == size && b.rgb.size() == size,
          "clips of {} and {} values cannot be compared: their shape asks for {}", a.rgb.size(), b.rgb.size(), size);
}

double clipped(float v) { return std::clamp(static_cast<double>(v), 0.0, 1.0); }

// Luma of BT.601, as Wang's code has it (rgb2gray): 0.299 R + 0.587 G + 0.114 B.
std::vector<double> luma(const Video& v, std::int64_t frame) {
  const std::int64_t pixels = v.height * v.width;
  const float* rgb = v.rgb.data() + frame * pixels * 3;
  std::vector<double> y(static_cast<std::size_t>(pixels));
  for (std::int64_t i = 0; i < pixels; ++i) {
    y[i] = 0.299 * clipped(rgb[3 * i]) + 0.587 * clipped(rgb[3 * i + 1]) + 0.114 * clipped(rgb[3 * i + 2]);
  }
  return y;
}

std::array<double, kWindow> gaussian() {
  std::array<double, kWindow> weights{};
  double sum = 0;
  for (std::int64_t i = 0; i < kWindow; ++i) {
    const double d = static_cast<double>(i - kWindow / 2);
    sum += weights[i] = std::exp(-d * d / (2 * kSigma * kSigma));
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// Windowed mean where the window lies wholly inside: [height, width] -> [height - 10, width - 10].
std::vector<double> window_mean(const std::vector<double>& image, std::int64_t height, std::int64_t width) {
  static const std::array<double, kWindow> weights = gaussian();
  const std::int64_t rows = height - kWindow + 1, columns = width - kWindow + 1;
  std::vector<double> across(static_cast<std::size_t>(height * columns));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < columns; ++x) {
      double sum = 0;
      for (std::int64_t k = 0; k < kWindow; ++k) sum += weights[k] * image[y * width + x + k];
      across[y * columns + x] = sum;
    }
  }
  std::vector<double> out(static_cast<std::size_t>(rows * columns), 0.0);
  for (std::int64_t y = 0; y < rows; ++y) {
    for (std::int64_t k = 0; k < kWindow; ++k) {
      for (std::int64_t x = 0; x < columns; ++x) out[y * columns + x] += weights[k] * across[(y + k) * columns + x];
    }
  }
  return out;
}

std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] * b[i];
  return out;
}

double frame_ssim(const std::vector<double>& a, const std::vector<double>& b, std::int64_t h, std::int64_t w) {
  const std::vector<double> ma = window_mean(a, h, w), mb = window_mean(b, h, w);
  const std::vector<double> aa = window_mean(product(a, a), h, w), bb = window_mean(product(b, b), h, w),
                            ab = window_mean(product(a, b), h, w);
  double sum = 0;
  for (std::size_t i = 0; i < ma.size(); ++i) {
    const double cross = ma[i] * mb[i], squares = ma[i] * ma[i] + mb[i] * mb[i];
    sum += (2 * cross + kC1) * (2 * (ab[i] - cross) + kC2) / ((squares + kC1) * (aa[i] + bb[i] - squares + kC2));
  }
  return sum / static_cast<double>(ma.size());
}

}  // namespace

double psnr(const Video& a, const Video& b) {
  check_pair(a, b);
  double sum = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) {
    const double d = clipped(a.rgb[i]) - clipped(b.rgb[i]);
    sum += d * d;
  }
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return -10 * std::log10(sum / static_cast<double>(a.rgb.size()));
}

double ssim(const Video& a, const Video& b) {
  check_pair(a, b);
  require(a.height >= kWindow && a.width >= kWindow,
          "SSIM needs frames of at least {0} x {0} pixels, these have {1} x {2}", kWindow, a.height, a.width);
  double sum = 0;
  for (std::int64_t f = 0; f < a.frames; ++f) sum += frame_ssim(luma(a, f), luma(b, f), a.height, a.width);
  return sum / static_cast<double>(a.frames);
}

double relative_l2(std::span<const float> value, std::span<const float> reference) {
  require(value.size() == reference.size(), "{} values cannot be compared with {}: give equally many", value.size(),
          reference.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double r = reference[i], d = value[i] - r;
    error += d * d;
    norm += r * r;
  }
  if (error == 0) return 0;
  return std::sqrt(error / norm);  // a zero reference gives +infinity
}

}  // namespace tulle
