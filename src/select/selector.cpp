#include "select/selector.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "select/chooser.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kBlocksPerTask = 8;

void set_bit(std::span<std::uint32_t> row, std::int64_t i) { row[static_cast<std::size_t>(i / 32)] |= 1u << (i % 32); }

// The part of a mask that does not depend on scores: text keys for all, everything for text queries.
void keep_text(BlockMask& mask, std::int64_t b, std::int64_t head) {
  if (mask.q().text_blocks() + mask.k().text_blocks() == 0) return;
  for (std::int64_t q = 0; q < mask.q_blocks(); ++q) {
    const auto row = mask.row(b, head, q);
    for (std::int64_t k = 0; k < mask.k_blocks(); ++k) {
      if (mask.q().is_text(q) || mask.k().is_text(k)) set_bit(row, k);
    }
  }
}

// Chooses rows of one (sample, head).
struct HeadChooser {
  const Policy& policy;
  const SelectCall& call;
  const Scorer& scorer;
  const Chooser& chooser;
  const HeadTargets& targets;
  BlockMask& mask;

  void rows(const ScoreInput* in, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end) const {
    const auto blocks = static_cast<std::size_t>(mask.k().video_blocks());
    std::vector<float> scores;
    if (in != nullptr) {
      scores.resize(blocks * static_cast<std::size_t>(end - begin));
      scorer.score(*in, begin, end, scores.data());
    }
    std::vector<std::uint8_t> kept(blocks);
    for (std::int64_t q = begin; q < end; ++q) {
      ChooseRow row = row_rule(head, q);
      if (in != nullptr) {
        row.scores = std::span<const float>(scores).subspan(blocks * static_cast<std::size_t>(q - begin), blocks);
        check_finite(row.scores, head, q);
      }
      std::ranges::fill(kept, std::uint8_t{0});
      chooser.choose(row, kept);
      pack(kept, mask.row(b, head, mask.q().first_video_block() + q));
    }
  }

  ChooseRow row_rule(std::int64_t head, std::int64_t q) const {
    ChooseRow row;
    row.permille = targets.permille[static_cast<std::size_t>(head)];
    row.seed = seed_of(head, q);
    row.top_p = policy.top_p;
    row.floor = policy.floor;
    if (targets.ranks == nullptr) return row;
    row.ranks = targets.ranks->row(call.first_head + head, q);
    if (policy.envelope > 0) row.envelope = rank_level(policy.envelope);
    return row;
  }

  void check_finite(std::span<const float> row, std::int64_t head, std::int64_t q_block) const {
    if (std::ranges::all_of(row, [](float s) { return std::isfinite(s); })) return;
    fail(ErrorCode::kNotFinite,
         "q or k holds NaN, infinity or numbers too large at step {}, layer {}, head {}, query block {}; check the "
         "model's "
         "weights and inputs",
         call.step, call.layer, call.first_head + head, q_block);
  }

  std::uint64_t seed_of(std::int64_t head, std::int64_t q_block) const {
    const auto layer = static_cast<std::uint64_t>(call.layer);
    const auto model_head = static_cast<std::uint64_t>(call.first_head + head);
    return mix(mix(mix(0, layer), model_head), static_cast<std::uint64_t>(q_block));
  }

  void pack(std::span<const std::uint8_t> kept, std::span<std::uint32_t> row) const {
    const std::int64_t first = mask.k().first_video_block();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) set_bit(row, first + static_cast<std::int64_t>(i));
    }
  }
};

void check_call(const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k) {
  require(policy.blocks == BlockShape::kFixed,
          "policy \"{}\" cuts every head into clusters of its own, which no block mask can hold; use choose_clusters",
          policy.name);
  check_partition(call.partition);
  require(call.partition.block == policy.block_q,
          "the call is cut into blocks of {} tokens but policy \"{}\" into {}; "
          "make the partition from the policy",
          call.partition.block, policy.name, policy.block_q);
  require(q.batch() == k.batch() && q.heads() == k.heads() && q.head_dim() == k.head_dim(),
          "q [{}, {}, {}, {}] and k [{}, {}, {}, {}] differ in samples, heads or head_dim; pass both from one call",
          q.shape[0], q.shape[1], q.shape[2], q.shape[3], k.shape[0], k.shape[1], k.shape[2], k.shape[3]);
}

