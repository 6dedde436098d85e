#include "cli/study_masks.hpp"

#include <array>

namespace tulle::cli {
namespace {

constexpr std::array kMaskAblations = {
    MaskAblation{"overlap", "how alike the best blocks of dense runs are: captions, seeds, guidance, steps",
                 measure_overlap},
    MaskAblation{"remap", "mass that rank maps of other grids keep, one --profile each", measure_remap}};

}  // namespace

std::span<const MaskAblation> mask_ablations() { return kMaskAblations; }

}  // namespace tulle::cli
