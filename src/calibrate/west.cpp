#include "calibrate/west.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/fail.hpp"
#include "select/chooser.hpp"

namespace tulle {
namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

void check_size(const RankMap& map, std::span<const float> mass) {
  require(mass.size() == map.bytes().size(), "{} block masses were given where the rank map has {} blocks", mass.size(),
          map.bytes().size());
}

// Blocks of a row by falling mass.
std::vector<std::int32_t> places(std::span<const float> row, std::uint64_t seed) {
  std::vector<std::int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const float x = row[size(a)], y = row[size(b)];
    if (x != y) return x > y;
    const std::uint64_t ha = mix(seed, static_cast<std::uint64_t>(a)), hb = mix(seed, static_cast<std::uint64_t>(b));
    return ha != hb ? ha < hb : a < b;
  });
  return order;
}

void rank_row(std::span<const float> mass, std::uint64_t seed, std::span<std::uint8_t> ranks) {
  const std::vector<std::int32_t> order = places(mass, seed);
  const auto blocks = static_cast<std::int64_t>(order.size());
  for (std::int64_t place = 0; place < blocks; ++place) ranks[size(order[size(place)])] = rank_of_place(place, blocks);
}

// Kept over all mass of one row.
double row_share(std::span<const std::uint8_t> ranks, std::span<const float> mass, std::uint8_t level) {
  double kept = 0, all = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    all += static_cast<double>(mass[i]);
    if (ranks[i] <= level) kept += static_cast<double>(mass[i]);
  }
  return all > 0 ? kept / all : 0;
}

template <class Row>
void for_each_row(const RankMap& map, std::span<const float> mass, Row&& body) {
  const std::size_t columns = size(map.k_blocks());
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t u = 0; u < map.q_blocks(); ++u) {
      body(h, u, mass.subspan(size(h * map.q_blocks() + u) * columns, columns));
    }
  }
}

}  // namespace

RankMap rank_blocks(std::span<const float> mass, std::int64_t heads, const BlockPartition& q, const BlockPartition& k,
                    OrderKind order, std::int64_t layer) {
  RankMap map(heads, q, k, order);
  check_size(map, mass);
  for_each_row(map, mass, [&](std::int64_t h, std::int64_t u, std::span<const float> row) {
    if (!std::ranges::all_of(row, [](float m) { return std::isfinite(m); })) {
      fail(ErrorCode::kNotFinite,
           "attention mass of layer {}, head {}, query block {} is not finite; check the model's weights", layer, h, u);
    }
    const auto seed = mix(mix(mix(0, static_cast<std::uint64_t>(layer)), static_cast<std::uint64_t>(h)),
                          static_cast<std::uint64_t>(u));
    rank_row(row, seed, map.row(h, u));
  });
  return map;
}

double kept_share(const RankMap& map, std::span<const float> mass, std::uint8_t level) {
  check_size(map, mass);
  double sum = 0;
  for_each_row(map, mass, [&](std::int64_t h, std::int64_t u, std::span<const float> row) {
    sum += static_cast<double>(map.q().size(u)) * row_share(map.row(h, u), row, level);
  });
  return sum / static_cast<double>(map.heads() * map.q().tokens());
}

West::West(std::int64_t layers, std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order) {
  require(layers >= 1, "a model of {} layers has nothing to calibrate", layers);
  ranks_.assign(size(layers), RankMap(heads, q, k, order));
  sums_.assign(size(layers) * ranks_.front().bytes().size(), 0.0f);
}

std::span<float> West::sums(std::int64_t layer) {
  const std::size_t blocks = ranks_.front().bytes().size();
  return std::span(sums_).subspan(size(layer) * blocks, blocks);
}

void West::add(std::int64_t layer, std::int64_t head, std::span<const float> mass) {
  const auto blocks = size(ranks_.front().q_blocks() * ranks_.front().k_blocks());
  require(mass.size() == blocks, "{} block masses were given for a head of {} blocks", mass.size(), blocks);
  const std::span<float> into = sums(layer).subspan(size(head) * blocks, blocks);
  std::ranges::transform(into, mass, into.begin(), std::plus{});
}

void West::end_caption() {
  const std::uint8_t level = rank_level(kWestPermille);
  double kept = 0, dense = 0;
  for (std::size_t layer = 0; layer < ranks_.size(); ++layer) {
    RankMap& map = ranks_[layer];
    const std::span<const float> mass = sums(static_cast<std::int64_t>(layer));
    const RankMap own = rank_blocks(mass, map.heads(), map.q(), map.k(), map.order(), static_cast<std::int64_t>(layer));
    if (!density_.empty()) kept += kept_share(map, mass, level);
    unite(map, own);
    dense += density_at(map, level);
  }
  const auto layers = static_cast<double>(ranks_.size());
  held_out_ = static_cast<float>(kept / layers);
  density_.push_back(static_cast<float>(dense / layers));
  drop_caption();
}

void West::drop_caption() { std::ranges::fill(sums_, 0.0f); }

void West::restore(std::span<const std::uint8_t> ranks, std::vector<float> union_density, float held_out) {
  const std::size_t each = ranks_.front().bytes().size();
  require(ranks.size() == each * ranks_.size(), "{} ranks were given for {} layers of {} blocks", ranks.size(),
          ranks_.size(), each);
  for (std::size_t layer = 0; layer < ranks_.size(); ++layer) {
    std::ranges::copy(ranks.subspan(layer * each, each), ranks_[layer].bytes().begin());
  }
  density_ = std::move(union_density);
  held_out_ = held_out;
  drop_caption();
}

}  // namespace tulle