void check_targets(const Policy& policy, const SelectCall& call, const HeadTargets& targets, std::int64_t heads) {
  require(static_cast<std::int64_t>(targets.permille.size()) == heads, "{} densities were given for {} heads",
          targets.permille.size(), heads);
  for (const std::int32_t permille : targets.permille) {
    require(permille >= 1 && permille <= 1000, "a density of {}/1000 is outside [1, 1000]; ask for at least 1",
            permille);
  }
  if (targets.ranks == nullptr) {
    require(!find_chooser(policy.chooser).needs_ranks && policy.envelope == 0,
            "policy \"{}\" chooses by a rank map and none was given: make a profile with tulle calibrate", policy.name);
    return;
  }
  const RankMap& ranks = *targets.ranks;
  require(ranks.q_blocks() == call.partition.video_blocks() && ranks.q().block == policy.block_q &&
              ranks.k().block == policy.block_k && ranks.q().sequence.grid == call.partition.sequence.grid &&
              ranks.order() == policy.order,
          "the rank map is of grid {}, order {} and blocks {} x {}, the call of grid {}, order {} and blocks {} x {}: "
          "adapt the profile first",
          to_string(ranks.q().sequence.grid), to_string(ranks.order()), ranks.q().block, ranks.k().block,
          to_string(call.partition.sequence.grid), to_string(policy.order), policy.block_q, policy.block_k);
  require(call.first_head >= 0 && call.first_head + heads <= ranks.heads(),
          "heads {} to {} were asked for but the rank map has {}", call.first_head, call.first_head + heads - 1,
          ranks.heads());
}

CacheKey key_of(const SelectCall& call, std::int64_t batch, std::int64_t heads) {
  return {call.steps, call.layer, call.branch, call.partition, batch, heads, call.first_head};
}

// A density whose rank_level is `level`.
std::int32_t permille_of_level(std::uint8_t level) { return std::max(1, 1000 * level / 255); }

}  // namespace

BlockMask choose_mask(const Policy& policy, const SelectCall& call, const HeadTargets& targets, ConstTensorView q,
                      ConstTensorView k, const Threads& threads) {
  check_call(policy, call, q, k);
  check_targets(policy, call, targets, q.heads());
  const Sequence& sequence = call.partition.sequence;
  const std::int64_t maps = q.batch() * q.heads();
  BlockMask mask(q.batch(), q.heads(), call.partition, {sequence, policy.block_k}, policy.order);
  threads.parallel_for(maps, [&](std::int64_t m) { keep_text(mask, m / q.heads(), m % q.heads()); });

  const Chooser& chooser = find_chooser(policy.chooser);
  const Scorer& scorer = find_scorer(policy.scorer);
  std::optional<ScoreData> scores;
  BlockPlaces places;  // where the caller has not got them
  if (chooser.needs_scores) {
    const BlockPlaces* known = targets.places;
    if (scorer.needs_places() && known == nullptr) {
      places = place_blocks(make_order(policy.order, sequence.grid), policy.block_q, policy.block_k);
      known = &places;
    }
    scores = prepare_scores(scorer, {sequence, policy.block_q, policy.block_k, policy.sub_block},
                            scorer.needs_places() ? known : nullptr, q, k, call.hidden_keys, threads);
  }
  const HeadChooser head_chooser{policy, call, scorer, chooser, targets, mask};
  const std::int64_t video_blocks = call.partition.video_blocks();
  const std::int64_t tasks = ceil_div(video_blocks, kBlocksPerTask);
  threads.parallel_for(maps * tasks, [&](std::int64_t i) {
    const std::int64_t m = i / tasks, begin = i % tasks * kBlocksPerTask;
    const std::int64_t b = m / q.heads(), head = m % q.heads();
    const std::int64_t end = std::min(video_blocks, begin + kBlocksPerTask);
    if (!scores) return head_chooser.rows(nullptr, b, head, begin, end);
    const ScoreInput in = scores->input(b, head);
    head_chooser.rows(&in, b, head, begin, end);
  });
  return mask;
}

