#include "tulle/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "attend/attend_cpu.hpp"
#include "attend/permuted.hpp"
#include "attend/prologue.hpp"
#include "attend/residual.hpp"
#include "attend/shape.hpp"
#include "base/fail.hpp"
#include "run/agreement.hpp"
#include "run/exchange.hpp"
#include "run/follower.hpp"
#include "run/ledger.hpp"
#include "run/packed.hpp"
#include "select/permuted.hpp"
#include "select/selector.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kBranches = 2;

Plan plan_for(const EngineOptions& o, const Fabric& fabric) {
  require(o.head_dim >= 8 && o.head_dim <= kMaxHeadDim && o.head_dim % 8 == 0,
          "the head dimension is {}: attention needs a multiple of 8 from 8 to {}", o.head_dim, kMaxHeadDim);
  require(o.dtype != DType::kF16, "the Engine's dtype is f16: use f32 or bf16");
  PlanRequest request;
  request.sequence = o.sequence;
  request.heads = o.heads;
  request.head_dim = o.head_dim;
  request.layers = o.layers;
  request.ranks = fabric.size();
  request.batch = o.batch;
  request.element_bytes = static_cast<std::int64_t>(size_of(o.dtype));
  return make_plan(request);
}

std::shared_ptr<const Prior> prior_for(const EngineOptions& o) {
  if (!needs_profile(o.policy) || o.profile == nullptr) return nullptr;  // the Selector refuses the latter
  check_profile(*o.profile);
  require(std::ssize(o.profile->ranks) == o.layers && o.profile->ranks.front().heads() == o.heads,
          "the profile has {} layers of {} heads and the model {} of {}: it is of another model",
          o.profile->ranks.size(), o.profile->ranks.front().heads(), o.layers, o.heads);
  return make_prior(o.policy, *o.profile, o.sequence.grid);
}

std::string shape_text(const std::array<std::int64_t, 4>& s) {
  return fmt::format("[{}, {}, {}, {}]", s[0], s[1], s[2], s[3]);
}

template <class VoidT>
void check_view(const char* name, const BasicTensorView<VoidT>& view, const std::array<std::int64_t, 4>& shape) {
  require(view.shape == shape, "{} is {}, but this rank's tokens and all heads make {}", name, shape_text(view.shape),
          shape_text(shape));
  require(view.dtype != DType::kF16, "{} is f16: use f32 or bf16", name);
  require(view.stride[3] == 1, "{}'s last stride is {}: it must be 1", name, view.stride[3]);
  require(view.data != nullptr, "{} has no data", name);
}

template <class VoidA, class VoidB>
void check_alike(const char* a, const BasicTensorView<VoidA>& x, const char* b, const BasicTensorView<VoidB>& y) {
  require(x.dtype == y.dtype, "{} is {} and {} is {}: give both the same type", a, to_string(x.dtype), b,
          to_string(y.dtype));
}

// Bytes that keep a packed [batch, tokens, heads, head_dim] copy of q or k; reused.
class Scratch {
 public:
  TensorView like(const ConstTensorView& view) {
    const auto bytes = static_cast<std::size_t>(view.elements()) * size_of(view.dtype);
    if (bytes_.size() < bytes) bytes_ = Buffer<std::byte>(bytes);
    return {bytes_.data(), view.dtype, view.shape, packed_strides(view.shape)};
  }

 private:
  Buffer<std::byte> bytes_;
};

// "step 3 of 30, layer 2, conditional: q and k", without allocation.
class PhaseText {
 public:
  const char* operator()(const AttendCall& call, const char* what) {
    const auto end = fmt::format_to_n(text_.data(), text_.size() - 1, "step {} of {}, layer {}, {}: {}", call.step,
                                      call.steps, call.layer, to_string(call.branch), what);
    *end.out = '\0';
    return text_.data();
  }

 private:
  std::array<char, 128> text_{};
};

}  // namespace

