// Scores from where blocks stand on the grid: the static baselines.
#include <algorithm>
#include <cmath>

#include "base/fail.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

BlockPlace place_of(const TokenOrder& order, std::int64_t begin, std::int64_t end) {
  const std::int64_t row = order.grid.width, frame = row * order.grid.height;
  std::int64_t frames = 0, ys = 0, xs = 0, first = 0;
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int64_t raster = order.raster_of_memory[static_cast<std::size_t>(t)];
    frames += raster / frame;
    ys += raster % frame / row;
    xs += raster % row;
    first += raster < frame;
  }
  const auto mean = [&](std::int64_t sum) { return static_cast<float>(sum) / static_cast<float>(end - begin); };
  return {mean(frames), mean(ys), mean(xs), mean(first)};
}

std::vector<BlockPlace> places_of(const TokenOrder& order, std::int32_t block) {
  std::vector<BlockPlace> out;
  const std::int64_t tokens = order.grid.tokens();
  for (std::int64_t begin = 0; begin < tokens; begin += block) {
    out.push_back(place_of(order, begin, std::min(tokens, begin + block)));
  }
  return out;
}

float window_score(const BlockPlaces& p, const BlockPlace& q, const BlockPlace& k) {
  const float f = std::abs(q.frame - k.frame) / static_cast<float>(p.grid.frames);
  const float y = std::abs(q.y - k.y) / static_cast<float>(p.grid.height);
  const float x = std::abs(q.x - k.x) / static_cast<float>(p.grid.width);
  return 1.0f / (1.0f + std::max({f, y, x}) + (f + y + x) / 16.0f);
}

float radial_score(const BlockPlaces&, const BlockPlace& q, const BlockPlace& k) {
  const float r = std::max(std::abs(q.y - k.y), std::abs(q.x - k.x));
  // Centres are rounded means: a distance of 2 frames must not come out as just below 2.
  const float f = std::max(1.0f, std::abs(q.frame - k.frame) + 1e-4f);
  const float window = std::ldexp(1.0f + r, std::ilogb(f));
  return 1.0f / (k.first_frame > 0 ? std::min(window, 2.0f / k.first_frame) : window);
}

template <class PairScore>
void score_pairs(const BlockPlaces& places, std::int64_t q_begin, std::int64_t q_end, float* scores, PairScore pair) {
  for (std::int64_t u = q_begin; u < q_end; ++u) {
    for (const BlockPlace& k : places.k) *scores++ = pair(places, places.q[static_cast<std::size_t>(u)], k);
  }
}

}  // namespace

BlockPlaces place_blocks(const TokenOrder& order, std::int32_t block_q, std::int32_t block_k) {
  require(block_q >= 1 && block_k >= 1, "blocks of {} and {} tokens were asked for; a block has at least one", block_q,
          block_k);
  return {order.grid, places_of(order, block_q), places_of(order, block_k)};
}

void score_window(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  score_pairs(*input.places, q_begin, q_end, scores, window_score);
}

void score_radial(const ScoreInput& input, std::int64_t q_begin, std::int64_t q_end, float* scores) {
  score_pairs(*input.places, q_begin, q_end, scores, radial_score);
}

}  // namespace tulle
