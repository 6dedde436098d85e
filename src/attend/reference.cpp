// The oracle: fp64, one row at a time, no blocking. It shares no arithmetic with the kernels it judges.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attend/shape.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

struct RowResult {
  std::vector<double> out;
  double lse = 0;
};

std::vector<std::int64_t> seen_by_block(const AttentionArgs& args, std::int64_t b, std::int64_t h,
                                        std::int64_t q_block) {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j < args.k.tokens(); ++j) {
    if (!args.hidden_keys.empty()) {
      const auto [first, second] = args.hidden_keys[static_cast<std::size_t>(b)];
      if (first <= j && j < second) continue;
    }
    if (args.mask != nullptr && !args.mask->test(mask_batch(*args.mask, b), h, q_block, args.mask->k().block_of(j))) {
      continue;
    }
    keys.push_back(j);
  }
  return keys;
}

template <class T>
double dot(const T* a, const T* b, std::int64_t dim) {
  double sum = 0;
  for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(to_f32(a[i])) * static_cast<double>(to_f32(b[i]));
  return sum;
}

template <class T>
RowResult attend_row(const AttentionArgs& args, std::int64_t b, std::int64_t h, std::int64_t token,
                     const std::vector<std::int64_t>& keys) {
  const std::int64_t dim = args.q.head_dim();
  RowResult row{std::vector<double>(static_cast<std::size_t>(dim), 0.0), -std::numeric_limits<double>::infinity()};
  if (keys.empty()) return row;
  std::vector<double> weight;
  for (const std::int64_t j : keys) {
    weight.push_back(effective_scale(args) * dot(args.q.row<T>(b, token, h), args.k.row<T>(b, j, h), dim));
  }
  const double top = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - top);
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const T* v = args.v.row<T>(b, keys[n], h);
    for (std::int64_t i = 0; i < dim; ++i)
      row.out[static_cast<std::size_t>(i)] += weight[n] / sum * static_cast<double>(to_f32(v[i]));
  }
  row.lse = top + std::log(sum);
  return row;
}

struct Sink {
  const AttentionArgs& args;
  double* out64;
  double* lse64;

  void write(std::int64_t b, std::int64_t h, std::int64_t token, const RowResult& row) const {
    const std::int64_t dim = args.q.head_dim(), at = lse_index(args.q.shape, b, h, token);
    std::transform(row.out.begin(), row.out.end(), args.out.row<float>(b, token, h),
                   [](double x) { return static_cast<float>(x); });
    if (args.lse != nullptr) args.lse[at] = static_cast<float>(row.lse);
    if (lse64 != nullptr) lse64[at] = row.lse;
    if (out64 != nullptr) {
      std::copy(row.out.begin(), row.out.end(), out64 + ((b * args.q.tokens() + token) * args.q.heads() + h) * dim);
    }
  }
};

template <class T>
void attend_all(const AttentionArgs& args, const Sink& sink) {
  for (std::int64_t b = 0; b < args.q.batch(); ++b) {
    for (std::int64_t h = 0; h < args.q.heads(); ++h) {
      std::vector<std::int64_t> keys;
      std::int64_t block = -1;
      for (std::int64_t token = 0; token < args.q.tokens(); ++token) {
        const std::int64_t q_block = args.mask != nullptr ? args.mask->q().block_of(token) : 0;
        if (q_block != block) keys = seen_by_block(args, b, h, q_block);
        block = q_block;
        sink.write(b, h, token, attend_row<T>(args, b, h, token, keys));
      }
    }
  }
}

}  // namespace

void attend_reference(const AttentionArgs& args, double* out64, double* lse64) {
  check(args);
  require(args.out.dtype == DType::kF32, "attend_reference: out is {}; give an f32 tensor", to_string(args.out.dtype));
  const Sink sink{args, out64, lse64};
  switch (args.q.dtype) {
    case DType::kF32:
      return attend_all<float>(args, sink);
    case DType::kBf16:
      return attend_all<Bf16>(args, sink);
    case DType::kF16:
      return attend_all<F16>(args, sink);
  }
}

}  // namespace tulle
