#include "attend/residual.hpp"

#include <algorithm>
#include <vector>

#include "attend/shape.hpp"
#include "attend/tail.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

// out <- change(out, in), element by element.
template <class T, class Change>
void change_rows(const TensorView& out, const ConstTensorView& in, const Threads& threads, Change change) {
  threads.parallel_for(out.batch() * out.tokens(), [&](std::int64_t i) {
    const std::int64_t b = i / out.tokens(), token = i % out.tokens();
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      T* to = out.row<T>(b, token, h);
      const T* from = in.row<T>(b, token, h);
      for (std::int64_t c = 0; c < out.head_dim(); ++c) to[c] = from_f32<T>(change(to_f32(to[c]), to_f32(from[c])));
    }
  });
}

template <class Change>
void change_all(const TensorView& out, const ConstTensorView& in, const Threads& threads, Change change) {
  require(out.shape == in.shape && out.dtype == in.dtype, "a residual of another shape or type than the output");
  if (out.dtype == DType::kF32)
    change_rows<float>(out, in, threads, change);
  else
    change_rows<Bf16>(out, in, threads, change);
}

// Adds to (args.out, args.lse) what the blocks left out give.
void attend_rest(const AttentionArgs& args, const Threads& threads) {
  const BlockMask rest = complement(*args.mask);
  const std::array<std::int64_t, 4> shape = args.q.shape;
  Buffer<std::byte> out(static_cast<std::size_t>(args.q.elements()) * size_of(args.out.dtype));
  std::vector<float> lse(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
  AttentionArgs part = args;
  part.out = {out.data(), args.out.dtype, shape, packed_strides(shape)};
  part.lse = lse.data();
  part.mask = &rest;
  attend_cpu(part, threads);
  merge_parts(args.out, args.lse, part.out, lse.data(), threads);
}

}  // namespace

void complete(const AttentionArgs& args, std::int32_t tail, TensorView residual, const Threads& threads) {
  check(args);
  require(args.mask != nullptr && args.lse != nullptr, "a residual needs the mask and the LSE of the kept part");
  const auto copy = [](float, float from) { return from; };
  change_all(residual, args.out, threads, copy);
  if (tail > 0) {
    std::vector<float> lse(args.lse, args.lse + args.q.shape[0] * args.q.shape[1] * args.q.shape[2]);
    AttentionArgs with_tail = args;
    with_tail.out = residual;
    with_tail.lse = lse.data();
    attend_tail(with_tail, tail, threads);
  }
  attend_rest(args, threads);
  change_all(residual, args.out, threads, [](float given, float all) { return all - given; });
}

void add_residual(TensorView out, ConstTensorView residual, const Threads& threads) {
  change_all(out, residual, threads, [](float a, float b) { return a + b; });
}

}  // namespace tulle
