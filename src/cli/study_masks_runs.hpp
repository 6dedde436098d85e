// Dense runs of held-out captions, and what an ablation of masks looks at in them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/study_plan.hpp"
#include "cli/video_run.hpp"
#include "select/recall.hpp"

namespace tulle::cli {

// What an ablation of masks runs on: what was chosen, or the defaults.
struct MaskScope {
  TokenGrid grid;
  std::int32_t permille = 250;
  int captions = 4, seeds = 1;
};
// `seeds`: the default. Throws Error(kInvalidArgument) for more than one grid or density, and for those that there are
// not.
MaskScope mask_scope(const StudyChoice& choice, int seeds);

// Where blocks lie in the runs.
struct BlockLayout {
  OrderKind order = OrderKind::kHilbert;
  std::int32_t block_q = 64, block_k = 64;  // tokens
};

// One dense video. Ordered by caption, seed and scale.
struct DenseRun {
  std::size_t caption = 0;
  std::uint64_t seed = 0;
  double guidance = 1;
};

class DenseRuns {
 public:
  // Sees the sampled calls of a run (study_recall.hpp), by step and layer: q and k as attention sees them, and the
  // exact mass of all heads, one map each.
  using Observer =
      std::function<void(const SelectCall& call, ConstTensorView q, ConstTensorView k, const BlockMass& mass)>;

  // Reads the captions. `total` is how many runs are to come, for progress. The model must outlive this. Throws
  // Error(kInvalidArgument) where there are too few captions.
  DenseRuns(const Loaded& loaded, const StudySetup& setup, const MaskScope& scope, const BlockLayout& layout,
            std::size_t total);

  // Throws Error(kCancelled) after Ctrl-C, and whatever run_video throws.
  void run(const DenseRun& run, const Observer& see);

  const Threads& threads() const { return threads_; }

 private:
  const Loaded& loaded_;
  MaskScope scope_;
  BlockLayout layout_;
  bool quiet_;
  Threads threads_;
  std::vector<std::string> captions_;
  std::size_t total_, done_ = 0;
};

// Heads of all layers.
std::size_t all_heads(const Loaded& loaded);
// Profiles of the setup, of the model. Throws as load_profile.
std::vector<std::shared_ptr<const Profile>> load_profiles(const StudySetup& setup, const Loaded& loaded);

}  // namespace tulle::cli
