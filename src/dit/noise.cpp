#include "dit/noise.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr std::uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

// Box and Muller's transform of two random words; the first is moved into (0, 1] so that its logarithm is finite.
std::array<float, 2> two_normals(std::uint32_t a, std::uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

// Values 4 * block ... 4 * block + 3.
std::array<float, 4> four_normals(std::uint64_t seed, std::uint64_t block) {
  const auto words = philox4x32({low(block), high(block), 0, 0}, {low(seed), high(seed)});
  const auto first = two_normals(words[0], words[1]), second = two_normals(words[2], words[3]);
  return {first[0], first[1], second[0], second[1]};
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiply0} * c[0], p1 = std::uint64_t{kMultiply1} * c[2];
    c = {high(p1) ^ c[1] ^ k[0], low(p1), high(p0) ^ c[3] ^ k[1], low(p0)};
    k = {k[0] + kWeyl0, k[1] + kWeyl1};
  }
  return c;
}

void fill_noise(std::uint64_t seed, std::uint64_t first, std::span<float> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::uint64_t at = first + done;
    const auto values = four_normals(seed, at / 4);
    const auto skip = static_cast<std::size_t>(at % 4);
    const std::size_t count = std::min(4 - skip, out.size() - done);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(skip), count,
                out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
}

}  // namespace tulle
