// The unconditional branch of guidance taken from the conditional one (Policy::follow): what is kept for it.
//
//     conditional    step 7: out ---+--------------- step 8: out ---+----------- ...
//                                   | kept                          | kept
//     unconditional  step 7: all blocks, out - kept = difference    kept + weight * difference, no attention
//
// A difference may be renewed with the blocks and the residual of the conditional branch in place of all blocks.
//
// Kept parts are of this rank's tokens and all heads, so that a followed call exchanges nothing.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "run/packed.hpp"
#include "tulle/engine.hpp"
#include "tulle/threads.hpp"

namespace tulle {

class Follower {
 public:
  // `policy` must outlive the Follower.
  Follower(const Policy& policy, std::int64_t layers) : policy_(policy), layers_(static_cast<std::size_t>(layers)) {}

  // Whether the call's output is made of kept parts alone.
  bool follows(const AttendCall& call) const;
  // Whether it is to be computed with what the conditional branch keeps. An unconditional call of an interval that does
  // neither is computed with all blocks (parts_here).
  bool renews(const AttendCall& call) const;
  // out = what the conditional call of this step and layer gave + weight * difference. Only where follows().
  void take(const AttendCall& call, TensorView out, const Threads& threads);
  // After a call that was computed: keeps what later calls need of its output.
  void keep(const AttendCall& call, ConstTensorView out, const Threads& threads);
  void reset();

 private:
  // A part that is not whole has step -1, so that an aborted call leaves none behind.
  struct Part {
    std::optional<Packed> out;
    std::int32_t steps = 0, step = -1;
  };
  struct Layer {
    Part lead;        // the conditional output of the step last run
    Part difference;  // step: of its last use
    FollowRule made;  // where the difference was
  };

  static TensorView begin(Part& part, const ConstTensorView& like);
  bool has_lead(const AttendCall& call) const;
  bool has_difference(const AttendCall& call, const FollowRule& rule) const;

  const Policy& policy_;
  std::vector<Layer> layers_;
};

// Whether the call is one of the unconditional branch that has to do with the other one: it follows, or what it
// computes makes a difference.
bool parts_here(const Policy& policy, const AttendCall& call);

}  // namespace tulle
