// Which keys a block of query rows sees, in the form the CPU kernel eats: a list of panels with lane bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/kernel_cpu.hpp"
#include "tulle/attention.hpp"

namespace tulle::cpu {

// Replaces `panels` by those that (b, head, q_block) sees, in increasing order; q_block is ignored without a mask.
// Panels are cut from key 0 on, whatever the blocks are, so that equal sets of keys give equal lists.
void collect_panels(const AttentionArgs& args, std::int64_t b, std::int64_t head, std::int64_t q_block,
                    std::int64_t panel_keys, std::vector<Panel>& panels);

// One flag per panel of (b, head): whether any query row sees it. Panels that nobody sees are not packed.
std::vector<std::uint8_t> needed_panels(const AttentionArgs& args, std::int64_t b, std::int64_t head,
                                        std::int64_t panel_keys);

// Upper estimate of the keys that one row of (b, head, q_block) sees; it orders the work.
std::int64_t row_cost(const AttentionArgs& args, std::int64_t b, std::int64_t head, std::int64_t q_block);

}  // namespace tulle::cpu
