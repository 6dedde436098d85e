// The pooled tail: dropped blocks still count, as their means.
#pragma once

#include <cstdint>
#include <memory>

#include "tulle/attention.hpp"

namespace tulle {

// The means of the video's keys and values, `tail` tokens each, and which of them a query block sees: those of the
// blocks that it does not keep. A mean stands for `tail` keys, so its weight is tail * exp(scale * q . mean k): the
// zeroth-order term of the residual (Sol-Attention, PISA, 2026). Text is never dropped, so it has no tail; the last
// tokens of the video, if they are fewer than `tail`, are left out.
struct Tail {
  struct Means {
    Buffer<std::byte> bytes;
    TensorView view;  // [batch, groups, heads, head_dim]
  };
  Means k, v;
  std::unique_ptr<BlockMask> mask;  // a mean is a key block of one token
  AttentionArgs args;               // of the same q over these keys; null mask where there is no mean
};

// args.mask must be given; video key blocks must be whole multiples of `tail`. Throws Error(kInvalidArgument).
Tail make_tail(const AttentionArgs& args, std::int32_t tail, const Threads& threads);

}  // namespace tulle
