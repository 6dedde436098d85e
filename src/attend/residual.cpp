#include "attend/residual.hpp"

#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

template <class T>
void add_rows(const TensorView& out, const ConstTensorView& residual, const Threads& threads) {
  threads.parallel_for(out.batch() * out.tokens(), [&](std::int64_t i) {
    const std::int64_t b = i / out.tokens(), token = i % out.tokens();
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      T* to = out.row<T>(b, token, h);
      const T* from = residual.row<T>(b, token, h);
      for (std::int64_t c = 0; c < out.head_dim(); ++c) to[c] = from_f32<T>(to_f32(to[c]) + to_f32(from[c]));
    }
  });
}

}  // namespace

void add_residual(TensorView out, ConstTensorView residual, const Threads& threads) {
  require(out.shape == residual.shape && out.dtype == residual.dtype && out.dtype != DType::kF16,
          "a residual has another shape or type than the output, or is f16");
  if (out.dtype == DType::kF32)
    add_rows<float>(out, residual, threads);
  else
    add_rows<Bf16>(out, residual, threads);
}

}  // namespace tulle
