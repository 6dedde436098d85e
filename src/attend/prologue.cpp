#include "attend/prologue.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

struct Prologue {
  ConstTensorView in;
  const float* weight;
  float eps;
  const float* cos;
  const float* sin;
  TensorView out;
};

// Sum of squares over a fixed set of running sums, in double: the order is that of the row, whoever computes it.
double sum_of_squares(const float* row, std::int64_t count) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t j = 0; j < kSums; ++j) {
      const double x = static_cast<double>(row[i + j]);
      sums[static_cast<std::size_t>(j)] += x * x;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  for (const double s : sums) sum += s;
  return sum;
}

template <class T>
void load_row(const Prologue& p, std::int64_t b, std::int64_t token, float* row) {
  const std::int64_t dim = p.in.head_dim();
  for (std::int64_t h = 0; h < p.in.heads(); ++h) {
    std::transform(p.in.row<T>(b, token, h), p.in.row<T>(b, token, h) + dim, row + h * dim,
                   [](T x) { return to_f32(x); });
  }
}

void normalize(const Prologue& p, float* row) {
  const std::int64_t count = p.in.heads() * p.in.head_dim();
  const double mean = sum_of_squares(row, count) / static_cast<double>(count);
  const auto factor = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(p.eps)));
  for (std::int64_t i = 0; i < count; ++i) row[i] = row[i] * factor * p.weight[i];
}

void rotate(const float* cos, const float* sin, std::int64_t pairs, float* head) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x = head[2 * i], y = head[2 * i + 1];
    head[2 * i] = x * cos[i] - y * sin[i];
    head[2 * i + 1] = x * sin[i] + y * cos[i];
  }
}

template <class T>
void store_row(const Prologue& p, std::int64_t b, std::int64_t token, const float* row) {
  const std::int64_t dim = p.in.head_dim();
  for (std::int64_t h = 0; h < p.in.heads(); ++h) {
    std::transform(row + h * dim, row + (h + 1) * dim, p.out.row<T>(b, token, h),
                   [](float x) { return from_f32<T>(x); });
  }
}

void process_row(const Prologue& p, std::int64_t b, std::int64_t token, float* row) {
  switch (p.in.dtype) {
    case DType::kF32:
      load_row<float>(p, b, token, row);
      break;
    case DType::kBf16:
      load_row<Bf16>(p, b, token, row);
      break;
    case DType::kF16:
      load_row<F16>(p, b, token, row);
      break;
  }
  const std::int64_t dim = p.in.head_dim(), pairs = dim / 2;
  if (p.weight != nullptr) normalize(p, row);
  if (p.cos != nullptr) {
    for (std::int64_t h = 0; h < p.in.heads(); ++h) {
      rotate(p.cos + token * pairs, p.sin + token * pairs, pairs, row + h * dim);
    }
  }
  if (p.out.dtype == DType::kF32)
    store_row<float>(p, b, token, row);
  else
    store_row<Bf16>(p, b, token, row);
}

void check_prologue(const Prologue& p) {
  require(p.in.shape == p.out.shape,
          "rope_norm: in and out have different shapes; give an output of the input's shape");
  require(p.in.stride[3] == 1 && p.out.stride[3] == 1,
          "rope_norm: the last dimension has stride {} in and {} out; make it contiguous", p.in.stride[3],
          p.out.stride[3]);
  require(p.in.head_dim() % 2 == 0, "rope_norm: head_dim is {}; rotation works on pairs, give an even one",
          p.in.head_dim());
  require((p.cos == nullptr) == (p.sin == nullptr), "rope_norm: only one of cos and sin is given; give both or none");
  require(p.out.dtype != DType::kF16, "rope_norm: out is f16; give an f32 or bf16 tensor");
  require(p.in.elements() == 0 || (p.in.data != nullptr && p.out.data != nullptr),
          "rope_norm: in or out has no memory; pass pointers to both");
}

}  // namespace

void rope_norm(ConstTensorView in, const float* weight, float eps, const float* cos, const float* sin, TensorView out,
               const Threads& threads) {
  const Prologue p{in, weight, eps, cos, sin, out};
  check_prologue(p);
  if (in.elements() == 0) return;
  constexpr std::int64_t kRowsATime = 32;
  threads.parallel_ranges(in.batch() * in.tokens(), kRowsATime, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(in.heads() * in.head_dim()));
    for (std::int64_t i = begin; i < end; ++i) process_row(p, i / in.tokens(), i % in.tokens(), row.data());
  });
}

}  // namespace tulle
