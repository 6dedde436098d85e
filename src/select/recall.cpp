#include "select/recall.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kBlocksPerTask = 4;

void check_finite(std::span<const float> mass, std::int64_t b, std::int64_t head, std::int64_t q_block) {
  if (std::ranges::all_of(mass, [](float m) { return std::isfinite(m); })) return;
  fail(ErrorCode::kNotFinite,
       "q or k holds NaN, infinity or numbers too large at sample {}, head {}, near query block {}; check the model's "
       "weights and inputs",
       b, head, q_block);
}

// Of heads [0, q.heads()).
BlockMass mass_of(ConstTensorView q, ConstTensorView k, const SelectCall& call, std::int32_t block_q,
                  std::int32_t block_k, const Threads& threads) {
  require(block_k >= 1, "key blocks of {} tokens were asked for; a block has at least one", block_k);
  require(q.batch() == k.batch() && q.heads() == k.heads() && q.head_dim() == k.head_dim(),
          "q has {} samples, {} heads and head_dim {}, k has {}, {} and {}; pass both from one call", q.batch(),
          q.heads(), q.head_dim(), k.batch(), k.heads(), k.head_dim());
  const Scorer& scorer = find_scorer("pooled_softmax");
  const ScoreData data =
      prepare_scores(scorer, {call.partition.sequence, block_q, block_k, 1}, nullptr, q, k, call.hidden_keys, threads);
  const ScoreInput shape = data.input(0, 0);
  BlockMass out{q.batch() * q.heads(), shape.q_blocks(), shape.k_blocks(), {}};
  out.values.resize(static_cast<std::size_t>(out.maps * out.q_blocks * out.k_blocks));
  const std::int64_t tasks = ceil_div(out.q_blocks, kBlocksPerTask);
  threads.parallel_for(out.maps * tasks, [&](std::int64_t i) {
    const std::int64_t map = i / tasks, begin = i % tasks * kBlocksPerTask;
    const std::int64_t end = std::min(out.q_blocks, begin + kBlocksPerTask);
    const std::int64_t b = map / q.heads(), head = map % q.heads();
    const std::span<float> rows = std::span(out.values)
                                      .subspan(static_cast<std::size_t>((map * out.q_blocks + begin) * out.k_blocks),
                                               static_cast<std::size_t>((end - begin) * out.k_blocks));
    scorer.score(data.input(b, head), begin, end, rows.data());
    check_finite(rows, b, head, begin);
  });
  return out;
}

// One (sample, head) of a tensor, without a copy.
ConstTensorView one_map(ConstTensorView x, std::int64_t b, std::int64_t head) {
  require(b >= 0 && b < x.batch() && head >= 0 && head < x.heads(),
          "sample {}, head {} was asked for of a tensor with {} samples and {} heads", b, head, x.batch(), x.heads());
  const std::int64_t elements = b * x.stride[0] + head * x.stride[2];
  x.data = static_cast<const char*>(x.data) + elements * static_cast<std::int64_t>(size_of(x.dtype));
  x.shape[0] = x.shape[2] = 1;
  return x;
}

std::int64_t first_video_block(const BlockPartition& p) {
  return p.sequence.placement == TextPlacement::kPrefix ? p.text_blocks() : 0;
}

double kept_mass(const BlockMask& mask, std::int64_t b, std::int64_t head, std::int64_t q_block,
                 std::span<const float> mass) {
  double dropped = 0;
  const std::int64_t row = first_video_block(mask.q()) + q_block, first = first_video_block(mask.k());
  for (std::size_t v = 0; v < mass.size(); ++v) {
    if (!mask.test(b, head, row, first + static_cast<std::int64_t>(v))) dropped += mass[v];
  }
  return std::max(0.0, 1 - dropped);
}

}  // namespace

BlockMass block_mass(ConstTensorView q, ConstTensorView k, const SelectCall& call, std::int32_t block_k,
                     const Threads& threads) {
  check_partition(call.partition);
  return mass_of(q, k, call, call.partition.block, block_k, threads);
}

std::vector<float> row_mass(ConstTensorView q, ConstTensorView k, const SelectCall& call, std::int32_t block_k,
                            std::int64_t b, std::int64_t head, const Threads& threads) {
  SelectCall one = call;
  if (!one.hidden_keys.empty()) {
    require(b >= 0 && b < static_cast<std::int64_t>(one.hidden_keys.size()),
            "sample {} was asked for, but there are hidden keys of {} samples", b, one.hidden_keys.size());
    one.hidden_keys = one.hidden_keys.subspan(static_cast<std::size_t>(b), 1);
  }
  return mass_of(one_map(q, b, head), one_map(k, b, head), one, 1, block_k, threads).values;
}

std::vector<Recall> recall_of(const BlockMask& mask, const BlockMass& mass) {
  require(mask.batch() * mask.heads() == mass.maps && mask.q().video_blocks() == mass.q_blocks &&
              mask.k().video_blocks() == mass.k_blocks,
          "a mask of {} maps of {} x {} video blocks was given for masses of {} maps of {} x {}; use one geometry",
          mask.batch() * mask.heads(), mask.q().video_blocks(), mask.k().video_blocks(), mass.maps, mass.q_blocks,
          mass.k_blocks);
  std::vector<Recall> out;
  for (std::int64_t map = 0; map < mass.maps; ++map) {
    std::vector<double> kept;
    for (std::int64_t u = 0; u < mass.q_blocks; ++u) {
      kept.push_back(kept_mass(mask, map / mask.heads(), map % mask.heads(), u, mass.row(map, u)));
    }
    Recall r;
    for (double share : kept) r.mean += share / static_cast<double>(kept.size());
    const auto at = static_cast<std::ptrdiff_t>((kept.size() * 5 + 99) / 100 - 1);
    std::ranges::nth_element(kept, kept.begin() + at);
    r.low = kept[static_cast<std::size_t>(at)];
    out.push_back(r);
  }
  return out;
}

}  // namespace tulle
