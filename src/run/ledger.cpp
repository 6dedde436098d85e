#include "run/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/system.hpp"
#include "run/follower.hpp"

namespace tulle {
namespace {

Route attention_route(DType dtype) {
  return {"attention", fmt::format("cpu-highway/{}", attention_target(dtype)),
          "tensors live in host memory, and this kernel serves every shape there"};
}

Route parallel_route(std::int64_t ranks) {
  if (ranks == 1) return {"parallel", "single", "there is one rank"};
  return {"parallel", "ulysses",
          fmt::format("{} ranks share out the heads; no other way of many ranks is built in", ranks)};
}

Route call_route(const Policy& policy, CallRoute route) {
  const std::string name = fmt::format("policy {}", policy.name);
  switch (route) {
    case CallRoute::kPolicyDense:
      return {"dense calls", "policy", name + " chooses no blocks"};
    case CallRoute::kDenseLayer:
      return {"dense calls", "dense layer", name + " lists the layer under dense_layers"};
    case CallRoute::kWarmUp:
      return {"dense calls", "warm-up", name + " keeps the first steps dense"};
    case CallRoute::kFullDensity:
      return {"dense calls", "density 1", name + " asks for all blocks at this step"};
    case CallRoute::kResidual:
      return {"dense calls", "residual",
              name + " computes all blocks where it chooses a mask, and keeps what the dropped ones change"};
    case CallRoute::kDifference:
      return {
          "dense calls", "difference",
          name + " computes all blocks of the unconditional branch, and keeps how it differs from the conditional one"};
    case CallRoute::kRenewed:
      return {"unconditional branch", "renew",
              name + " computes the blocks that the conditional branch keeps, to see how the branches differ"};
    case CallRoute::kFollowed:
      return {"unconditional branch", "follow",
              name + " takes it from the conditional branch and the difference kept, without attention"};
    case CallRoute::kSparse:
      break;
  }
  if (policy.blocks == BlockShape::kClusters) {
    return {"selection", fmt::format("{}/{}, tokens permuted head by head", policy.scorer, policy.chooser),
            name + " has clusters of each head in place of blocks; there is no block mask to show"};
  }
  return {"selection", fmt::format("{}/{}", policy.scorer, policy.chooser), name + " names them"};
}

// Sums that grow with the largest index seen.
void add_at(std::vector<double>& sums, std::int64_t index, std::int64_t least_size, double value) {
  if (static_cast<std::int64_t>(sums.size()) < least_size) sums.resize(static_cast<std::size_t>(least_size), 0.0);
  sums[static_cast<std::size_t>(index)] += value;
}

double kept_of_head(const BlockMask& mask, std::int64_t head, std::int64_t batch) {
  double kept = 0;
  for (std::int64_t b = 0; b < mask.batch(); ++b) kept += static_cast<double>(kept_pairs(mask, b, head));
  // A mask of one sample serves all of them.
  return mask.batch() == batch ? kept : kept * static_cast<double>(batch);
}

double kept_of_head(const ClusterMask& mask, std::int64_t head) {
  double kept = 0;
  for (std::int64_t b = 0; b < mask.batch; ++b) kept += static_cast<double>(kept_pairs(mask.map(b, head)));
  return kept;
}

}  // namespace

Stopwatch::Stopwatch(double& sum) : sum_(sum), start_(now_seconds()) {}
Stopwatch::~Stopwatch() { sum_ += now_seconds() - start_; }

CallRoute route_of(const Policy& policy, const AttendCall& call, const Kept& kept) {
  if (kept.followed) return CallRoute::kFollowed;
  if (!kept.all()) return parts_here(policy, call) ? CallRoute::kRenewed : CallRoute::kSparse;
  if (kept.completed) return CallRoute::kResidual;
  if (!policy.sparse) return CallRoute::kPolicyDense;
  const auto& dense = policy.dense_layers;
  if (std::find(dense.begin(), dense.end(), call.layer) != dense.end()) return CallRoute::kDenseLayer;
  if (parts_here(policy, call)) return CallRoute::kDifference;
  const bool warm_up = rule_for(policy, call.step, call.steps, call.layer).interval_id < 0;
  return warm_up ? CallRoute::kWarmUp : CallRoute::kFullDensity;
}

Ledger::Ledger(const EngineOptions& options, const Plan& plan, Range own_heads)
    : layers_(options.layers),
      batch_(options.batch),
      own_heads_(own_heads.size()),
      pairs_(static_cast<double>(options.sequence.tokens()) * static_cast<double>(options.sequence.tokens())),
      ranks_(plan.ranks),
      dtype_(options.dtype),
      tail_(options.policy.tail) {
  reset();
}

void Ledger::reset() {
  stats_ = {};
  booked_ = {};
  const auto layers = static_cast<std::size_t>(layers_);
  stats_.kept_by_layer.assign(layers, 0.0);
  stats_.all_by_layer.assign(layers, 0.0);
  stats_.kept_by_head.assign(layers, std::vector<double>(static_cast<std::size_t>(own_heads_), 0.0));
  stats_.all_by_head = stats_.kept_by_head;
  add(attention_route(dtype_), !started_);
  add(parallel_route(ranks_), !started_);
  started_ = true;
}

double Ledger::computed_of_head(const Kept& kept, std::int64_t head, double all) const {
  if (kept.all()) return all;
  if (kept.followed) return 0;
  if (kept.clusters != nullptr) return kept_of_head(*kept.clusters, head);
  const double blocks = kept_of_head(*kept.blocks, head, batch_);
  return tail_ > 0 ? blocks + (all - blocks) / tail_ : blocks;
}

void Ledger::count(const AttendCall& call, const Kept& chosen) {
  const double all = pairs_ * static_cast<double>(batch_);
  const auto layer = static_cast<std::size_t>(call.layer);
  double kept_sum = 0;
  for (std::int64_t h = 0; h < own_heads_; ++h) {
    const double kept = computed_of_head(chosen, h, all);
    stats_.kept_by_head[layer][static_cast<std::size_t>(h)] += kept;
    stats_.all_by_head[layer][static_cast<std::size_t>(h)] += all;
    kept_sum += kept;
  }
  const double all_sum = all * static_cast<double>(own_heads_);
  add_at(stats_.kept_by_step, call.step, call.steps, kept_sum);
  add_at(stats_.all_by_step, call.step, call.steps, all_sum);
  stats_.kept_by_layer[layer] += kept_sum;
  stats_.all_by_layer[layer] += all_sum;
}

void Ledger::note(const Policy& policy, CallRoute route) {
  const auto i = static_cast<std::size_t>(route);
  if (booked_[i]) return;
  add(call_route(policy, route), !logged_[i]);
  booked_[i] = logged_[i] = true;
}

void Ledger::add(const Route& route, bool first) {
  stats_.routes.push_back(route);
  if (first) log(LogLevel::kInfo, "route: {} by {} ({})", route.what, route.route, route.why);
}

}  // namespace tulle
