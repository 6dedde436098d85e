// What a run did, as the values of a report: densities, speed-ups, ceiling, balance.
#pragma once

#include "cli/video_run.hpp"

namespace tulle::cli {

// The report of `run`, and of `dense` (null when there was none) with the comparison. device and predicted_memory are
// the caller's to fill.
RunReport make_report(const Loaded& loaded, const VideoRequest& request, const VideoResult& run,
                      const VideoResult* dense);

// Kept over all query-key pairs of a run, dense calls included; `stats` of all ranks.
double overall_density(const std::vector<EngineStats>& stats);

}  // namespace tulle::cli
