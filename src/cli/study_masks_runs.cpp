#include "cli/study_masks_runs.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/fail.hpp"
#include "cli/captions.hpp"
#include "cli/study_recall.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> first_captions(const StudySetup& setup, int count) {
  const fs::path path = captions_path(setup.model, setup.captions);
  std::vector<std::string> captions = read_captions(path);
  require(std::ssize(captions) >= count, "{} has {} captions and {} were asked for: lower --count", path.string(),
          captions.size(), count);
  captions.resize(static_cast<std::size_t>(count));
  return captions;
}

}  // namespace

MaskScope mask_scope(const StudyChoice& c, int seeds) {
  check_choice(c);
  require(c.grids.size() <= 1 && c.densities.size() <= 1,
          "masks are compared at one grid and one density: give one of each");
  MaskScope scope;
  scope.grid = parse_grid(c.grids.empty() ? kMainGrid : c.grids[0]);
  if (!c.densities.empty())
    scope.permille = static_cast<std::int32_t>(std::max(1L, std::lround(1000 * c.densities[0])));
  if (c.captions > 0) scope.captions = c.captions;
  scope.seeds = c.seeds > 0 ? c.seeds : seeds;
  return scope;
}

DenseRuns::DenseRuns(const Loaded& loaded, const StudySetup& setup, const MaskScope& scope, const BlockLayout& layout,
                     std::size_t total)
    : loaded_(loaded),
      scope_(scope),
      layout_(layout),
      quiet_(setup.quiet),
      threads_(setup.threads > 0 ? setup.threads : Threads().width()),
      captions_(first_captions(setup, scope.captions)),
      total_(total) {}

void DenseRuns::run(const DenseRun& run, const Observer& see) {
  VideoRequest r;
  r.prompt = captions_.at(run.caption);
  r.grid = scope_.grid;
  r.policy = load_policy("dense");
  r.policy.order = layout_.order;
  r.sampler = loaded_.sampler;
  r.sampler.steps = kStudySteps;
  r.sampler.guidance = run.guidance;
  r.threads = threads_.width();
  r.seed = run.seed;
  r.quiet = quiet_;
  r.label = fmt::format("dense run {} of {}: {}, caption {}, seed {}, guidance {}", ++done_, total_,
                        to_string(scope_.grid), run.caption + 1, run.seed, run.guidance);
  r.observer = [&](const AttendCall& call, std::int64_t, ConstTensorView q, ConstTensorView k, const BlockMask*) {
    if (!is_sampled(call)) return;
    SelectCall shape;
    shape.step = call.step, shape.steps = call.steps, shape.layer = call.layer;
    shape.partition = {{scope_.grid}, layout_.block_q};
    see(shape, q, k, block_mass(q, k, shape, layout_.block_k, threads_));
  };
  run_video(loaded_, r);
}

std::size_t all_heads(const Loaded& loaded) {
  const WanConfig& c = loaded.model.config();
  return static_cast<std::size_t>(c.layers * c.heads);
}

std::vector<std::shared_ptr<const Profile>> load_profiles(const StudySetup& setup, const Loaded& loaded) {
  std::vector<std::shared_ptr<const Profile>> profiles;
  for (const std::string& path : setup.profiles) profiles.push_back(load_profile(path, loaded));
  return profiles;
}

}  // namespace tulle::cli