BlockMask choose_mask(const Policy& policy, const SelectCall& call, std::int32_t permille, ConstTensorView q,
                      ConstTensorView k, const Threads& threads) {
  const std::vector<std::int32_t> all(static_cast<std::size_t>(q.heads()), permille);
  return choose_mask(policy, call, {.permille = all}, q, k, threads);
}

Selector::Selector(Policy policy, std::shared_ptr<const Prior> prior)
    : policy_(std::move(policy)), prior_(std::move(prior)) {
  check_policy(policy_);
  require(prior_ != nullptr || !needs_profile(policy_),
          "policy \"{}\" needs a profile of the model: make one with tulle calibrate and name it with --profile",
          policy_.name);
}

BlockMask Selector::fresh_mask(const SelectCall& call, const StepRule& rule, ConstTensorView q, ConstTensorView k,
                               const Threads& threads) {
  const auto heads = static_cast<std::size_t>(q.heads());
  std::vector<std::int32_t> permille(heads, rule.permille);
  HeadTargets targets{.permille = permille, .places = places_for(call)};
  if (!needs_profile(policy_)) return choose_mask(policy_, call, targets, q, k, threads);
  const auto& layers = prior_->profile.ranks;
  require(call.layer < std::ssize(layers), "layer {} was asked for but the profile has {}: it is of another model",
          call.layer, layers.size());
  targets.ranks = &layers[static_cast<std::size_t>(call.layer)];
  if (const auto& budget = prior_->budget) {
    const bool by_level = find_chooser(policy_.chooser).needs_ranks;
    const std::int64_t bin = std::int64_t{call.step} * budget->bins / call.steps;
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t at = budget->at(bin, call.layer, call.first_head + static_cast<std::int64_t>(h));
      permille[h] = by_level ? permille_of_level(budget->levels[at]) : budget->permille[at];
    }
  }
  return choose_mask(policy_, call, targets, q, k, threads);
}

// The places of the blocks of a call's shape, made once; null where the scorer needs none.
const BlockPlaces* Selector::places_for(const SelectCall& call) {
  if (!find_chooser(policy_.chooser).needs_scores || !find_scorer(policy_.scorer).needs_places()) return nullptr;
  const TokenGrid& grid = call.partition.sequence.grid;
  if (places_.grid != grid) places_ = place_blocks(make_order(policy_.order, grid), policy_.block_q, policy_.block_k);
  return &places_;
}

const BlockMask* Selector::choose(const SelectCall& call, ConstTensorView q, ConstTensorView k,
                                  const Threads& threads) {
  last_was_cached_ = false;
  const StepRule rule = rule_for(policy_, call.step, call.steps, call.layer);
  if (rule.dense) return nullptr;
  const CacheKey key = key_of(call, q.batch(), q.heads());
  const auto found = cache_.earlier(key, call.step);
  if (found != nullptr && found->interval_id == rule.interval_id) {
    check_call(policy_, call, q, k);
    found->last_step = call.step;
    last_was_cached_ = true;
    return &found->value;
  }
  return cache_.put(key, rule.interval_id, call.step, fresh_mask(call, rule, q, k, threads));
}

const BlockMask* Selector::held(const SelectCall& call, std::int64_t batch, std::int64_t heads) {
  const StepRule rule = rule_for(policy_, call.step, call.steps, call.layer);
  const auto found = cache_.earlier(key_of(call, batch, heads), call.step + 1);
  return !rule.dense && found != nullptr && found->interval_id == rule.interval_id ? &found->value : nullptr;
}

void Selector::reset() {
  cache_.clear();
  last_was_cached_ = false;
}

}  // namespace tulle
