// Selector: the mask of one attention call, chosen from q and k or remembered from an earlier step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "select/interval_cache.hpp"
#include "select/pool.hpp"
#include "select/prior.hpp"
#include "select/scorer.hpp"
#include "tulle/mask.hpp"
#include "tulle/policy.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

struct SelectCall {
  std::int32_t step = 0, steps = 1, layer = 0;
  Branch branch = Branch::kConditional;
  BlockPartition partition;  // of the whole sequence; block == policy.block_q
  // Key tokens that are not seen, one range per sample (padded text); empty: all are seen.
  std::span<const std::pair<std::int64_t, std::int64_t>> hidden_keys = {};
  std::int64_t first_head = 0;  // of the whole model, of the heads given: ranks with other heads then break ties alike
};

// What is asked of the heads of one call.
struct HeadTargets {
  std::span<const std::int32_t> permille;  // density of each head given, in 1/1000
  const RankMap* ranks = nullptr;          // of the layer, all heads of the model; null: no prior
  const BlockPlaces* places = nullptr;     // for scorers that need them; null: made anew
};

// What the policy chooses for one call, without any memory. q and k: [batch, tokens, heads, head_dim] in memory order,
// after norm and RoPE, f32 or bf16. Video query blocks keep what scorer and chooser say of the video key blocks, and
// all text key blocks on top; text query blocks keep everything. Each head is chosen from that head alone and sums have
// a fixed order: the bits do not depend on threads or on which rank holds which heads. Throws Error(kInvalidArgument)
// for shapes that do not fit, for a policy that needs ranks without any and for one whose blocks are clusters
// (permuted.hpp), Error(kNotFinite) naming layer, step, head.
BlockMask choose_mask(const Policy& policy, const SelectCall& call, const HeadTargets& targets, ConstTensorView q,
                      ConstTensorView k, const Threads& threads);
// The same density for all heads, no prior.
BlockMask choose_mask(const Policy& policy, const SelectCall& call, std::int32_t permille, ConstTensorView q,
                      ConstTensorView k, const Threads& threads);

// Remembers masks for the length of a schedule interval. A mask is used again only at a later step of the same interval
// than all its earlier uses, so a new or restarted video never gets an old one. One Selector serves one video at a
// time. Not thread-safe: one thread at a time.
class Selector {
 public:
  // Throws Error(kInvalidArgument) as check_policy does, and when the policy needs a profile and `prior` is null.
  explicit Selector(Policy policy, std::shared_ptr<const Prior> prior = nullptr);

  // The mask for this call, or nullptr when the call is dense (q and k are then not read). The pointer is valid until
  // the next choose or reset. Throws as choose_mask and rule_for do.
  const BlockMask* choose(const SelectCall& call, ConstTensorView q, ConstTensorView k, const Threads& threads);

  // The mask that `choose` gave for such a call at its step, or at an earlier one of its interval; null where there is
  // none. Valid as long.
  const BlockMask* held(const SelectCall& call, std::int64_t batch, std::int64_t heads);

  void reset();  // forgets all masks
  const Policy& policy() const { return policy_; }
  bool last_was_cached() const { return last_was_cached_; }
  std::size_t cached_masks() const { return cache_.size(); }

  // One mask per (layer, branch, shape) is held; beyond this many the oldest is dropped.
  static constexpr std::size_t kCapacity = IntervalCache<BlockMask>::kCapacity;

 private:
  BlockMask fresh_mask(const SelectCall& call, const StepRule& rule, ConstTensorView q, ConstTensorView k,
                       const Threads& threads);
  const BlockPlaces* places_for(const SelectCall& call);

  Policy policy_;
  std::shared_ptr<const Prior> prior_;
  BlockPlaces places_;
  IntervalCache<BlockMask> cache_;
  bool last_was_cached_ = false;
};

}  // namespace tulle
