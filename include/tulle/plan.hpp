// Plan: who computes what on R ranks. Pure data made from integers: no device, no clock, no I/O.
//
// Ranks compare hash(plan) before the first call. Shards are half-open ranges; sizes differ by at most one token or
// head. Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tulle/grid.hpp"

namespace tulle {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct PlanRequest {
  Sequence sequence;
  std::int64_t heads = 0, head_dim = 0, layers = 0, hidden = 0, ffn = 0;
  std::int64_t ranks = 1;
  std::int64_t element_bytes = 4;  // of activations on the wire
  std::int64_t mask_block = 64;    // tokens of the policy's smallest block
  std::int64_t weight_bytes = 0;   // shared by ranks in one process
  std::int64_t batch = 1;          // samples of one call
};

struct Plan {
  std::int64_t ranks = 1;
  std::string parallel = "single";  // "single" or "ulysses"
  std::vector<Range> tokens;        // per rank: its tokens in memory order, text first or last as the sequence says
  std::vector<Range> heads;         // per rank: the heads it attends for
  // [from][to] bytes of one attention call, the whole batch, Q, K, V and O together; 0 on the diagonal.
  std::vector<std::vector<std::int64_t>> bytes_per_call;
  // Predicted need of the whole process, all ranks in it: weights, activations, attention workspace (docs/parallel.md
  // has the formula). With hidden == ffn == 0 it is the need of attention alone.
  std::int64_t peak_bytes = 0;
};

// Splits [0, count) into `parts` ranges whose sizes differ by at most one; the longer ones come first.
// Throws Error(kInvalidArgument) for count < 0 or parts < 1.
std::vector<Range> split_evenly(std::int64_t count, std::int64_t parts);

// Throws Error(kInvalidArgument) that names the dimension and the nearest legal choice: ranks < 1, more ranks than
// heads, or more ranks than tokens; sizes below 1 (hidden, ffn, weight_bytes and text tokens may be 0), element_bytes
// other than 2 or 4, and products that overflow 64 bits.
Plan make_plan(const PlanRequest& request);

// Equal plans on all ranks have equal hashes.
std::uint64_t hash(const Plan& plan);

// For people: one line a rank.
std::string describe(const Plan& plan);

}  // namespace tulle
