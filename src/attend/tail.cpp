#include "attend/tail.hpp"

#include <algorithm>
#include <vector>

#include "attend/shape.hpp"
#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

template <class T>
void mean_rows(const ConstTensorView& in, std::int64_t first, std::int32_t tail, const Threads& threads,
               const TensorView& out) {
  threads.parallel_for(out.batch() * out.tokens(), [&](std::int64_t i) {
    const std::int64_t b = i / out.tokens(), group = i % out.tokens(), d = out.head_dim();
    std::vector<float> sum(static_cast<std::size_t>(d));
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      std::ranges::fill(sum, 0.0f);
      for (std::int64_t t = 0; t < tail; ++t) {
        const T* row = in.row<T>(b, first + group * tail + t, h);
        for (std::int64_t c = 0; c < d; ++c) sum[static_cast<std::size_t>(c)] += to_f32(row[c]);
      }
      T* mean = out.row<T>(b, group, h);
      for (std::int64_t c = 0; c < d; ++c) {
        mean[c] = from_f32<T>(sum[static_cast<std::size_t>(c)] / static_cast<float>(tail));
      }
    }
  });
}

Tail::Means means_of(const ConstTensorView& in, std::int64_t first, std::int64_t groups, std::int32_t tail,
                     const Threads& threads) {
  const std::array<std::int64_t, 4> shape = {in.batch(), groups, in.heads(), in.head_dim()};
  const auto count = static_cast<std::size_t>(in.batch() * groups * in.heads() * in.head_dim());
  Tail::Means means{Buffer<std::byte>(count * size_of(in.dtype)), {}};
  means.view = {means.bytes.data(), in.dtype, shape, packed_strides(shape)};
  if (in.dtype == DType::kF32)
    mean_rows<float>(in, first, tail, threads, means.view);
  else
    mean_rows<Bf16>(in, first, tail, threads, means.view);
  return means;
}

// What the mask leaves out, in groups of `tail` tokens; a group is a key block of one token.
BlockMask left_out(const BlockMask& mask, std::int64_t groups, std::int32_t tail) {
  Sequence sequence;
  sequence.grid = {1, 1, static_cast<std::int32_t>(groups)};
  BlockMask rest(mask.batch(), mask.heads(), mask.q(), {sequence, 1}, mask.order());
  const std::int64_t per_block = mask.k().block / tail;
  const std::int64_t first = mask.k().first_video_block();
  for (std::int64_t b = 0; b < mask.batch(); ++b) {
    for (std::int64_t h = 0; h < mask.heads(); ++h) {
      for (std::int64_t q = 0; q < mask.q_blocks(); ++q) {
        for (std::int64_t g = 0; g < groups; ++g) {
          if (!mask.test(b, h, q, first + g / per_block)) rest.set(b, h, q, g);
        }
      }
    }
  }
  return rest;
}

}  // namespace

Tail make_tail(const AttentionArgs& args, std::int32_t tail, const Threads& threads) {
  const BlockPartition& keys = args.mask->k();
  require(tail >= 1 && keys.block % tail == 0, "a tail of {} tokens does not divide key blocks of {}", tail,
          keys.block);
  const std::int64_t groups = keys.sequence.grid.tokens() / tail, first = keys.sequence.video_begin();
  Tail t;
  t.args = args;
  t.args.hidden_keys = {};
  t.k = means_of(args.k, first, groups, tail, threads), t.v = means_of(args.v, first, groups, tail, threads);
  t.args.k = t.k.view, t.args.v = t.v.view;
  if (groups == 0) return t;
  t.mask = std::make_unique<BlockMask>(left_out(*args.mask, groups, tail));
  t.args.mask = t.mask.get();
  return t;
}

}  // namespace tulle
