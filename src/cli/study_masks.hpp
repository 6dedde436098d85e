// Ablations of the quality study that need no videos of policies: they compare masks, made from the exact mass of dense
// runs. `tulle bench quality --ablation overlap | remap`.
//
//     dense runs ──► block mass of sampled calls ──► masks ──► figures a head ──► table and records
//     study_masks_runs.hpp                           overlap: study_masks_overlap.cpp, remap: study_masks_remap.cpp
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/study_plan.hpp"
#include "cli/study_records.hpp"

namespace tulle::cli {

// One figure of every head of every layer, over many comparisons (videos, or pairs of them).
class HeadMeans {
 public:
  explicit HeadMeans(std::size_t heads) : sums_(heads, 0.0) {}

  // One comparison: [heads], each the mean over its calls.
  void add(std::span<const double> by_head);

  // Over comparisons, of the mean over heads; n = 0 and kUnknown where there was none.
  Estimate mean() const;
  // The 5th percentile over heads of their means over comparisons. Its half-width is kUnknown.
  Estimate low() const;

 private:
  std::vector<double> sums_;   // [heads]
  std::vector<double> means_;  // [comparisons]
};

struct MaskRow {
  std::string name;  // of the records, without the grid
  std::vector<Figure> figures;
};

struct MaskFindings {
  std::string grid;
  std::string words;  // what was measured, and what could not be
  std::vector<MaskRow> rows;
};

struct MaskAblation {
  const char* name;
  const char* help;
  MaskFindings (*run)(const StudySetup& setup, const StudyChoice& choice);
};
std::span<const MaskAblation> mask_ablations();

// IoU of the best blocks (0.25 of each row, unless chosen otherwise) of dense runs between captions, seeds, scales of
// guidance and steps; where two profiles of the grid are given, of FAST's tables too. 4 captions x 2 seeds at 9x16x16
// unless chosen otherwise. Zhou et al., "ScalingAttention" (2026): whether the topology lies in the weights.
// Throws Error(kInvalidArgument) for a choice or profiles that do not fit, Error(kCancelled) after Ctrl-C, and whatever
// run_video throws.
MaskFindings measure_overlap(const StudySetup& setup, const StudyChoice& choice);

// Softmax mass that rank maps of other grids keep on this one once remapped, beside the grid's own profile. 4 captions
// x 1 seed at 9x16x16 unless chosen otherwise. Throws as measure_overlap, and Error(kInvalidArgument) naming the
// profile that is missing.
MaskFindings measure_remap(const StudySetup& setup, const StudyChoice& choice);

// Markdown: one line a row, one column a metric.
std::string mask_table(const MaskFindings& findings);
// Records in the form of results/*.json.
std::string mask_records(const MaskFindings& findings, const std::string& command);

}  // namespace tulle::cli
