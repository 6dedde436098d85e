#include "attend/keys.hpp"

#include <algorithm>

#include "attend/shape.hpp"
#include "base/checked.hpp"

namespace tulle::cpu {
namespace {

std::uint32_t lane_bits(std::int64_t begin, std::int64_t end) {
  return static_cast<std::uint32_t>((std::uint64_t{1} << end) - (std::uint64_t{1} << begin));
}

// Adds keys [begin, end), which start at or behind the last panel added.
void add_keys(std::int64_t begin, std::int64_t end, std::int64_t panel_keys, std::vector<Panel>& panels) {
  while (begin < end) {
    const std::int64_t index = begin / panel_keys, base = index * panel_keys;
    const std::int64_t stop = std::min(end, base + panel_keys);
    const std::uint32_t lanes = lane_bits(begin - base, stop - base);
    if (!panels.empty() && panels.back().index == index)
      panels.back().lanes |= lanes;
    else
      panels.push_back({static_cast<std::int32_t>(index), lanes});
    begin = stop;
  }
}

// Adds [begin, end) without the keys hidden from sample b.
void add_seen(const AttentionArgs& args, std::int64_t b, std::int64_t begin, std::int64_t end, std::int64_t panel_keys,
              std::vector<Panel>& panels) {
  if (args.hidden_keys.empty()) return add_keys(begin, end, panel_keys, panels);
  const auto [first, second] = args.hidden_keys[static_cast<std::size_t>(b)];
  if (first == second) return add_keys(begin, end, panel_keys, panels);
  add_keys(begin, std::min(end, first), panel_keys, panels);
  add_keys(std::max(begin, second), end, panel_keys, panels);
}

}  // namespace

void collect_panels(const AttentionArgs& args, std::int64_t b, std::int64_t head, std::int64_t q_block,
                    std::int64_t panel_keys, std::vector<Panel>& panels) {
  panels.clear();
  if (args.mask == nullptr) return add_seen(args, b, 0, args.k.tokens(), panel_keys, panels);
  const BlockPartition& blocks = args.mask->k();
  for_each_block(args.mask->row(mask_batch(*args.mask, b), head, q_block),
                 [&](std::int64_t j) { add_seen(args, b, blocks.begin(j), blocks.end(j), panel_keys, panels); });
}

std::vector<std::uint8_t> needed_panels(const AttentionArgs& args, std::int64_t b, std::int64_t head,
                                        std::int64_t panel_keys) {
  std::vector<std::uint8_t> needed(static_cast<std::size_t>(ceil_div(args.k.tokens(), panel_keys)), 0);
  std::vector<Panel> panels;
  if (args.mask == nullptr) {
    collect_panels(args, b, head, 0, panel_keys, panels);
  } else {
    const BlockMask& mask = *args.mask;
    std::vector<std::uint32_t> any(static_cast<std::size_t>(mask.words_per_row()), 0);
    for (std::int64_t i = 0; i < mask.q_blocks(); ++i) {
      const auto row = mask.row(mask_batch(mask, b), head, i);
      std::transform(row.begin(), row.end(), any.begin(), any.begin(), [](auto x, auto y) { return x | y; });
    }
    for_each_block(any,
                   [&](std::int64_t j) { add_seen(args, b, mask.k().begin(j), mask.k().end(j), panel_keys, panels); });
  }
  for (const Panel& panel : panels) needed[static_cast<std::size_t>(panel.index)] = 1;
  return needed;
}

std::int64_t row_cost(const AttentionArgs& args, std::int64_t b, std::int64_t head, std::int64_t q_block) {
  if (args.mask == nullptr) return args.k.tokens();
  return count_blocks(args.mask->row(mask_batch(*args.mask, b), head, q_block)) * args.mask->k().block;
}

}  // namespace tulle::cpu
