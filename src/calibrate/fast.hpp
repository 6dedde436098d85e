// FAST: how much each head suffers when only the blocks up to a level of its rank map are kept.
//
// Fidelity of a query row is 1 - H, H the Hellinger distance between its softmax row P and P renormalised over the kept
// keys. With m the kept mass, the Bhattacharyya sum is sqrt(m), so H = sqrt(1 - sqrt(m)): no row of probabilities is
// ever needed, only the mass of its blocks. Zhou et al., "ScalingAttention" (2026).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tulle/profile.hpp"

namespace tulle {

// Fidelity of a row that loses the share `dropped` of its mass: 1 - sqrt(1 - sqrt(1 - dropped)), without cancellation
// for small shares. The share is clamped to [0, 1]: 1 for 0, 0 for 1, never NaN.
double fidelity_of_dropped(double dropped);

// `count` query rows, one out of each of `count` equal strata of [0, tokens), at a place given by `seed`; all rows when
// there are no more than `count`. Increasing.
std::vector<std::int64_t> stratified_rows(std::int64_t tokens, std::int64_t count, std::uint64_t seed);

// Sums over rows at each sampled level.
struct RowSums {
  std::array<double, FidelityCurves::kLevels> fidelity{}, mass{};
};

// Adds one row: its block masses ([k blocks], any positive sum) and its ranks ([k blocks]). Neither sum falls with the
// level, and both grow by exactly 1 at the last. Throws Error(kNotFinite) when the masses have no positive finite sum.
void add_row(std::span<const float> mass, std::span<const std::uint8_t> ranks, RowSums& sums);

// Means over rows of every (bin, layer, head), and over the calls of each: captions and branches count alike.
class Fast {
 public:
  Fast(std::int64_t bins, std::int64_t layers, std::int64_t heads);

  // One call's rows of one head.
  void add(std::int64_t bin, std::int64_t layer, std::int64_t head, const RowSums& sums, std::int64_t rows);
  // Densities are those of `ranks` ([layers]). Throws Error(kInvalidArgument) unless every (bin, layer, head) has a
  // call.
  FidelityCurves curves(std::span<const RankMap> ranks) const;

  // The running sums, for saving: [bins][layers][heads][2 * kLevels + 1]: fidelity, mass, calls.
  std::span<const double> sums() const { return sums_; }
  void restore(std::span<const double> sums);

 private:
  std::span<double> cell(std::int64_t bin, std::int64_t layer, std::int64_t head);

  std::int64_t bins_, layers_, heads_;
  std::vector<double> sums_;
};

}  // namespace tulle
