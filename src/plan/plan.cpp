#include "tulle/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash.hpp"
#include "plan/memory.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kMostOfAnything = std::int64_t{1} << 24;  // heads, layers, widths, ranks, samples
constexpr std::int64_t kMostWeightBytes = std::int64_t{1} << 60;

void check_size(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  require(value >= least && value <= most, "the plan's {} is {}: the nearest legal choice is {}", name, value,
          std::clamp(value, least, most));
}

void check_sizes(const PlanRequest& r) {
  check_grid(r.sequence.grid);
  check_size("number of text tokens", r.sequence.text_tokens, 0, kMaxTokens);
  check_size("number of heads", r.heads, 1, kMostOfAnything);
  check_size("head dimension", r.head_dim, 1, kMostOfAnything);
  check_size("number of layers", r.layers, 1, kMostOfAnything);
  check_size("hidden size", r.hidden, 0, kMostOfAnything);
  check_size("feed-forward size", r.ffn, 0, kMostOfAnything);
  check_size("weight size in bytes", r.weight_bytes, 0, kMostWeightBytes);
  check_size("batch", r.batch, 1, kMostOfAnything);
  require(r.element_bytes == 2 || r.element_bytes == 4,
          "the plan's element size is {} bytes: the nearest legal choice is {} bytes", r.element_bytes,
          r.element_bytes < 3 ? 2 : 4);
}

void check_ranks(const PlanRequest& r) {
  const std::int64_t most = std::min(r.heads, r.sequence.tokens());
  require(r.ranks >= 1, "the number of ranks is {}: at least one is needed, the nearest legal choice is 1", r.ranks);
  require(r.ranks <= r.heads,
          "{} ranks are more than the {} heads that Ulysses shares out: the nearest legal choice is {} ranks", r.ranks,
          r.heads, most);
  require(r.ranks <= r.sequence.tokens(),
          "{} ranks are more than the {} tokens of the sequence: the nearest legal choice is {} ranks", r.ranks,
          r.sequence.tokens(), most);
}

// Bytes from one rank to another: Q, K and V of the sender's tokens for the receiver's heads, and O of the sender's
// heads for the receiver's tokens.
std::int64_t edge_bytes(const PlanRequest& r, const Plan& plan, std::size_t from, std::size_t to) {
  if (from == to) return 0;
  const std::int64_t rows =
      3 * plan.tokens[from].size() * plan.heads[to].size() + plan.tokens[to].size() * plan.heads[from].size();
  const auto bytes = checked_product({rows, r.head_dim, r.element_bytes, r.batch});
  require(bytes.has_value(), "the bytes between two ranks overflow 64 bits: reduce tokens, heads or batch");
  return *bytes;
}

void fill_bytes(const PlanRequest& r, Plan& plan) {
  const auto ranks = static_cast<std::size_t>(plan.ranks);
  plan.bytes_per_call.assign(ranks, std::vector<std::int64_t>(ranks, 0));
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) plan.bytes_per_call[from][to] = edge_bytes(r, plan, from, to);
  }
}

void append(std::vector<std::int64_t>& words, const std::vector<Range>& ranges) {
  words.push_back(static_cast<std::int64_t>(ranges.size()));
  for (const Range& range : ranges) {
    words.push_back(range.begin);
    words.push_back(range.end);
  }
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (std::int64_t v : values) total += v;
  return total;
}

}  // namespace

std::vector<Range> split_evenly(std::int64_t count, std::int64_t parts) {
  require(count >= 0, "cannot split {} things: the count must not be negative", count);
  require(parts >= 1, "cannot split into {} parts: the nearest legal choice is 1", parts);
  std::vector<Range> ranges;
  ranges.reserve(static_cast<std::size_t>(parts));
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t end = begin + count / parts + (i < count % parts ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

Plan make_plan(const PlanRequest& request) {
  check_sizes(request);
  check_ranks(request);
  Plan plan;
  plan.ranks = request.ranks;
  plan.parallel = request.ranks == 1 ? "single" : "ulysses";
  plan.tokens = split_evenly(request.sequence.tokens(), request.ranks);
  plan.heads = split_evenly(request.heads, request.ranks);
  fill_bytes(request, plan);
  plan.peak_bytes = predict_memory(request, plan).total();
  return plan;
}

std::uint64_t hash(const Plan& plan) {
  std::vector<std::int64_t> words{plan.ranks, plan.peak_bytes};
  append(words, plan.tokens);
  append(words, plan.heads);
  for (const auto& row : plan.bytes_per_call) words.insert(words.end(), row.begin(), row.end());
  return hash_span<std::int64_t>(words, hash_span<char>(plan.parallel));
}

std::string describe(const Plan& plan) {
  std::string text;
  for (std::size_t r = 0; r < plan.tokens.size(); ++r) {
    const Range& tokens = plan.tokens[r];
    const Range& heads = plan.heads[r];
    text += fmt::format("rank {} of {} ({}): tokens {} to {}, heads {} to {}, sends {} bytes a call\n", r, plan.ranks,
                        plan.parallel, tokens.begin, tokens.end, heads.begin, heads.end, sum(plan.bytes_per_call[r]));
  }
  return text;
}

}  // namespace tulle
