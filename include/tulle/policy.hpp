// Policy: the recipe by which blocks are chosen. Plain data, read from JSON; unknown keys are errors.
//
// docs/formats/policy.md lists the presets and every key.
// Everything that depends on time is integer arithmetic on (step, steps), so that 4-step and 50-step runs both work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/grid.hpp"

namespace tulle {

enum class Branch : std::uint8_t { kConditional, kUnconditional };
const char* to_string(Branch branch);

// Time is counted in reference steps: step s of n stands at floor(s * reference_steps / n).
struct Schedule {
  std::int32_t reference_steps = 50;
  std::int32_t dense_steps = 12;       // reference steps before this one are dense
  std::int32_t interval = 12;          // reference steps between two choices of a mask, >= 1
  std::vector<std::int32_t> permille;  // density of each interval in 1/1000, the last one repeats; each in [1, 1000]
  // The reference steps at which masks are chosen, increasing from dense_steps; empty: every `interval`.
  std::vector<std::int32_t> starts = {};
  bool operator==(const Schedule&) const = default;
};

// The unconditional branch of guidance, taken from the conditional one of the same step and layer. At the first step of
// each interval that `starts` begins, the unconditional branch computes all blocks, and how its attention output
// differs from the conditional one's is kept. At the interval's other steps its output is the conditional one's plus
// that difference, which loses `fade` of itself with every reference step. With `renew` the difference is made anew
// every so many reference steps, from the blocks that the conditional branch keeps, the tail, and its residual: what
// both branches lack is much the same, and cancels. Steps at which the schedule keeps every block are computed. (After
// the difference of the two branches that FasterCache keeps of whole model outputs; Lv et al., 2024.)
struct Follow {
  std::vector<std::int32_t> starts;  // reference steps, increasing; empty: every branch is computed for itself
  std::int32_t fade = 0;             // in 1/1000, [0, 1000]
  std::int32_t renew = 0;            // reference steps, >= 0; 0: only where an interval starts
  bool operator==(const Follow&) const = default;
};

// Where the density of a call comes from.
// kSchedule  schedule.permille, one for all heads
// kUniform   the profile: the level of each head's rank map that comes nearest to `density`
// kFast      the profile: a density for each part of the run, layer and head, all together `density`
//            (ScalingAttention's target surface)
// kValued    the same, but the densities under which the least mass is lost, early losses weighing more (`fall`)
enum class BudgetKind : std::uint8_t { kSchedule, kUniform, kFast, kValued };
const char* to_string(BudgetKind kind);

// What the blocks are.
// kFixed     runs of block_q and block_k tokens in memory order, the same for all heads
// kClusters  k-means clusters of the queries and of the keys of each (sample, head), block_q and block_k tokens on
//            average: tokens are permuted for attention, head by head (SVG2)
enum class BlockShape : std::uint8_t { kFixed, kClusters };
const char* to_string(BlockShape shape);

struct Policy {
  std::string name = "dense";
  bool sparse = false;  // false: every call is dense, the rest below is not used but for `order`
  OrderKind order = OrderKind::kRaster;
  BlockShape blocks = BlockShape::kFixed;
  std::int32_t block_q = 64, block_k = 64;  // tokens
  std::int32_t sub_block = 16;              // tokens pooled into one score row, divides block_q and block_k
  std::string scorer = "pooled_softmax";    // a name of scorers()
  std::string chooser = "top_k";            // a name of choosers()
  Schedule schedule;
  std::vector<std::int32_t> dense_layers;  // layers that are always dense
  std::int32_t top_p = 900;                // share of a row's scores that chooser top_p keeps, in 1/1000, [1, 1000]
  std::int32_t floor = 0;  // density that chooser top_p keeps at least, in 1/1000, [0, 1000]; at least one block
  // What needs a profile (needs_profile). `density` is over the calls that schedule and dense_layers leave sparse.
  BudgetKind budget = BudgetKind::kSchedule;
  std::int32_t density = 0;   // of all but kSchedule, in 1/1000, [1, 1000]
  std::int32_t fall = 1;      // of kValued: how many times more a loss at the start weighs than at the end, >= 1
  std::int32_t envelope = 0;  // 0: every block is a candidate; else only those the rank map keeps at this density, in
                              // 1/1000
  // Blocks that are not kept still count, as their means: `tail` tokens of a dropped block share one key and one value.
  // 0: dropped blocks do not count. Divides block_k.
  std::int32_t tail = 0;
  // Where a mask is chosen all blocks are computed, and what the dropped ones changed in the output is added again at
  // the later steps of the interval (residual sharing; Yuan et al., "DiTFastAttn", 2024). Only with fixed blocks.
  bool residual = false;
  Follow follow;
  bool operator==(const Policy&) const = default;
};

// A preset by name, or a JSON file by path (ends in ".json"). Throws Error(kInvalidArgument | kBadFile) that lists the
// presets, or names the unknown key and the nearest known one; Error(kIo) for a file that cannot be read.
Policy load_policy(std::string_view preset_or_path);
// docs/formats/policy.md has the keys. `where` begins every error; all have code kBadFile.
Policy parse_policy(std::string_view json_text, const std::string& where);
// All keys, in a fixed order, but `follow` only where it is used; parse_policy reads it back to an equal policy.
std::string to_json(const Policy& policy);
std::vector<std::string> policy_presets();

// What the schedule says for one call.
struct StepRule {
  bool dense = true;
  std::int32_t permille = 1000;   // density asked for; under a budget of the profile it is that budget's, not this one
  std::int32_t interval_id = -1;  // a mask is reused while this id stays the same; -1 for dense calls
};

// Whether a Selector of this policy must be given a profile: a chooser of ranks, an envelope, or a budget from it.
bool needs_profile(const Policy& policy);

// Throws Error(kInvalidArgument) that names the first field that does not make sense and what it may be.
void check_policy(const Policy& policy);

// Pure. Throws Error(kInvalidArgument) unless 0 <= step < steps and layer >= 0.
StepRule rule_for(const Policy& policy, std::int32_t step, std::int32_t steps, std::int32_t layer);

// What `follow` says for one call of either branch.
struct FollowRule {
  std::int32_t interval_id = -1;    // a difference is used while this id stays the same; -1: the branches are apart
  std::int32_t part = 0;            // of the interval; from one to the next the difference is renewed
  std::int32_t reference_step = 0;  // where the call stands, for the age of a difference
};

// Pure. Throws as rule_for.
FollowRule follow_rule_for(const Policy& policy, std::int32_t step, std::int32_t steps, std::int32_t layer);

}  // namespace tulle
