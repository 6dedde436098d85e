#include "run/follower.hpp"

#include <cmath>

#include "attend/residual.hpp"

namespace tulle {
namespace {

FollowRule rule_of(const Policy& policy, const AttendCall& call) {
  if (policy.follow.starts.empty()) return {};
  return follow_rule_for(policy, call.step, call.steps, call.layer);
}

}  // namespace

bool parts_here(const Policy& policy, const AttendCall& call) {
  return call.branch == Branch::kUnconditional && rule_of(policy, call).interval_id >= 0;
}

bool Follower::has_lead(const AttendCall& call) const {
  const Part& lead = layers_[static_cast<std::size_t>(call.layer)].lead;
  return lead.step == call.step && lead.steps == call.steps;
}

bool Follower::has_difference(const AttendCall& call, const FollowRule& rule) const {
  if (!parts_here(policy_, call) || !has_lead(call)) return false;
  const Layer& l = layers_[static_cast<std::size_t>(call.layer)];
  const bool earlier = l.difference.step >= 0 && l.difference.step < call.step && l.difference.steps == call.steps;
  return earlier && l.made.interval_id == rule.interval_id;
}

bool Follower::follows(const AttendCall& call) const {
  const FollowRule rule = rule_of(policy_, call);
  return has_difference(call, rule) && layers_[static_cast<std::size_t>(call.layer)].made.part == rule.part;
}

bool Follower::renews(const AttendCall& call) const {
  const FollowRule rule = rule_of(policy_, call);
  return has_difference(call, rule) && layers_[static_cast<std::size_t>(call.layer)].made.part != rule.part;
}

void Follower::take(const AttendCall& call, TensorView out, const Threads& threads) {
  Layer& l = layers_[static_cast<std::size_t>(call.layer)];
  const int age = rule_of(policy_, call).reference_step - l.made.reference_step;
  const auto weight = static_cast<float>(std::pow(1 - policy_.follow.fade / 1000.0, age));
  add_scaled(out, l.lead.out->view, weight, l.difference.out->view, threads);
  l.difference.step = call.step;
}

TensorView Follower::begin(Part& part, const ConstTensorView& like) {
  part.step = -1;
  const bool fits = part.out && part.out->view.dtype == like.dtype && part.out->view.shape == like.shape;
  if (!fits) part.out.emplace(like);
  return part.out->view;
}

void Follower::keep(const AttendCall& call, ConstTensorView out, const Threads& threads) {
  const FollowRule rule = rule_of(policy_, call);
  if (rule.interval_id < 0) return;
  Layer& l = layers_[static_cast<std::size_t>(call.layer)];
  Part& part = call.branch == Branch::kConditional ? l.lead : l.difference;
  if (call.branch == Branch::kConditional) {
    copy_rows(begin(part, out), out, threads);
  } else {
    if (!has_lead(call)) return;
    add_scaled(begin(part, out), out, -1.0f, l.lead.out->view, threads);
    l.made = rule;
  }
  part.steps = call.steps, part.step = call.step;
}

void Follower::reset() {
  for (Layer& l : layers_) l = {};
}

}  // namespace tulle
