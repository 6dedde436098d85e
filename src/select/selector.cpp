#include "select/selector.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "select/chooser.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kBlocksPerTask = 8;

void set_bit(std::span<std::uint32_t> row, std::int64_t i) { row[static_cast<std::size_t>(i / 32)] |= 1u << (i % 32); }

std::int64_t first_video_block(const BlockPartition& p) {
  return p.sequence.placement == TextPlacement::kPrefix ? p.text_blocks() : 0;
}

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
  const SelectCall& call;
  const Scorer& scorer;
  const Chooser& chooser;
  std::int32_t permille;
  BlockMask& mask;

  void rows(const ScoreInput& in, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end) const {
    const auto blocks = static_cast<std::size_t>(in.k_blocks());
    std::vector<float> scores(blocks * static_cast<std::size_t>(end - begin));
    std::vector<std::uint8_t> kept(blocks);
    scorer.score(in, begin, end, scores.data());
    for (std::int64_t q = begin; q < end; ++q) {
      const auto row = std::span<const float>(scores).subspan(blocks * static_cast<std::size_t>(q - begin), blocks);
      check_finite(row, head, q);
      std::ranges::fill(kept, std::uint8_t{0});
      chooser.choose({row, permille, seed_of(head, q)}, kept);
      pack(kept, mask.row(b, head, first_video_block(mask.q()) + q));
    }
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
    const std::int64_t first = first_video_block(mask.k());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) set_bit(row, first + static_cast<std::int64_t>(i));
    }
  }
};

void check_call(const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k) {
  check_partition(call.partition);
  require(call.partition.block == policy.block_q,
          "the call is cut into blocks of {} tokens but policy \"{}\" into {}; "
          "make the partition from the policy",
          call.partition.block, policy.name, policy.block_q);
  require(q.batch() == k.batch() && q.heads() == k.heads() && q.head_dim() == k.head_dim(),
          "q [{}, {}, {}, {}] and k [{}, {}, {}, {}] differ in samples, heads or head_dim; pass both from one call",
          q.shape[0], q.shape[1], q.shape[2], q.shape[3], k.shape[0], k.shape[1], k.shape[2], k.shape[3]);
}

}  // namespace

BlockMask choose_mask(const Policy& policy, const SelectCall& call, std::int32_t permille, ConstTensorView q,
                      ConstTensorView k, const Threads& threads) {
  check_call(policy, call, q, k);
  require(permille >= 1 && permille <= 1000, "a density of {}/1000 is outside [1, 1000]; ask for at least 1", permille);
  const Sequence& sequence = call.partition.sequence;
  const BlockPartition subs{sequence, policy.sub_block};
  const PooledTokens queries = pool_tokens(q, subs, {}, threads);
  const PooledTokens keys = pool_tokens(k, subs, call.hidden_keys, threads);

  const std::int64_t maps = q.batch() * q.heads();
  std::vector<KeyPanels> panels(static_cast<std::size_t>(maps));
  BlockMask mask(q.batch(), q.heads(), call.partition, {sequence, policy.block_k}, policy.order);
  threads.parallel_for(maps, [&](std::int64_t m) {
    panels[static_cast<std::size_t>(m)] = pack_keys(keys, m / q.heads(), m % q.heads());
    keep_text(mask, m / q.heads(), m % q.heads());
  });

  const HeadChooser head_chooser{call, find_scorer(policy.scorer), find_chooser(policy.chooser), permille, mask};
  const std::int64_t video_blocks = call.partition.video_blocks();
  const std::int64_t tasks = ceil_div(video_blocks, kBlocksPerTask);
  threads.parallel_for(maps * tasks, [&](std::int64_t i) {
    const std::int64_t m = i / tasks, begin = i % tasks * kBlocksPerTask;
    const std::int64_t b = m / q.heads(), head = m % q.heads();
    const ScoreInput in =
        make_score_input(queries, panels[static_cast<std::size_t>(m)], subs, b, head, policy.block_q, policy.block_k);
    head_chooser.rows(in, b, head, begin, std::min(video_blocks, begin + kBlocksPerTask));
  });
  return mask;
}

Selector::Selector(Policy policy) : policy_(std::move(policy)) { check_policy(policy_); }

const BlockMask* Selector::choose(const SelectCall& call, ConstTensorView q, ConstTensorView k,
                                  const Threads& threads) {
  last_was_cached_ = false;
  const StepRule rule = rule_for(policy_, call.step, call.steps, call.layer);
  if (rule.dense) return nullptr;
  const Key key{call.steps, call.layer, call.branch, call.partition, q.batch(), q.heads(), call.first_head};
  const auto found = std::ranges::find(cache_, key, &Entry::key);
  if (found != cache_.end() && found->interval_id == rule.interval_id && call.step > found->last_step) {
    check_call(policy_, call, q, k);
    found->last_step = call.step;
    last_was_cached_ = true;
    return &found->mask;
  }
  BlockMask mask = choose_mask(policy_, call, rule.permille, q, k, threads);
  if (found != cache_.end()) cache_.erase(found);
  if (cache_.size() >= kCapacity) cache_.pop_front();
  return &cache_.emplace_back(Entry{key, rule.interval_id, call.step, std::move(mask)}).mask;
}

void Selector::reset() {
  cache_.clear();
  last_was_cached_ = false;
}

}  // namespace tulle
