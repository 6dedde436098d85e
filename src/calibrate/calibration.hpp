// A calibration from the first caption to the profile, one attention call at a time.
//
//     Calibration c(plan);
//     while (c.done() < c.total()) {
//       run the model densely on c.caption(), giving every attention call to c.observe();
//       c.end_caption();
//       keep c.save();
//     }
//     Profile p = c.profile();
//
// The first captions make the rank maps (WEST), the others, which no map has seen, the fidelity curves (FAST): on
// captions that a map was made from, it keeps more than on those it will meet.
// Deterministic: equal calls give equal bits, whatever the number of threads, saved and restored in between or not.
// Thread safety: none; observe from one rank that holds all heads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/fast.hpp"
#include "calibrate/west.hpp"
#include "tulle/engine.hpp"
#include "tulle/profile.hpp"

namespace tulle {

struct CalibrationPlan {
  std::string model_hash;  // 16 hexadecimal digits
  BlockPartition q, k;     // one grid, no text
  OrderKind order = OrderKind::kHilbert;
  std::int64_t layers = 0, heads = 0;
  std::int32_t steps = 8;                  // of every run
  std::int32_t bins = 8;                   // parts of the run; one step of each is measured, so at most `steps`
  std::int64_t rows = 64;                  // query rows per call and head that fidelity is measured on
  std::vector<std::string> captions;       // for the rank maps, at least 1
  std::vector<std::string> fast_captions;  // for the curves, at least 1
  // What else the result depends on (seed, sampler, ...), as name and value: a saved state of other values is refused.
  std::vector<std::pair<std::string, std::string>> settings;
};

class Calibration {
 public:
  // Throws Error(kInvalidArgument) naming what does not make sense.
  explicit Calibration(CalibrationPlan plan);

  const CalibrationPlan& plan() const { return plan_; }
  std::int64_t total() const;                  // captions
  std::int64_t done() const { return done_; }  // captions
  const std::string& caption() const;          // the one to run now; done() < total()
  // The measured step of a part of the run: the one nearest to its middle, within it.
  std::int32_t measured_step(std::int64_t bin) const;

  // A dense call of the present caption; returns at once at steps that are not measured. An AttendObserver but for
  // `threads`. Throws Error(kInvalidArgument) for a call of another shape, Error(kNotFinite).
  void observe(const AttendCall& call, std::int64_t first_head, ConstTensorView q, ConstTensorView k,
               const Threads& threads);
  // Throws Error(kInvalidArgument) when no call of some measured step and layer was seen.
  void end_caption();
  void drop_caption();  // forgets the calls since the last end_caption

  // All captions must be done. Throws Error(kInvalidArgument).
  Profile profile() const;

  // The state between two captions as bytes, with settings and checksum.
  std::string save() const;
  // Goes on from what save gave. `where` begins every error. Throws Error(kBadFile) for bytes that save did not write,
  // Error(kInvalidArgument) naming the first setting that differs. Call it before the first caption.
  void restore(std::span<const std::byte> bytes, const std::string& where);

 private:
  bool ranking() const;                                   // the present caption is for the rank maps
  std::int64_t bin_of_measured(std::int32_t step) const;  // -1: not measured
  void measure_blocks(const AttendCall& call, ConstTensorView q, ConstTensorView k, const Threads& threads);
  void measure_rows(const AttendCall& call, std::int64_t bin, ConstTensorView q, ConstTensorView k,
                    const Threads& threads);

  CalibrationPlan plan_;
  West west_;
  Fast fast_;
  std::vector<double> fast_before_;  // sums at the last end_caption, for drop_caption
  std::vector<std::uint8_t> seen_;   // [bins][layers] of this caption
  std::int64_t done_ = 0;
};

// Bytes that a calibration holds at its peak, its profile and saved form included, without the model's run.
// Throws Error(kInvalidArgument) when the sum leaves 64 bits.
std::int64_t predicted_calibration_bytes(const CalibrationPlan& plan, std::int64_t head_dim, int threads);

}  // namespace tulle
