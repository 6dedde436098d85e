#include "calibrate/mass.hpp"

#include <algorithm>

#include "base/fail.hpp"

namespace tulle {
namespace {

ConstTensorView one_head(ConstTensorView x, std::int64_t head) {
  require(x.batch() == 1, "calibration got a batch of {} samples; run one sample at a time", x.batch());
  require(head >= 0 && head < x.heads(), "head {} does not exist: the tensor has {} heads", head, x.heads());
  x.data = static_cast<const std::byte*>(x.data) + head * x.stride[2] * static_cast<std::int64_t>(size_of(x.dtype));
  x.shape[2] = 1;
  return x;
}

// Tokens as sub-blocks of their own.
BlockPartition tokens_of(const BlockPartition& blocks) {
  require(blocks.sequence.text_tokens == 0, "calibration is for video tokens alone, not for {} text tokens among them",
          blocks.sequence.text_tokens);
  return {blocks.sequence, 1};
}

}  // namespace

HeadMass::HeadMass(ConstTensorView q, ConstTensorView k, std::int64_t head, const BlockPartition& q_blocks,
                   const BlockPartition& k_blocks, const Threads& threads)
    : q_(pool_tokens(one_head(q, head), tokens_of(q_blocks), {}, threads)),
      k_(pool_tokens(one_head(k, head), tokens_of(k_blocks), {}, threads)),
      keys_(pack_keys(k_, 0, 0)),
      input_(make_score_input(q_, keys_, k_.subs, 0, 0, q_blocks.block, k_blocks.block)) {
  require(q.head_dim() == k.head_dim(), "q has a head dimension of {} and k of {}; they must be alike", q.head_dim(),
          k.head_dim());
}

void HeadMass::blocks(std::span<float> out, const Threads& threads) const {
  const std::int64_t columns = input_.k_blocks();
  threads.parallel_for(input_.q_blocks(), [&](std::int64_t block) {
    score_pooled_softmax(input_, block, block + 1, out.data() + block * columns);
  });
}

void HeadMass::rows(std::span<const std::int64_t> rows, std::span<float> out, const Threads& threads) const {
  const auto d = static_cast<std::size_t>(input_.head_dim);
  std::vector<float> picked(rows.size() * d);
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(q_.row(0, 0, rows[i]), d, picked.data() + i * d);
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
