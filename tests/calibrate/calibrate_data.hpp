// Queries and keys for the tests of calibration, and their softmax in double, row by row.
#pragma once

#include <cmath>
#include <vector>

#include "tests/select/select_data.hpp"
#include "tulle/threads.hpp"

namespace tulle::testing_data {

struct Call {
  BlockPartition q_blocks, k_blocks;
  Tokens q, k;

  Call(const char* grid, std::int32_t block_q, std::int32_t block_k, std::int64_t heads, std::int64_t head_dim,
       std::uint32_t seed, float sharpness = 1.0f)
      : q_blocks{{parse_grid(grid)}, block_q}, k_blocks{{parse_grid(grid)}, block_k} {
    const Sequence& s = q_blocks.sequence;
    const TokenOrder order = make_order(OrderKind::kHilbert, s.grid);
    const std::array<std::int64_t, 4> shape = {1, s.tokens(), heads, head_dim};
    q = waves(order, s, shape, seed, sharpness, 0.5f, 2 * seed);
    k = waves(order, s, shape, seed, sharpness, 0.5f, 2 * seed + 1);
  }
};

// One softmax row in double.
inline std::vector<double> softmax_row(const Call& call, std::int64_t head, std::int64_t row) {
  const ConstTensorView q = call.q.view(), k = call.k.view();
  const float* query = q.row<float>(0, row, head);
  std::vector<double> p;
  double largest = -1e300, sum = 0;
  for (std::int64_t j = 0; j < k.tokens(); ++j) {
    double s = 0;
    for (std::int64_t c = 0; c < k.head_dim(); ++c) s += double{query[c]} * double{k.row<float>(0, j, head)[c]};
    p.push_back(s / std::sqrt(static_cast<double>(k.head_dim())));
    largest = std::max(largest, p.back());
  }
  for (double& x : p) sum += x = std::exp(x - largest);
  for (double& x : p) x /= sum;
  return p;
}

inline std::vector<double> block_sums(const std::vector<double>& p, const BlockPartition& blocks) {
  std::vector<double> sums(static_cast<std::size_t>(blocks.count()));
  for (std::size_t j = 0; j < p.size(); ++j) {
    sums[static_cast<std::size_t>(blocks.block_of(static_cast<std::int64_t>(j)))] += p[j];
  }
  return sums;
}

}  // namespace tulle::testing_data
