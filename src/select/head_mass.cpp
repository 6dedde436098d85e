#include "select/head_mass.hpp"

#include <algorithm>

#include "base/fail.hpp"

namespace tulle {
namespace {

// One (sample, head) of a tensor, without a copy.
ConstTensorView one_map(ConstTensorView x, std::int64_t b, std::int64_t head) {
  require(b >= 0 && b < x.batch() && head >= 0 && head < x.heads(),
          "sample {}, head {} was asked for of a tensor with {} samples and {} heads", b, head, x.batch(), x.heads());
  const std::int64_t elements = b * x.stride[0] + head * x.stride[2];
  x.data = static_cast<const std::byte*>(x.data) + elements * static_cast<std::int64_t>(size_of(x.dtype));
  x.shape[0] = x.shape[2] = 1;
  return x;
}

// Tokens as sub-blocks of their own.
BlockPartition tokens_of(const BlockPartition& blocks) {
  check_partition(blocks);
  return {blocks.sequence, 1};
}

HiddenTokens of_sample(HiddenTokens hidden, std::int64_t b) {
  if (hidden.empty()) return hidden;
  require(b >= 0 && b < std::ssize(hidden), "sample {} was asked for, but there are hidden keys of {} samples", b,
          hidden.size());
  return hidden.subspan(static_cast<std::size_t>(b), 1);
}

}  // namespace

HeadMass::HeadMass(ConstTensorView q, ConstTensorView k, std::int64_t b, std::int64_t head,
                   const BlockPartition& q_blocks, const BlockPartition& k_blocks, HiddenTokens hidden_keys,
                   const Threads& threads)
    : q_(pool_tokens(one_map(q, b, head), tokens_of(q_blocks), {}, threads)),
      k_(pool_tokens(one_map(k, b, head), tokens_of(k_blocks), of_sample(hidden_keys, b), threads)),
      keys_(pack_keys(k_, 0, 0)),
      input_(make_score_input(q_, keys_, k_.subs, 0, 0, q_blocks.block, k_blocks.block)) {
  require(q.batch() == k.batch() && q.heads() == k.heads() && q.head_dim() == k.head_dim(),
          "q has {} samples, {} heads and head_dim {}, k has {}, {} and {}; pass both from one call", q.batch(),
          q.heads(), q.head_dim(), k.batch(), k.heads(), k.head_dim());
}

void HeadMass::blocks(std::span<float> out, const Threads& threads) const {
  const std::int64_t columns = input_.k_blocks();
  threads.parallel_for(input_.q_blocks(), [&](std::int64_t block) {
    score_pooled_softmax(input_, block, block + 1, out.data() + block * columns);
  });
}

void HeadMass::rows(std::span<const std::int64_t> rows, std::span<float> out, const Threads& threads) const {
  const auto d = static_cast<std::size_t>(input_.head_dim);
  const std::int64_t first = q_.subs.first_video_block();
  std::vector<float> picked(rows.size() * d);
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(q_.row(0, 0, first + rows[i]), d, picked.data() + i * d);
  const std::vector<std::int32_t> ones(rows.size(), 1);
  ScoreInput input = input_;
  input.q = picked.data();
  input.q_counts = ones;
  input.q_per_block = 1;  // every row is a block of its own
  const std::int64_t columns = input.k_blocks();
  threads.parallel_for(static_cast<std::int64_t>(rows.size()), [&](std::int64_t row) {
    score_pooled_softmax(input, row, row + 1, out.data() + row * columns);
  });
}

}  // namespace tulle
