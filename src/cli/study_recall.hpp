// How much softmax mass the masks of one video keep, measured beside its run.
#pragma once

#include <vector>

#include "tulle/engine.hpp"

namespace tulle::cli {

// Masses are looked at in the conditional branch, at steps 4, 10, ..., 28 of 30: every sixth.
bool is_sampled(const AttendCall& call);
std::vector<std::int32_t> sampled_steps(std::int32_t steps);

// The 5th percentile (nearest rank); kUnknown of no values.
double fifth_percentile(std::vector<double> values);

// Sees the attention calls of a run. At those that are sampled it works out the true mass of all blocks, which costs as
// much as dense scores, and what the mask keeps of it. Dense calls, and policies without a BlockMask, give nothing. For
// runs of one rank.
class RecallMeter {
 public:
  explicit RecallMeter(int threads) : threads_(threads) {}

  void observe(const AttendCall& call, ConstTensorView q, ConstTensorView k, const BlockMask* mask);

  // Over the (step, layer, head) that were seen: the mean of their kept mass and its 5th percentile (nearest rank). NaN
  // when none was.
  double mean() const;
  double low() const;
  // That observe has taken: the run's own times are what is left without it.
  double seconds() const { return seconds_; }

 private:
  Threads threads_;
  std::vector<double> kept_;
  double seconds_ = 0;
};

}  // namespace tulle::cli
