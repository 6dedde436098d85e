// Rank maps for tests: random ones, and local ones whose ranks follow from distances in the video.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tulle/rank_map.hpp"

namespace tulle {

inline BlockPartition blocks_of(const TokenGrid& grid, std::int32_t block) {
  return {{grid, 0, TextPlacement::kSuffix}, block};
}

inline TokenGrid any_grid(int frames = 5, int side = 8) {
  return {*rc::gen::inRange(1, frames + 1), *rc::gen::inRange(1, side + 1), *rc::gen::inRange(1, side + 1)};
}

inline OrderKind any_order() {
  return *rc::gen::elementOf(std::vector<OrderKind>(all_orders().begin(), all_orders().end()));
}

inline RankMap random_map(std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order,
                          std::uint32_t seed) {
  RankMap map(heads, q, k, order);
  std::mt19937 random(seed);
  for (std::uint8_t& rank : map.bytes()) rank = static_cast<std::uint8_t>(1 + random() % 255);
  return map;
}

inline RankMap any_map() {
  const TokenGrid grid = any_grid();
  return random_map(*rc::gen::inRange(1, 4), blocks_of(grid, *rc::gen::inRange(1, 20)),
                    blocks_of(grid, *rc::gen::inRange(1, 20)), any_order(), *rc::gen::arbitrary<std::uint32_t>());
}

struct Place {
  std::int32_t f, y, x;
};

inline std::vector<Place> places_of(const BlockPartition& p, const TokenOrder& order, std::int64_t block) {
  std::vector<Place> places;
  for (std::int64_t t = p.begin(block); t < p.end(block); ++t) {
    const std::int32_t r = order.raster_of_memory[static_cast<std::size_t>(t)];
    places.push_back(
        {r / (order.grid.height * order.grid.width), r / order.grid.width % order.grid.height, r % order.grid.width});
  }
  return places;
}

// Gap of the cells [a, a+1) and [b, b+1) of `n` in a row, as a fraction.
inline double gap(std::int32_t a, std::int32_t b, std::int32_t n) {
  return std::max(0, std::abs(a - b) - 1) / double(n);
}

// How near the cells of two tokens come to each other, in frames and in fractions of a frame; each head weighs them
// its own way. Larger distances never have smaller ranks.
inline std::uint8_t local_rank(std::int64_t head, const Place& a, const Place& b, const TokenGrid& g) {
  const double space = gap(a.y, b.y, g.height) + gap(a.x, b.x, g.width);
  const double time = std::abs(b.f - a.f);
  const double distance = head % 2 == 0 ? 400 * space + 12 * time : 120 * space + 40 * time;
  return static_cast<std::uint8_t>(std::clamp(std::lround(1 + distance), 1L, 255L));
}

// A block pair takes the rank of its nearest tokens.
inline RankMap local_map(std::int64_t heads, const TokenGrid& g, std::int32_t block_q, std::int32_t block_k,
                         OrderKind kind) {
  RankMap map(heads, blocks_of(g, block_q), blocks_of(g, block_k), kind);
  const TokenOrder order = make_order(kind, g);
  std::vector<std::vector<Place>> keys;
  for (std::int64_t k = 0; k < map.k_blocks(); ++k) keys.push_back(places_of(map.k(), order, k));
  for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
    const auto queries = places_of(map.q(), order, q);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t k = 0; k < map.k_blocks(); ++k) {
        std::uint8_t& rank = map.row(h, q)[static_cast<std::size_t>(k)];
        for (const Place& a : queries) {
          for (const Place& b : keys[static_cast<std::size_t>(k)]) rank = std::min(rank, local_rank(h, a, b, g));
        }
      }
    }
  }
  return map;
}

}  // namespace tulle
