#include "tests/fuzz/targets.hpp"

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/named.hpp"
#include "cli/quality.hpp"
#include "select/prior.hpp"
#include "tests/support/foreign_bytes.hpp"
#include "tulle/mask.hpp"
#include "tulle/policy.hpp"
#include "tulle/profile.hpp"

namespace tulle::fuzz {
namespace {

const std::string kWhere = "fuzz";
// What is accepted is used as well, where that takes less than about a millisecond.
constexpr std::int64_t kMostTokens = 512, kMostBlocks = 64, kMostCurves = 64;

void promise(bool kept, const std::string& what) {
  if (!kept) throw std::logic_error(what);
}

void promise_refusal(const Error& e) {
  promise(e.code() == ErrorCode::kBadFile, std::string("refused with another code than kBadFile: ") + e.what());
  promise(std::string_view(e.what()).starts_with(kWhere + ": "), std::string("the place is missing in: ") + e.what());
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// --- binary files ---

using Bytes = std::span<const std::byte>;

template <class Value>
std::optional<Value> read_binary(const std::string& bytes, Expected<Value> (*parse)(Bytes, const std::string&)) {
  Expected<Value> result = parse(std::as_bytes(std::span(bytes)), kWhere);
  if (!result.has_value()) {
    promise_refusal(result.error());
    return std::nullopt;
  }
  promise(serialize(result.value()) == bytes, "what was accepted is written in other bytes");
  return std::move(result).value();
}

template <class Value>
bool run_binary(Bytes bytes, Expected<Value> (*parse)(Bytes, const std::string&), void (*use)(const Value&)) {
  std::string whole = text_of(bytes);
  const bool accepted = read_binary(whole, parse).has_value();
  testing_data::seal(whole);
  if (const std::optional<Value> value = read_binary(whole, parse)) use(*value);
  return accepted;
}

void use_mask(const BlockMask& mask) {
  const double kept = density(mask);
  promise(kept >= 0 && kept <= 1, "a mask has a density outside [0, 1]");
  promise(slice_heads(mask, 0, mask.heads()) == mask, "all heads of a mask are not the mask");
}

bool run_mask(Bytes bytes) { return run_binary<BlockMask>(bytes, parse_mask, use_mask); }

// A budget that cannot be had is refused as an argument, because the density is ours.
void use_budget(const Profile& profile, BudgetKind budget) {
  Policy policy = load_policy("west");
  policy.budget = budget;
  policy.block_q = policy.block_k = policy.sub_block = policy.tail = 4;
  try {
    const auto prior = make_prior(policy, profile, {2, 2, 4});
    for (const std::int32_t permille : prior->budget->permille) {
      promise(permille >= 1 && permille <= 1000, "a budget has a density outside [1, 1000]");
    }
  } catch (const Error& e) {
    promise(e.code() == ErrorCode::kInvalidArgument, std::string("a budget fails with: ") + e.what());
  }
}

void use_profile(const Profile& p) {
  const FidelityCurves& c = p.curves;
  if (p.q().tokens() > kMostTokens || p.q().count() > kMostBlocks || p.k().count() > kMostBlocks) return;
  if (c.layers * c.heads > kMostCurves || c.bins > kMostCurves) return;
  const BlockPartition blocks{{{2, 3, 3}}, 5};
  const Profile other = adapt(p, blocks, blocks, OrderKind::kHilbert);
  promise(read_binary(serialize(other), parse_profile) == other, "an adapted profile does not come back");
  for (const BudgetKind budget : {BudgetKind::kUniform, BudgetKind::kValued}) use_budget(p, budget);
}

bool run_profile(Bytes bytes) { return run_binary<Profile>(bytes, parse_profile, use_profile); }

// --- texts ---

// What `read` makes of a text, or nothing where it refuses.
template <class Read>
auto read_text(Read&& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& e) {
    promise_refusal(e);
    return std::nullopt;
  }
}

void use_policy(const Policy& policy) {
  for (const std::int32_t steps : {1, 4, 50}) {
    for (std::int32_t step = 0; step < steps; ++step) {
      const StepRule rule = rule_for(policy, step, steps, step % 3);
      promise(rule.permille >= 1 && rule.permille <= 1000, "a rule has a density outside [1, 1000]");
    }
  }
  promise(needs_profile(policy) <= policy.sparse, "a dense policy needs a profile");
}

bool run_policy(Bytes bytes) {
  const std::string text = text_of(bytes);
  const auto policy = read_text([&] { return parse_policy(text, kWhere); });
  if (!policy) return false;
  promise(parse_policy(to_json(*policy), kWhere) == *policy, "a policy does not come back");
  use_policy(*policy);
  return true;
}

bool run_study_line(Bytes bytes) {
  const std::string text = text_of(bytes);
  const auto line = read_text([&] { return cli::parse_study_line(text, kWhere); });
  if (!line) return false;
  const std::string written = cli::to_json_line(*line);
  promise(written.find('\n') == written.size() - 1, "a line of the study is not one line");
  promise(cli::to_json_line(cli::parse_study_line(written, kWhere)) == written,
          "a line of the study does not come back");
  promise(cli::study_rows({*line, *line}).size() == 1, "two equal lines of the study are not in one row");
  return true;
}

constexpr std::array kTargets = {Target{"profile", run_profile}, Target{"mask", run_mask}, Target{"policy", run_policy},
                                 Target{"study_line", run_study_line}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target& find_target(std::string_view name) { return find_named(kTargets, name, "fuzz target"); }

}  // namespace tulle::fuzz