struct Engine::State {
  State(EngineOptions o, Fabric& f, const Threads& t)
      : options(std::move(o)),
        fabric(f),
        threads(t),
        plan(plan_for(options, f)),
        order(make_order(options.policy.order, options.sequence.grid)),
        selector(options.policy, prior_for(options)),
        cluster_selector(options.policy),
        rank(static_cast<std::size_t>(f.rank())),
        local_shape{options.batch, plan.tokens[rank].size(), options.heads, options.head_dim},
        exchange(plan, f, t, options.batch, options.head_dim),
        ledger(options, plan, plan.heads[rank]),
        follower(options.policy, options.layers),
        masks(static_cast<std::size_t>(options.layers * kBranches)) {
    agree(fabric, fingerprint_of(options, plan));
  }

  bool alone() const { return plan.ranks == 1; }
  std::optional<BlockMask>& kept_mask(std::int32_t layer, Branch branch) {
    return masks[static_cast<std::size_t>(layer * kBranches + static_cast<std::int64_t>(branch))];
  }

  void check_call(const AttendCall& c) const;
  void hide_text(const AttendCall& c);
  ConstTensorView prepare(ConstTensorView in, const float* norm, const Prologue& prologue, bool keep, Scratch& scratch);
  SelectCall wish(Branch branch) const;
  void select(ConstTensorView full_q, ConstTensorView full_k);
  void borrow();
  void book();
  void begin_following(const AttendCall& c);
  void begin(const AttendCall& c, ConstTensorView q, ConstTensorView k, bool inputs_stay);
  void finish(ConstTensorView v, TensorView out);
  void finish_following(TensorView out);
  void attend(ConstTensorView v, TensorView out);
  void run_attention(ConstTensorView v, TensorView out);
  CacheKey residual_key(Branch branch) const {
    return {call.steps,
            call.layer,
            branch,
            {options.sequence, options.policy.block_q},
            options.batch,
            full_q.heads(),
            plan.heads[rank].begin};
  }
  void find_residual();
  void make_residual(const AttentionArgs& args);

  const EngineOptions options;
  Fabric& fabric;
  const Threads& threads;
  const Plan plan;
  const TokenOrder order;
  Selector selector;                 // of policies with fixed blocks
  ClusterSelector cluster_selector;  // of those with clusters
  const std::size_t rank;
  const std::array<std::int64_t, 4> local_shape;
  UlyssesExchange exchange;
  Ledger ledger;
  Follower follower;
  std::vector<std::optional<BlockMask>> masks;  // [layer][branch]
  Scratch q_scratch, k_scratch;
  IntervalCache<Packed> residuals;  // of each layer and branch, held for an interval
  PhaseText phase;
  AttendObserver observer;

  // The call between begin and finish.
  bool pending = false;
  AttendCall call;
  ConstTensorView full_q, full_k;
  Kept chosen;
  const Packed* residual = nullptr;  // to be added to the output
  std::vector<std::pair<std::int64_t, std::int64_t>> hidden_keys;
};

void Engine::State::check_call(const AttendCall& c) const {
  require(c.steps >= 1 && c.step >= 0 && c.step < c.steps, "step {} of {} does not exist: steps count from 0", c.step,
          c.steps);
  require(c.layer >= 0 && c.layer < options.layers, "layer {} does not exist: the Engine was made for {} layers",
          c.layer, options.layers);
  const auto samples = static_cast<std::int64_t>(c.text_lengths.size());
  require(samples == 0 || samples == options.batch, "{} text lengths were given for a batch of {}", samples,
          options.batch);
  for (const std::int64_t length : c.text_lengths) {
    require(length >= 0 && length <= options.sequence.text_tokens,
            "a text length is {}: the sequence has {} text tokens", length, options.sequence.text_tokens);
  }
}

// Padded text stands behind the valid text of its sample.
void Engine::State::hide_text(const AttendCall& c) {
  const Sequence& s = options.sequence;
  const std::int64_t text_begin = s.placement == TextPlacement::kPrefix ? 0 : s.video_end();
  hidden_keys.clear();
  for (const std::int64_t length : c.text_lengths) {
    hidden_keys.emplace_back(text_begin + length, text_begin + s.text_tokens);
  }
}

// q or k after norm and RoPE. Without either it is the input itself, copied if it must outlive the caller's memory.
ConstTensorView Engine::State::prepare(ConstTensorView in, const float* norm, const Prologue& p, bool keep,
                                       Scratch& scratch) {
  const bool raw = norm != nullptr || p.rope_cos != nullptr;
  if (!raw && !keep) return in;
  const TensorView out = scratch.like(in);
  rope_norm(in, norm, p.eps, p.rope_cos, p.rope_sin, out, threads);
  return out;
}

