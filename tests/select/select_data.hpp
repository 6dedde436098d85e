// Random and structured q and k for the tests of selection.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/half.hpp"
#include "tulle/grid.hpp"
#include "tulle/policy.hpp"
#include "tulle/tensor.hpp"

namespace tulle::testing_data {

struct Tokens {
  std::array<std::int64_t, 4> shape{};  // batch, tokens, heads, head_dim
  std::vector<float> values;

  ConstTensorView view() const { return view_of(values.data(), shape); }
  // Heads [begin, end) without a copy.
  ConstTensorView heads(std::int64_t begin, std::int64_t end) const {
    ConstTensorView v = view();
    v.data = v.row<float>(0, 0, begin);
    v.shape[2] = end - begin;
    return v;
  }
  ConstTensorView sample(std::int64_t b) const {
    ConstTensorView v = view();
    v.data = v.row<float>(b, 0, 0);
    v.shape[0] = 1;
    return v;
  }
};

inline Tokens noise(std::array<std::int64_t, 4> shape, std::uint32_t seed, float spread = 1.0f) {
  Tokens t{shape, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  t.values.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (float& v : t.values) v = normal(random);
  return t;
}

// Features that change smoothly over the grid (random waves of frame, row and column) plus noise: near tokens are
// alike, as in a video. Text tokens are noise. Queries and keys of one seed share the waves.
inline Tokens waves(const TokenOrder& order, const Sequence& s, std::array<std::int64_t, 4> shape, std::uint32_t seed,
                    float sharpness, float noise_share, std::uint32_t noise_seed) {
  Tokens t = noise(shape, noise_seed, noise_share * sharpness);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> phase(0, 6.283), speed(-0.5, 0.5);
  std::vector<std::array<double, 4>> wave(static_cast<std::size_t>(shape[2] * shape[3]));
  for (auto& w : wave) w = {speed(random), speed(random), speed(random), phase(random)};
  for (std::int64_t token = s.video_begin(); token < s.video_end(); ++token) {
    const int raster = order.raster_of_memory[static_cast<std::size_t>(token - s.video_begin())];
    const int x = raster % s.grid.width, y = raster / s.grid.width % s.grid.height,
              f = raster / s.grid.width / s.grid.height;
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      float* row = t.values.data() + (b * shape[1] + token) * shape[2] * shape[3];
      for (std::size_t c = 0; c < wave.size(); ++c) {
        row[c] +=
            sharpness * static_cast<float>(std::cos(wave[c][0] * f + wave[c][1] * y + wave[c][2] * x + wave[c][3]));
      }
    }
  }
  return t;
}

// A sparse policy for small sequences.
inline Policy small_policy(std::int32_t block = 8, std::int32_t sub_block = 4) {
  Policy p = load_policy("dfsattn");
  p.block_q = p.block_k = block;
  p.sub_block = sub_block;
  return p;
}

}  // namespace tulle::testing_data
