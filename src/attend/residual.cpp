#include "attend/residual.hpp"

#include <algorithm>

#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

void check_alike(const TensorView& out, const ConstTensorView& in) {
  require(out.shape == in.shape && out.dtype == in.dtype && out.dtype != DType::kF16,
          "attention outputs to be added differ in shape or type, or are f16");
}

// fn(batch, token, head) for every row of `like`.
template <class Fn>
void for_rows(const TensorView& like, const Threads& threads, const Fn& fn) {
  threads.parallel_for(like.batch() * like.tokens(), [&](std::int64_t i) {
    for (std::int64_t h = 0; h < like.heads(); ++h) fn(i / like.tokens(), i % like.tokens(), h);
  });
}

template <class T>
void add_typed(const TensorView& out, const ConstTensorView& a, float weight, const ConstTensorView& b,
               const Threads& threads) {
  for_rows(out, threads, [&](std::int64_t sample, std::int64_t token, std::int64_t head) {
    T* to = out.row<T>(sample, token, head);
    const T *x = a.row<T>(sample, token, head), *y = b.row<T>(sample, token, head);
    for (std::int64_t c = 0; c < out.head_dim(); ++c) to[c] = from_f32<T>(to_f32(x[c]) + weight * to_f32(y[c]));
  });
}

template <class T>
void copy_typed(const TensorView& out, const ConstTensorView& in, const Threads& threads) {
  for_rows(out, threads, [&](std::int64_t sample, std::int64_t token, std::int64_t head) {
    std::copy_n(in.row<T>(sample, token, head), out.head_dim(), out.row<T>(sample, token, head));
  });
}

}  // namespace

void add_scaled(TensorView out, ConstTensorView a, float weight, ConstTensorView b, const Threads& threads) {
  check_alike(out, a);
  check_alike(out, b);
  if (out.dtype == DType::kF32)
    add_typed<float>(out, a, weight, b, threads);
  else
    add_typed<Bf16>(out, a, weight, b, threads);
}

void copy_rows(TensorView out, ConstTensorView in, const Threads& threads) {
  check_alike(out, in);
  if (out.dtype == DType::kF32)
    copy_typed<float>(out, in, threads);
  else
    copy_typed<Bf16>(out, in, threads);
}

}  // namespace tulle