SelectCall Engine::State::wish(Branch branch) const {
  return {.step = call.step,
          .steps = call.steps,
          .layer = call.layer,
          .branch = branch,
          .partition = {options.sequence, options.policy.block_q},
          .hidden_keys = hidden_keys,
          .first_head = plan.heads[rank].begin};
}

void Engine::State::select(ConstTensorView q, ConstTensorView k) {
  chosen = {};
  residual = nullptr;
  if (parts_here(options.policy, call)) {
    if (follower.renews(call)) borrow();
    return book();
  }
  {
    const Stopwatch watch(ledger.stats().select_s);
    if (options.policy.blocks == BlockShape::kClusters)
      chosen.clusters = cluster_selector.choose(wish(call.branch), q, k, threads);
    else
      chosen.blocks = selector.choose(wish(call.branch), q, k, threads);
  }
  find_residual();
  book();
}

// The blocks that the conditional call of this step kept, and its residual. Where either is gone, all blocks.
void Engine::State::borrow() {
  const BlockMask* mask = selector.held(wish(Branch::kConditional), options.batch, full_q.heads());
  if (mask == nullptr) return;
  if (options.policy.residual) {
    const auto found = residuals.earlier(residual_key(Branch::kConditional), call.step + 1);
    if (found == nullptr) return;
    residual = &found->value;
  }
  chosen.blocks = mask;
}

void Engine::State::book() {
  ledger.note(options.policy, route_of(options.policy, call, chosen));
  ledger.count(call, chosen);
  if (!options.keep_masks) return;
  std::optional<BlockMask>& kept = kept_mask(call.layer, call.branch);
  const bool same = selector.last_was_cached() && !parts_here(options.policy, call);
  if (chosen.blocks != nullptr && same && kept) return;
  if (chosen.blocks == nullptr)
    kept.reset();
  else
    kept = *chosen.blocks;
}

void Engine::State::begin_following(const AttendCall& c) {
  call = c;
  chosen = {.followed = true};
  book();
  pending = true;
}

void Engine::State::begin(const AttendCall& c, ConstTensorView q, ConstTensorView k, bool inputs_stay) {
  require(!pending, "begin was called twice: call finish in between");
  check_call(c);
  if (follower.follows(c)) return begin_following(c);
  check_view("q", q, local_shape);
  check_view("k", k, local_shape);
  check_alike("q", q, "k", k);
  require((c.prologue.rope_cos == nullptr) == (c.prologue.rope_sin == nullptr),
          "only one of rope_cos and rope_sin was given: give both or none");
  call = c;
  hide_text(c);
  const bool keep = alone() && !inputs_stay;
  full_q = prepare(q, c.prologue.norm_q, c.prologue, keep, q_scratch);
  full_k = prepare(k, c.prologue.norm_k, c.prologue, keep, k_scratch);
  if (!alone()) {
    const Stopwatch watch(ledger.stats().communication_s);
    exchange.send_qk(full_q, full_k, phase(call, "q and k"));
    full_q = exchange.q();
    full_k = exchange.k();
  }
  select(full_q, full_k);
  if (observer) observer(call, plan.heads[rank].begin, full_q, full_k, chosen.blocks);
  pending = true;
}

void Engine::State::run_attention(ConstTensorView v, TensorView out) {
  const Stopwatch watch(ledger.stats().attention_s);
  AttentionArgs args;
  args.q = full_q;
  args.k = full_k;
  args.v = v;
  args.out = out;
  args.hidden_keys = hidden_keys;
  if (chosen.clusters != nullptr) return attend_clusters(args, *chosen.clusters, threads);
  args.mask = chosen.blocks;
  if (args.mask == nullptr) return attend_cpu(args, threads);
  if (chosen.completed) return make_residual(args);
  attend_cpu(args, {.tail = options.policy.tail}, threads);
  if (residual != nullptr) add_scaled(out, out, 1.0f, residual->view, threads);
}

