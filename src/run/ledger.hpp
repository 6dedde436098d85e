// The books of one rank: seconds, kept pairs and routes, as the report wants them.
#pragma once

#include <array>
#include <cstdint>

#include "mask/cluster_mask.hpp"
#include "tulle/engine.hpp"

namespace tulle {

// What a call's heads keep: a mask of one kind, or all.
struct Kept {
  const BlockMask* blocks = nullptr;
  const ClusterMask* clusters = nullptr;
  bool completed = false;  // all is computed all the same, for the residual
  bool followed = false;   // nothing is computed: the output is taken from the other branch
  bool all() const { return completed || (blocks == nullptr && clusters == nullptr && !followed); }
};

// Why a call computes all blocks, or that it does not.
enum class CallRoute : std::uint8_t {
  kPolicyDense,
  kDenseLayer,
  kWarmUp,
  kFullDensity,
  kResidual,
  kDifference,
  kRenewed,
  kSparse,
  kFollowed
};
constexpr std::size_t kCallRoutes = 9;

// Adds the seconds until its end to `sum`.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  double start_;
};

class Ledger {
 public:
  Ledger(const EngineOptions& options, const Plan& plan, Range own_heads);

  EngineStats& stats() { return stats_; }
  const EngineStats& stats() const { return stats_; }

  // Books the pairs of one call, for all own heads.
  void count(const AttendCall& call, const Kept& chosen);
  // Books the route of a call; the first time it is logged, too.
  void note(const Policy& policy, CallRoute route);
  void reset();

 private:
  void add(const Route& route, bool first);

  double computed_of_head(const Kept& kept, std::int64_t head, double all) const;

  std::int64_t layers_, batch_;
  std::int64_t own_heads_;
  double pairs_;  // of one head of one sample
  std::int64_t ranks_;
  DType dtype_;
  std::int32_t tail_;
  EngineStats stats_;
  std::array<bool, kCallRoutes> booked_{}, logged_{};
  bool started_ = false;
};

CallRoute route_of(const Policy& policy, const AttendCall& call, const Kept& kept);

}  // namespace tulle
