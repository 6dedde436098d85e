#include "calibrate/fast.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.hpp"
#include "select/chooser.hpp"

namespace tulle {
namespace {

constexpr std::size_t kLevels = static_cast<std::size_t>(FidelityCurves::kLevels);
constexpr std::size_t kCell = 2 * kLevels + 1;

// The first sampled level that keeps a block of a rank.
std::array<std::uint8_t, 256> level_of_rank() {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    std::uint8_t l = 0;
    while (FidelityCurves::level(l) < rank) ++l;
    table[rank] = l;
  }
  return table;
}

}  // namespace

double fidelity_of_dropped(double dropped) {
  const double d = std::clamp(dropped, 0.0, 1.0);
  return 1 - std::sqrt(d / (1 + std::sqrt(1 - d)));  // 1 - sqrt(1 - d) = d / (1 + sqrt(1 - d))
}

std::vector<std::int64_t> stratified_rows(std::int64_t tokens, std::int64_t count, std::uint64_t seed) {
  require(count >= 1, "{} rows cannot be sampled: take at least 1", count);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(std::min(tokens, count)));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  if (tokens <= count) return rows;
  for (std::int64_t& row : rows) {
    const std::int64_t begin = row * tokens / count, end = (row + 1) * tokens / count;
    const std::uint64_t hash = mix(seed, static_cast<std::uint64_t>(row));
    row = begin + static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(end - begin));
  }
  return rows;
}

void add_row(std::span<const float> mass, std::span<const std::uint8_t> ranks, RowSums& sums) {
  static const std::array<std::uint8_t, 256> level = level_of_rank();
  std::array<double, kLevels> bucket{};
  for (std::size_t i = 0; i < mass.size(); ++i) bucket[level[ranks[i]]] += static_cast<double>(mass[i]);
  const double all = std::accumulate(bucket.rbegin(), bucket.rend(), 0.0);
  if (!(all > 0) || !std::isfinite(all)) {
    fail(ErrorCode::kNotFinite, "the attention mass of a row sums to {}; check the model's weights and inputs", all);
  }
  double dropped = 0;
  for (std::size_t l = kLevels; l-- > 0; dropped += bucket[l]) {
    sums.fidelity[l] += fidelity_of_dropped(dropped / all);
    sums.mass[l] += 1 - std::min(1.0, dropped / all);
  }
}

Fast::Fast(std::int64_t bins, std::int64_t layers, std::int64_t heads) : bins_(bins), layers_(layers), heads_(heads) {
  require(bins >= 1 && layers >= 1 && heads >= 1, "{} bins, {} layers and {} heads are not all at least 1", bins,
          layers, heads);
  sums_.assign(static_cast<std::size_t>(bins * layers * heads) * kCell, 0.0);
}

std::span<double> Fast::cell(std::int64_t bin, std::int64_t layer, std::int64_t head) {
  return std::span(sums_).subspan(static_cast<std::size_t>((bin * layers_ + layer) * heads_ + head) * kCell, kCell);
}

void Fast::add(std::int64_t bin, std::int64_t layer, std::int64_t head, const RowSums& sums, std::int64_t rows) {
  const std::span<double> into = cell(bin, layer, head);
  for (std::size_t l = 0; l < kLevels; ++l) {
    into[l] += sums.fidelity[l] / static_cast<double>(rows);
    into[kLevels + l] += sums.mass[l] / static_cast<double>(rows);
  }
  into[kCell - 1] += 1;
}

FidelityCurves Fast::curves(std::span<const RankMap> ranks) const {
  FidelityCurves c;
  c.bins = bins_, c.layers = layers_, c.heads = heads_;
  for (std::size_t at = 0; at < sums_.size(); at += kCell) {
    const double calls = sums_[at + kCell - 1];
    require(calls > 0, "fidelity was not measured for every part of the run, layer and head: finish all captions");
    for (std::size_t l = 0; l < kLevels; ++l) {
      c.fidelity.push_back(static_cast<float>(sums_[at + l] / calls));
      c.mass.push_back(static_cast<float>(sums_[at + kLevels + l] / calls));
    }
  }
  for (const RankMap& map : ranks) {
    for (std::int64_t h = 0; h < heads_; ++h) {
      const std::array<double, 256> by_level = density_by_level(map, h);
      for (std::int64_t l = 0; l < FidelityCurves::kLevels; ++l) {
        c.density.push_back(static_cast<float>(by_level[FidelityCurves::level(l)]));
      }
    }
  }
  return c;
}

void Fast::restore(std::span<const double> sums) {
  require(sums.size() == sums_.size(), "{} fidelity sums were given where {} are needed", sums.size(), sums_.size());
  std::ranges::copy(sums, sums_.begin());
}

}  // namespace tulle