// The residual of this call's interval, or that it is to be made.
void Engine::State::find_residual() {
  if (!options.policy.residual || chosen.blocks == nullptr) return;
  const StepRule rule = rule_for(options.policy, call.step, call.steps, call.layer);
  const auto found = residuals.earlier(residual_key(call.branch), call.step);
  chosen.completed = found == nullptr || found->interval_id != rule.interval_id;
  if (chosen.completed) return;
  found->last_step = call.step;
  residual = &found->value;
}

// Kept only when it is whole, so that an aborted call leaves none behind.
void Engine::State::make_residual(const AttentionArgs& args) {
  Packed fresh(args.out);
  attend_cpu(args, {.tail = options.policy.tail, .residual = fresh.view}, threads);
  const StepRule rule = rule_for(options.policy, call.step, call.steps, call.layer);
  residuals.put(residual_key(call.branch), rule.interval_id, call.step, std::move(fresh));
}

void Engine::State::finish_following(TensorView out) {
  const Stopwatch watch(ledger.stats().attention_s);
  pending = false;
  follower.take(call, out, threads);
}

void Engine::State::finish(ConstTensorView v, TensorView out) {
  require(pending, "finish was called without begin: call begin with q and k first");
  check_view("out", out, local_shape);
  if (chosen.followed) return finish_following(out);
  check_view("v", v, local_shape);
  check_alike("v", v, "q", full_q);
  check_alike("out", out, "q", full_q);
  pending = false;
  attend(v, out);
  const Stopwatch watch(ledger.stats().attention_s);
  follower.keep(call, out, threads);
}

void Engine::State::attend(ConstTensorView v, TensorView out) {
  if (alone()) return run_attention(v, out);
  {
    const Stopwatch watch(ledger.stats().communication_s);
    exchange.send_v(v, phase(call, "v"));
  }
  run_attention(exchange.v(), exchange.out());
  const Stopwatch watch(ledger.stats().communication_s);
  exchange.return_out(out, phase(call, "output"));
}

Engine::Engine(EngineOptions options, Fabric& fabric, const Threads& threads)
    : state_(std::make_unique<State>(std::move(options), fabric, threads)) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const { return state_->plan; }
const TokenOrder& Engine::order() const { return state_->order; }
Range Engine::local_tokens() const { return state_->plan.tokens[state_->rank]; }
const Policy& Engine::policy() const { return state_->options.policy; }

void Engine::begin(const AttendCall& call, ConstTensorView q, ConstTensorView k) { state_->begin(call, q, k, false); }

void Engine::finish(ConstTensorView v, TensorView out) { state_->finish(v, out); }

void Engine::attend(const AttendCall& call, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out) {
  state_->begin(call, q, k, true);
  state_->finish(v, out);
}

void Engine::attend_context(ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out) {
  check_view("q", q, state_->local_shape);
  check_view("out", out, state_->local_shape);
  const Stopwatch watch(state_->ledger.stats().context_s);
  AttentionArgs args;
  args.q = q, args.k = k, args.v = v, args.out = out;
  attend_cpu(args, state_->threads);
}

bool Engine::follows(const AttendCall& call) const {
  state_->check_call(call);
  return state_->follower.follows(call);
}

void Engine::follow(const AttendCall& call, TensorView out) {
  require(follows(call), "{}: this call has nothing to follow: ask follows() first, and give q, k and v",
          state_->phase(call, "follow"));
  require(!state_->pending, "follow was called between begin and finish: call finish first");
  check_view("out", out, state_->local_shape);
  state_->begin_following(call);
  state_->finish_following(out);
}

const BlockMask* Engine::mask(std::int32_t layer, Branch branch) const {
  require(layer >= 0 && layer < state_->options.layers, "layer {} does not exist: the Engine was made for {} layers",
          layer, state_->options.layers);
  const auto& kept = state_->kept_mask(layer, branch);
  return kept ? &*kept : nullptr;
}

void Engine::on_attend(AttendObserver observer) { state_->observer = std::move(observer); }

const EngineStats& Engine::stats() const { return state_->ledger.stats(); }

void Engine::reset() {
  state_->selector.reset();
  state_->cluster_selector.reset();
  state_->residuals.clear();
  state_->follower.reset();
  state_->ledger.reset();
  state_->pending = false;
  for (auto& mask : state_->masks) mask.reset();
}

}  // namespace tulle
