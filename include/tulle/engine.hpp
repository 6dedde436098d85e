// Engine: what a user holds. It owns the policy, the mask cache and the workspace of one rank, and runs attention.
//
//     Engine engine({policy, sequence, heads, head_dim, layers}, fabric, threads);
//     engine.begin(call, q, k);     // prologue, exchange and selection of blocks
//     engine.finish(v, out);        // attention, exchange back
//
// A model gives q, k, v of its own tokens (engine.local_tokens()) and all heads, and gets the same back; how many ranks
// there are is the Engine's business. Step, step count, layer and branch are always explicit.
// Thread safety: one Engine per rank, used by one thread. Determinism: equal inputs give bit-identical outputs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tulle/attention.hpp"
#include "tulle/fabric.hpp"
#include "tulle/plan.hpp"
#include "tulle/policy.hpp"
#include "tulle/profile.hpp"

namespace tulle {

struct EngineOptions {
  Policy policy;
  Sequence sequence;
  std::int64_t heads = 0, head_dim = 0, layers = 0;
  std::int64_t batch = 1;
  bool keep_masks = false;  // remember the masks of the last call of every (layer, branch) for reports
  // What calibration learned about the model; policies that ask for it (needs_profile) must have one. It is adapted to
  // the grid, order and block size when the Engine is made.
  std::shared_ptr<const Profile> profile = nullptr;
  DType dtype = DType::kF32;  // of q, k, v and out: what the plan counts bytes for; calls may bring the other one
};

// Norm weights and RoPE angles when q and k are raw projections. All null: q and k are used as they are.
struct Prologue {
  const float* norm_q = nullptr;  // [heads * head_dim], RMS norm over all heads of a token, or null
  const float* norm_k = nullptr;
  float eps = 1e-6f;
  const float* rope_cos = nullptr;  // [local tokens, head_dim / 2] in memory order, interleaved pairs, or null
  const float* rope_sin = nullptr;
};

struct AttendCall {
  std::int32_t step = 0, steps = 1, layer = 0;
  Branch branch = Branch::kConditional;
  // Valid text tokens per sample when the sequence has text (empty: all valid).
  std::vector<std::int64_t> text_lengths = {};
  Prologue prologue = {};
};

// Which path ran, and why the others did not. Logged once, and kept for the report.
struct Route {
  std::string what, route, why;
  bool operator==(const Route&) const = default;
};

// Sums over all calls of this rank so far; `report` adds the ranks up. Seconds are wall time: attention is the kernel
// alone, select the choice of blocks, communication packing and exchange, with the waiting for slower ranks in it; the
// prologue is in none of them; context is attend_context, which attention_s and the pairs leave out. Pairs are those
// that are computed: kept blocks by their real tokens, and of the dropped ones one in `tail`; padded text keys count as
// seen.
struct EngineStats {
  double attention_s = 0, select_s = 0, communication_s = 0, context_s = 0;
  std::vector<double> kept_by_step, all_by_step;               // query-key pairs, [steps]
  std::vector<double> kept_by_layer, all_by_layer;             // [layers]
  std::vector<std::vector<double>> kept_by_head, all_by_head;  // [layers][heads], this rank's heads only
  std::vector<Route> routes;
};

// Sees every call that is computed (not those that follow) in begin, after selection: q and k as attention sees them
// (after norm and RoPE), [batch, all tokens, this rank's heads, head_dim] in memory order; first_head is this rank's
// first of the model's heads; mask is null for a dense call, and where the policy's blocks are clusters, which no
// BlockMask can hold. The views are valid until the observer returns. What it throws leaves begin, and the call is
// void.
using AttendObserver = std::function<void(const AttendCall& call, std::int64_t first_head, ConstTensorView q,
                                          ConstTensorView k, const BlockMask* mask)>;

class Engine {
 public:
  // Collective over the fabric: plans, and compares the plan's hash between ranks.
  // `fabric` and `threads` must outlive the Engine. Throws Error(kInvalidArgument) as make_plan and policies do.
  Engine(EngineOptions options, Fabric& fabric, const Threads& threads);
  ~Engine();

  const Plan& plan() const;
  const TokenOrder& order() const;  // memory order of the video tokens
  Range local_tokens() const;       // this rank's tokens in memory order
  const Policy& policy() const;

  // q, k: [batch, local tokens, heads, head_dim], f32 or bf16; not read any more when begin returns. With a prologue,
  // q and k are raw projections. Throws Error(kInvalidArgument) for shapes that do not fit.
  void begin(const AttendCall& call, ConstTensorView q, ConstTensorView k);
  // v and out: as q. Must follow begin.
  void finish(ConstTensorView v, TensorView out);
  void attend(const AttendCall& call, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out);

  // Whether the call's output comes from the conditional branch (Policy::follow), so that it needs no q, k and v: then
  // `follow` may take the place of begin and finish, which come to the same. Every rank has the same answer. False
  // where the conditional call of the step has not run: it must come first.
  bool follows(const AttendCall& call) const;
  // out: [batch, local tokens, heads, head_dim], of the type of the conditional call's. No exchange. Throws
  // Error(kInvalidArgument) unless follows(call).
  void follow(const AttendCall& call, TensorView out);

  // Dense attention of this rank's tokens over keys that every rank holds (a text): q and out [batch, local tokens,
  // heads, head_dim], k and v [batch, any, heads, head_dim], no prologue, no exchange. Its time is in stats().
  void attend_context(ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out);

  // The mask chosen last for (layer, branch), for this rank's heads; null for dense calls, for policies whose blocks
  // are clusters, and without keep_masks.
  const BlockMask* mask(std::int32_t layer, Branch branch) const;

  // Calls `observer` from now on (empty: none). Its time is in no figure of stats(), save that other ranks wait for it.
  void on_attend(AttendObserver observer);

  const EngineStats& stats() const;
  // Forgets cached masks and statistics (a new video).
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tulle
