// Ablations of the quality study that need no videos of policies: they compare masks, made from the exact mass of dense
// runs. `tulle bench quality --ablation overlap | remap`.
//
//     dense runs ──► block mass of sampled calls ──► masks ──► figures a head ──► table and records
//     study_masks_runs.hpp           study_masks_overlap.cpp and    study_masks_figures.hpp
//                                    study_masks_remap.cpp
#pragma once

#include <span>

#include "cli/study_masks_figures.hpp"
#include "cli/study_plan.hpp"

namespace tulle::cli {

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

}  // namespace tulle::cli
