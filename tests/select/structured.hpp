// Heads of known character: q and k as a video model makes them, content rotated by its RoPE, plus noise.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "grid/rope.hpp"
#include "select_data.hpp"
#include "tulle/grid.hpp"

namespace tulle::testing_data {

// kLocal      a query looks at what is near it in rows, columns and frames
// kTemporal   at the same place in all frames
// kSink       at the first frame
// kMoving     at its own object, wherever that is in each frame: objects cross the picture in a few frames
enum class HeadKind : std::uint8_t { kLocal, kTemporal, kSink, kMoving };

inline const char* to_string(HeadKind kind) {
  constexpr std::array<const char*, 4> names = {"local", "temporal", "sink", "moving"};
  return names[static_cast<std::size_t>(kind)];
}

// Channel pairs of one head that hold content: of each axis the fast half (they tell positions apart) or the slow half
// (they hardly turn, so what they hold is the same everywhere).
inline std::vector<std::int64_t> content_pairs(HeadKind kind, std::int64_t head_dim) {
  const RopeSplit split = rope_split(head_dim);
  const std::array<std::int64_t, 3> pairs = {split.t / 2, split.h / 2, split.w / 2};
  const bool fast = kind == HeadKind::kLocal || kind == HeadKind::kTemporal;
  std::vector<std::int64_t> out;
  std::int64_t first = 0;
  for (std::size_t axis = 0; axis < 3; first += pairs[axis++]) {
    if (kind == HeadKind::kTemporal && axis == 0) continue;
    for (std::int64_t p = 0; p < pairs[axis]; ++p)
      if ((p < pairs[axis] / 2) == fast) out.push_back(first + p);
  }
  return out;
}

// The object at a place: the nearest of moving centres, the picture closed to a ring both ways.
struct Objects {
  TokenGrid grid;
  std::vector<std::array<double, 4>> motion;  // y, x at frame 0, and how far they go in a frame

  Objects(const TokenGrid& g, std::mt19937& random) : grid(g), motion(6) {
    std::uniform_real_distribution<double> place(0, 1), speed(0.15, 0.35);
    for (auto& m : motion) m = {place(random), place(random), speed(random), -speed(random)};
  }
  std::size_t at(int frame, int y, int x) const {
    const auto ring = [](double d) { return std::abs(d - std::round(d)); };
    std::size_t best = 0;
    double nearest = 10;
    for (std::size_t i = 0; i < motion.size(); ++i) {
      const auto& m = motion[i];
      const double away = std::hypot(ring(m[0] + frame * m[2] - double(y) / grid.height),
                                     ring(m[1] + frame * m[3] - double(x) / grid.width));
      if (away < nearest) nearest = away, best = i;
    }
    return best;
  }
};

struct Structured {
  Sequence sequence;
  TokenOrder order;
  Tokens q, k;  // [1, tokens, 1, head_dim] in memory order, after RoPE
};

// `strength`: the logit between contents that match at distance 0. Noise adds about noise^2 to a logit (one standard
// deviation), and noise * sqrt(strength) times a number near 1 through content times noise.
inline Structured make_structured(HeadKind kind, const TokenGrid& grid, OrderKind order_kind, std::int64_t head_dim,
                                  float strength, float noise_spread, std::uint32_t seed) {
  Structured out{{grid, 0, TextPlacement::kSuffix}, make_order(order_kind, grid), {}, {}};
  const std::array<std::int64_t, 4> shape = {1, grid.tokens(), 1, head_dim};
  out.q = noise(shape, seed, noise_spread), out.k = noise(shape, seed + 1, noise_spread);
  std::mt19937 random(seed + 2);
  const Objects objects(grid, random);
  const std::vector<std::int64_t> pairs = content_pairs(kind, head_dim);
  const auto amplitude = static_cast<float>(std::sqrt(strength * std::sqrt(double(head_dim)) / double(pairs.size())));
  // One phase a pair and object: all contents are equally long, those of different objects do not match.
  std::uniform_real_distribution<float> phase(0, 6.2831853f);
  std::vector<std::vector<float>> phases(objects.motion.size(), std::vector<float>(pairs.size()));
  for (auto& of_object : phases)
    for (float& p : of_object) p = phase(random);

  const RopeTable rope = make_rope(out.order, head_dim, 0, grid.tokens());
  for (std::int64_t t = 0; t < grid.tokens(); ++t) {
    const int raster = out.order.raster_of_memory[static_cast<std::size_t>(t)];
    const int x = raster % grid.width, y = raster / grid.width % grid.height, f = raster / grid.width / grid.height;
    const auto& content = phases[kind == HeadKind::kMoving ? objects.at(f, y, x) : 0];
    for (Tokens* side : {&out.q, &out.k}) {
      float* row = side->values.data() + t * head_dim;
      const bool has_content = kind != HeadKind::kSink || side == &out.q || f == 0;
      for (std::size_t i = 0; has_content && i < pairs.size(); ++i) {
        row[2 * pairs[i]] += amplitude * std::cos(content[i]);
        row[2 * pairs[i] + 1] += amplitude * std::sin(content[i]);
      }
      for (std::int64_t p = 0; p < head_dim / 2; ++p) {
        const auto at = static_cast<std::size_t>(t * head_dim / 2 + p);
        const float a = row[2 * p], b = row[2 * p + 1];
        row[2 * p] = a * rope.cos[at] - b * rope.sin[at];
        row[2 * p + 1] = a * rope.sin[at] + b * rope.cos[at];
      }
    }
  }
  return out;
}

}  // namespace tulle::testing_data
