#include "plan/memory.hpp"

#include <algorithm>
#include <initializer_list>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kBranches = 2;
constexpr std::int64_t kVectorWidth = 16;                     // f32 lanes of the widest kernel
constexpr std::int64_t kPackPadding = 64;                     // tokens; panels are rounded up and kept apart
constexpr std::int64_t kPackBudget = std::int64_t{24} << 20;  // heads within it are packed together

// Keeps the sum of all parts far below the 64-bit limit, so that adding them needs no check of its own.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  const auto bytes = checked_product(factors);
  require(bytes && *bytes <= kMostBytes, "the plan needs more than 2^60 bytes: reduce tokens, sizes or batch");
  return *bytes;
}

std::int64_t activation_bytes(const PlanRequest& r) {
  return product({r.batch, r.sequence.tokens(), 6 * r.hidden + r.ffn, std::int64_t{sizeof(float)}});
}

// Rows of d elements that the exchange of all ranks holds for one sample.
std::int64_t exchange_rows(const PlanRequest& r, const Plan& plan) {
  if (plan.ranks == 1) return 0;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < plan.tokens.size(); ++i) {
    const std::int64_t own = plan.heads[i].size();
    rows += 2 * plan.tokens[i].size() * (r.heads - own) + 4 * r.sequence.tokens() * own;
  }
  return rows;
}

std::int64_t mask_bytes(const PlanRequest& r) {
  const std::int64_t blocks =
      ceil_div(r.sequence.grid.tokens(), r.mask_block) + ceil_div(r.sequence.text_tokens, r.mask_block);
  return product({kBranches, r.layers, r.batch, r.heads, blocks, ceil_div(blocks, 32), 4});
}

// The kernel packs the keys and values of a few heads at a time, f32, all ranks at once.
std::int64_t packed_bytes(const PlanRequest& r, const Plan& plan) {
  const std::int64_t padded_dim = ceil_div(r.head_dim, kVectorWidth) * kVectorWidth;
  const std::int64_t head = product({2, r.sequence.tokens() + kPackPadding, padded_dim, std::int64_t{sizeof(float)}});
  std::int64_t bytes = 0;
  for (const Range& own : plan.heads) {
    bytes = product({bytes + std::min(product({r.batch, own.size(), head}), std::max(kPackBudget, head))});
  }
  return bytes;
}

std::int64_t attention_bytes(const PlanRequest& r, const Plan& plan) {
  const std::int64_t rows = 2 * r.sequence.tokens() * r.heads + exchange_rows(r, plan);
  return product({r.batch, rows, r.head_dim, r.element_bytes}) + packed_bytes(r, plan) + mask_bytes(r);
}

}  // namespace

MemoryNeed predict_memory(const PlanRequest& request, const Plan& plan) {
  return {request.weight_bytes, activation_bytes(request), attention_bytes(request, plan)};
}

}  // namespace tulle
