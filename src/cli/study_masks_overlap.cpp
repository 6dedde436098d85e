// Ablation overlap: how alike the best blocks of two dense runs are, or of two steps of one run.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/fail.hpp"
#include "cli/study_masks.hpp"
#include "cli/study_masks_runs.hpp"
#include "cli/study_recall.hpp"
#include "mask/overlap.hpp"
#include "select/prior.hpp"

namespace tulle::cli {
namespace {

// One sampled call: the mass of its heads, and the mask of the best blocks.
struct Sample {
  BlockMass mass;
  BlockMask mask;
  std::vector<Recall> kept;  // [heads] of its own mask
};

struct SampledRun {
  DenseRun run;
  std::vector<std::vector<Sample>> steps;  // [sampled steps][layers]
};

SampledRun sample_run(DenseRuns& runs, const DenseRun& run, const MaskScope& scope, const BlockLayout& layout) {
  SampledRun out{run, {}};
  runs.run(run, [&](const SelectCall& call, ConstTensorView, ConstTensorView, const BlockMass& mass) {
    if (call.layer == 0) out.steps.emplace_back();
    BlockMask best = best_blocks(mass, call.partition, {call.partition.sequence, layout.block_k}, layout.order,
                                 scope.permille);
    std::vector<Recall> kept = recall_of(best, mass);
    out.steps.back().push_back({mass, std::move(best), std::move(kept)});
  });
  return out;
}

// All layers of one sampled step of one run.
using Layers = std::vector<Sample>;
using LayersPair = std::pair<const Layers*, const Layers*>;

// What one kind of comparison came to.
class Comparison {
 public:
  explicit Comparison(std::size_t heads) : heads_(heads), iou_(heads), relative_(heads) {}

  // One comparison: the mean over pairs of the same step, or of two steps of one run.
  void add(const std::vector<LayersPair>& pairs) {
    std::vector<double> iou(heads_, 0.0), relative(heads_, 0.0);
    for (const auto& [a, b] : pairs) add_pair(*a, *b, 1 / static_cast<double>(pairs.size()), iou, relative);
    iou_.add(iou);
    relative_.add(relative);
  }

  MaskRow row(const std::string& name, double chance) const {
    const std::string best = "each run's own best blocks";
    return {name,
            {{"iou", "share", true, iou_.mean(), "random masks of that density", chance},
             {"iou_p5", "share", true, iou_.low(), "random masks of that density", chance},
             {"relative_recall", "share", true, relative_.mean(), best, 1},
             {"relative_recall_p5", "share", true, relative_.low(), best, 1}}};
  }

 private:
  // The mass that each mask keeps of the other run, over what that run's own mask keeps: the mean of both ways.
  static void add_pair(const Layers& a, const Layers& b, double weight, std::vector<double>& iou,
                       std::vector<double>& relative) {
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < a.size(); ++layer) {
      const std::vector<double> same = overlap_of(a[layer].mask, b[layer].mask);
      const std::vector<Recall> there = recall_of(a[layer].mask, b[layer].mass),
                                back = recall_of(b[layer].mask, a[layer].mass);
      for (std::size_t h = 0; h < same.size(); ++h, ++at) {
        iou[at] += weight * same[h];
        relative[at] += weight * (there[h].mean / b[layer].kept[h].mean + back[h].mean / a[layer].kept[h].mean) / 2;
      }
    }
  }

  std::size_t heads_;
  HeadMeans iou_, relative_;
};

std::vector<LayersPair> same_steps(const SampledRun& a, const SampledRun& b) {
  std::vector<LayersPair> pairs;
  for (std::size_t s = 0; s < a.steps.size(); ++s) pairs.emplace_back(&a.steps[s], &b.steps[s]);
  return pairs;
}

std::vector<LayersPair> neighbours(const SampledRun& run) {
  std::vector<LayersPair> pairs;
  for (std::size_t s = 1; s < run.steps.size(); ++s) pairs.emplace_back(&run.steps[s - 1], &run.steps[s]);
  return pairs;
}

// What two runs differ in, where it is one thing alone.
enum class Differs { kCaption, kSeed, kGuidance, kMore };
Differs difference(const DenseRun& a, const DenseRun& b) {
  const bool caption = a.caption != b.caption, seed = a.seed != b.seed, guidance = a.guidance != b.guidance;
  if (caption + seed + guidance != 1) return Differs::kMore;
  return caption ? Differs::kCaption : seed ? Differs::kSeed : Differs::kGuidance;
}

std::vector<DenseRun> runs_of(const MaskScope& scope, double guidance) {
  std::vector<DenseRun> runs;
  for (std::size_t caption = 0; caption < static_cast<std::size_t>(scope.captions); ++caption) {
    for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(scope.seeds); ++seed) {
      runs.push_back({caption, seed, guidance});
    }
    runs.push_back({caption, 0, 2 * guidance});
  }
  return runs;
}

double mean_kept(const std::vector<SampledRun>& runs, HeadMeans means) {
  for (const SampledRun& run : runs) {
    std::vector<double> by_head;
    for (const Layers& layers : run.steps) {
      std::size_t at = 0;
      for (const Sample& sample : layers) {
        for (const Recall& r : sample.kept) {
          if (at == by_head.size()) by_head.push_back(0);
          by_head[at++] += r.mean / static_cast<double>(run.steps.size());
        }
      }
    }
    means.add(by_head);
  }
  return means.mean().mean;
}
