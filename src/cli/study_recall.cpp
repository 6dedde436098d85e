#include "cli/study_recall.hpp"

#include <algorithm>
#include <numeric>

#include "base/system.hpp"
#include "cli/quality.hpp"
#include "select/recall.hpp"

namespace tulle::cli {
namespace {

constexpr std::int32_t kFirstStep = 4, kEvery = 6;

}  // namespace

bool is_sampled(const AttendCall& call) {
  return call.branch == Branch::kConditional && call.step >= kFirstStep && (call.step - kFirstStep) % kEvery == 0;
}

std::vector<std::int32_t> sampled_steps(std::int32_t steps) {
  std::vector<std::int32_t> sampled;
  for (std::int32_t step = kFirstStep; step < steps; step += kEvery) sampled.push_back(step);
  return sampled;
}

double fifth_percentile(std::vector<double> values) {
  if (values.empty()) return kUnknown;
  const std::size_t at = (values.size() * 5 + 99) / 100 - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

void RecallMeter::observe(const AttendCall& call, ConstTensorView q, ConstTensorView k, const BlockMask* mask) {
  if (mask == nullptr || !is_sampled(call)) return;
  const double begin = now_seconds();
  SelectCall shape;
  shape.step = call.step, shape.steps = call.steps, shape.layer = call.layer;
  shape.partition = mask->q();
  for (const Recall& r : recall_of(*mask, block_mass(q, k, shape, mask->k().block, threads_))) kept_.push_back(r.mean);
  seconds_ += now_seconds() - begin;
}

double RecallMeter::mean() const {
  if (kept_.empty()) return kUnknown;
  return std::accumulate(kept_.begin(), kept_.end(), 0.0) / static_cast<double>(kept_.size());
}

double RecallMeter::low() const { return fifth_percentile(kept_); }

}  // namespace tulle::cli
