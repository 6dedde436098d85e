#include "select/recall.hpp"

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"
#include "select/chooser.hpp"
#include "select/head_mass.hpp"

namespace tulle {
namespace {

void check_finite(std::span<const float> mass, std::int64_t b, std::int64_t head, std::int64_t k_blocks) {
  const auto bad = std::ranges::find_if(mass, [](float m) { return !std::isfinite(m); });
  if (bad == mass.end()) return;
  fail(ErrorCode::kNotFinite,
       "q or k holds NaN, infinity or numbers too large at sample {}, head {}, query block {}; check the model's "
       "weights and inputs",
       b, head, (bad - mass.begin()) / k_blocks);
}

double kept_mass(const BlockMask& mask, std::int64_t b, std::int64_t head, std::int64_t q_block,
                 std::span<const float> mass) {
  double dropped = 0;
  const std::int64_t row = mask.q().first_video_block() + q_block, first = mask.k().first_video_block();
  for (std::size_t v = 0; v < mass.size(); ++v) {
    if (!mask.test(b, head, row, first + static_cast<std::int64_t>(v))) dropped += mass[v];
  }
  return std::max(0.0, 1 - dropped);
}

}  // namespace

BlockMass block_mass(ConstTensorView q, ConstTensorView k, const SelectCall& call, std::int32_t block_k,
                     const Threads& threads) {
  const BlockPartition& q_blocks = call.partition;
  const BlockPartition k_blocks{q_blocks.sequence, block_k};
  check_partition(q_blocks);
  check_partition(k_blocks);
  BlockMass out{q.batch() * q.heads(), q_blocks.video_blocks(), k_blocks.video_blocks(), {}};
  const auto per_map = static_cast<std::size_t>(out.q_blocks * out.k_blocks);
  out.values.resize(static_cast<std::size_t>(out.maps) * per_map);
  for (std::int64_t map = 0; map < out.maps; ++map) {
    const std::int64_t b = map / q.heads(), head = map % q.heads();
    const auto values = std::span(out.values).subspan(static_cast<std::size_t>(map) * per_map, per_map);
    HeadMass(q, k, b, head, q_blocks, k_blocks, call.hidden_keys, threads).blocks(values, threads);
    check_finite(values, b, head, out.k_blocks);
  }
  return out;
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

BlockMask best_blocks(const BlockMass& mass, const BlockPartition& q, const BlockPartition& k, OrderKind order,
                      std::int32_t permille) {
  require(permille >= 1 && permille <= 1000, "a density of {} / 1000 is outside [1, 1000]", permille);
  require(
      q.text_blocks() == 0 && k.text_blocks() == 0 && q.count() == mass.q_blocks && k.count() == mass.k_blocks,
      "masses of {} x {} video blocks were given for partitions of {} x {} blocks; use those of the masses, without "
      "text",
      mass.q_blocks, mass.k_blocks, q.count(), k.count());
  BlockMask mask(1, mass.maps, q, k, order);
  std::vector<std::uint8_t> kept(static_cast<std::size_t>(mass.k_blocks));
  for (std::int64_t row = 0; row < mass.maps * mass.q_blocks; ++row) {
    const std::int64_t map = row / mass.q_blocks, u = row % mass.q_blocks;
    std::ranges::fill(kept, std::uint8_t{0});
    choose_top_k({.scores = mass.row(map, u), .permille = permille, .seed = mix(0, static_cast<std::uint64_t>(row))},
                 kept);
    for (std::int64_t v = 0; v < mass.k_blocks; ++v) mask.set(0, map, u, v, kept[static_cast<std::size_t>(v)] != 0);
  }
  return mask;
}

}  // namespace tulle
