// The error rule: against fp64, at most twice the error of a plain f32 computation of the same thing, plus 1e-5.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attend/shape.hpp"
#include "attention_cases.hpp"

namespace tulle::cases {

struct Exact {
  std::vector<double> out, lse;
};

inline Exact exact(Problem& p) {
  Exact e;
  const AttentionCase& c = p.c;
  e.out.resize(static_cast<std::size_t>(c.batch * c.nq() * c.heads * c.dim));
  e.lse.resize(static_cast<std::size_t>(c.batch * c.nq() * c.heads));
  Tensor out = make_tensor({c.batch, c.nq(), c.heads, c.dim}, DType::kF32, Layout::kPacked);
  AttentionArgs args = p.args();
  args.out = out.view;
  args.lse = nullptr;
  attend_reference(args, e.out.data(), e.lse.data());
  return e;
}

inline bool is_seen(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (!p.hidden.empty()) {
    const auto [first, second] = p.hidden[static_cast<std::size_t>(b)];
    if (first <= j && j < second) return false;
  }
  if (p.mask == nullptr) return true;
  return p.mask->test(mask_batch(*p.mask, b), h, p.mask->q().block_of(i), p.mask->k().block_of(j));
}

// What a library that knows nothing of blocks does: scores, softmax, product, each in f32, one row after the other.
inline std::vector<float> plain_row(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  const AttentionCase& c = p.c;
  const float scale = c.scale != 0 ? c.scale : 1.0f / std::sqrt(static_cast<float>(c.dim));
  std::vector<float> weight(static_cast<std::size_t>(c.nk())), out(static_cast<std::size_t>(c.dim), 0.0f);
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::int64_t j = 0; j < c.nk(); ++j) {
    float s = 0;
    for (std::int64_t x = 0; x < c.dim; ++x) s += get(p.q.view, b, i, h, x) * get(p.k.view, b, j, h, x);
    weight[j] = is_seen(p, b, h, i, j) ? s * scale : -std::numeric_limits<float>::infinity();
    top = std::max(top, weight[j]);
  }
  if (std::isinf(top)) return out;
  for (float& w : weight) sum += w = std::exp(w - top);
  for (std::int64_t j = 0; j < c.nk(); ++j) {
    if (!is_seen(p, b, h, i, j)) continue;
    for (std::int64_t x = 0; x < c.dim; ++x) out[x] += weight[j] * get(p.v.view, b, j, h, x);
  }
  for (float& x : out) x /= sum;
  return out;
}

struct Distance {
  double squared = 0, norm = 0, largest = 0;

  void add(double value, double truth) {
    squared += (value - truth) * (value - truth);
    norm += truth * truth;
    largest = std::isnan(value) ? std::numeric_limits<double>::infinity() : std::max(largest, std::abs(value - truth));
  }
  double relative() const { return norm > 0 ? std::sqrt(squared / norm) : std::sqrt(squared); }
};

inline Distance distance_of_plain(const Problem& p, const Exact& e) {
  Distance d;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < p.c.batch; ++b) {
    for (std::int64_t i = 0; i < p.c.nq(); ++i) {
      for (std::int64_t h = 0; h < p.c.heads; ++h) {
        for (const float x : plain_row(p, b, h, i)) {
          d.add(p.c.dtype == DType::kBf16 ? to_f32(from_f32<Bf16>(x)) : x, e.out[at++]);
        }
      }
    }
  }
  return d;
}

inline Distance distance_of_kernel(const Problem& p, const Exact& e) {
  Distance d;
  std::size_t at = 0;
  for_each_element(p.out.view.shape,
                   [&](auto b, auto t, auto h, auto i) { d.add(get(p.out.view, b, t, h, i), e.out[at++]); });
  return d;
}

// LSE: f32 has 24 bits, and the dot products behind it are f32 sums.
inline void expect_lse(const std::vector<float>& lse, const std::vector<double>& truth) {
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(truth[i]))
      ASSERT_EQ(lse[i], -std::numeric_limits<float>::infinity()) << "row " << i;
    else
      ASSERT_NEAR(lse[i], truth[i], 1e-5 + 2e-6 * std::abs(truth[i])) << "row " << i;
  }
}

// Runs attend_cpu on the problem and holds it to the rule.
inline void expect_error_rule(Problem& p, const Threads& threads) {
  attend_cpu(p.args(), threads);
  const Exact truth = exact(p);
  const Distance plain = distance_of_plain(p, truth), kernel = distance_of_kernel(p, truth);
  EXPECT_LE(kernel.relative(), 2 * plain.relative() + 1e-5) << p.c.name;
  EXPECT_LE(kernel.largest, 2 * plain.largest + 1e-5) << p.c.name;
  expect_lse(p.lse, truth.lse);
}

}  // namespace tulle::cases
