// Ablation overlap: how alike the best blocks of two dense runs are, or of two steps of one run.
#include <fmt/format.h>

#include <algorithm>

#include "base/fail.hpp"
#include "cli/study_masks.hpp"
#include "cli/study_masks_runs.hpp"
#include "cli/study_recall.hpp"
#include "mask/overlap.hpp"
#include "select/chooser.hpp"
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
    BlockMask best =
        best_blocks(mass, call.partition, {call.partition.sequence, layout.block_k}, layout.order, scope.permille);
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

std::vector<LayersPair> neighbouring_steps(const SampledRun& run) {
  std::vector<LayersPair> pairs;
  for (std::size_t s = 1; s < run.steps.size(); ++s) pairs.emplace_back(&run.steps[s - 1], &run.steps[s]);
  return pairs;
}

std::vector<double> own_recall(const SampledRun& run) {
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
  return by_head;
}

// Every caption with every seed, and the first seed with twice the model's scale of guidance.
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

// All comparisons of all runs.
struct Comparisons {
  explicit Comparisons(std::size_t heads)
      : captions(heads), seeds(heads), guidance(heads), early_late(heads), neighbours(heads), kept(heads) {}

  Comparison captions, seeds, guidance, early_late, neighbours;
  HeadMeans kept;  // by each run's own masks

  void add_run(const SampledRun& run) {
    early_late.add({{&run.steps.front(), &run.steps.back()}});
    neighbours.add(neighbouring_steps(run));
    kept.add(own_recall(run));
  }
  void add_pair(const SampledRun& a, const SampledRun& b, double guidance_of_model) {
    const bool caption = a.run.caption != b.run.caption, seed = a.run.seed != b.run.seed;
    if (a.run.guidance != b.run.guidance) {
      if (!caption && !seed) guidance.add(same_steps(a, b));
      return;
    }
    if (a.run.guidance != guidance_of_model || caption == seed) return;
    (caption ? captions : seeds).add(same_steps(a, b));
  }
};

Comparisons compare_all(const std::vector<SampledRun>& runs, std::size_t heads, double guidance) {
  Comparisons all(heads);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].run.guidance == guidance) all.add_run(runs[i]);
    for (std::size_t j = 0; j < i; ++j) all.add_pair(runs[j], runs[i], guidance);
  }
  return all;
}

// The masks of one FAST table on a profile's rank maps, [bins][layers].
std::vector<BlockMask> table_masks(const Budget& table, const Profile& maps) {
  std::vector<BlockMask> masks;
  for (std::int64_t bin = 0; bin < table.bins; ++bin) {
    for (std::int64_t layer = 0; layer < table.layers; ++layer) {
      masks.push_back(
          mask_at(maps.ranks[static_cast<std::size_t>(layer)],
                  std::span(table.levels).subspan(table.at(bin, layer, 0), static_cast<std::size_t>(table.heads))));
    }
  }
  return masks;
}

std::vector<double> overlap_by_head(const std::vector<BlockMask>& a, const std::vector<BlockMask>& b, const Budget& t) {
  std::vector<double> by_head(static_cast<std::size_t>(t.layers * t.heads), 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> same = overlap_of(a[i], b[i]);
    const std::size_t first = i % static_cast<std::size_t>(t.layers) * same.size();
    for (std::size_t h = 0; h < same.size(); ++h) by_head[first + h] += same[h] / static_cast<double>(t.bins);
  }
  return by_head;
}

// Of all pairs of profiles of the grid: FAST's two tables on one rank map (each of the two in turn), and the masks of
// the two profiles, each table on its own map.
std::vector<MaskRow> compare_profiles(const std::vector<std::shared_ptr<const Profile>>& profiles,
                                      const MaskScope& scope, double chance) {
  Policy policy = study_preset("west+fast").policy;
  policy.density = scope.permille;
  policy.schedule.dense_steps = 0;
  std::vector<std::shared_ptr<const Prior>> priors;
  for (const auto& profile : profiles) {
    if (profile->q().sequence.grid == scope.grid) priors.push_back(make_prior(policy, *profile, scope.grid));
  }
  if (priors.size() < 2) return {};
  const std::size_t heads = static_cast<std::size_t>(priors[0]->budget->layers * priors[0]->budget->heads);
  HeadMeans tables(heads), whole(heads);
  for (std::size_t i = 0; i < priors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Prior &a = *priors[j], &b = *priors[i];
      require(a.budget->bins == b.budget->bins,
              "profiles of {} and of {} parts of the run have no table in common: calibrate both with the same --bins",
              a.budget->bins, b.budget->bins);
      const auto a_a = table_masks(*a.budget, a.profile), b_b = table_masks(*b.budget, b.profile);
      tables.add(overlap_by_head(a_a, table_masks(*b.budget, a.profile), *a.budget));
      tables.add(overlap_by_head(table_masks(*a.budget, b.profile), b_b, *a.budget));
      whole.add(overlap_by_head(a_a, b_b, *a.budget));
    }
  }
  const auto row = [&](const char* name, const HeadMeans& m) {
    const std::string random = "random masks of that density";
    return MaskRow{
        name, {{"iou", "share", true, m.mean(), random, chance}, {"iou_p5", "share", true, m.low(), random, chance}}};
  };
  return {row("overlap/fast_tables", tables), row("overlap/profiles", whole)};
}

std::string words_of(const MaskScope& s, const BlockLayout& layout, double guidance, double chance,
                     bool with_profiles) {
  std::string text = fmt::format(
      "{}, the best {:.3f} of each row's blocks ({}, {} x {} tokens) by exact mass in dense runs: {} captions, {} "
      "seeds, "
      "guidance {} and {}, steps {} of {}, conditional branch. IoU of random masks: {:.3f}. Relative recall: the mass "
      "that "
      "one run's mask keeps of the other run, over what that run's own keeps.\n",
      to_string(s.grid), s.permille / 1000.0, to_string(layout.order), layout.block_q, layout.block_k, s.captions,
      s.seeds, guidance, 2 * guidance, fmt::join(sampled_steps(kStudySteps), ", "), kStudySteps, chance);
  if (!with_profiles) {
    text +=
        "FAST's tables were not compared: that takes two profiles of the grid from different captions (tulle calibrate "
        "--skip), one --profile each.\n";
  }
  return text;
}

}  // namespace

MaskFindings measure_overlap(const StudySetup& setup, const StudyChoice& choice) {
  const MaskScope scope = mask_scope(choice, 2);
  const BlockLayout layout;
  const Loaded loaded = load_model(setup.model, default_precision());
  const double guidance = loaded.sampler.guidance;
  const BlockPartition k{{scope.grid}, layout.block_k};
  const double chance =
      chance_overlap(static_cast<double>(kept_count(k.count(), scope.permille)) / static_cast<double>(k.count()));
  const std::vector<MaskRow> profile_rows = compare_profiles(load_profiles(setup, loaded), scope, chance);

  const std::vector<DenseRun> plan = runs_of(scope, guidance);
  DenseRuns runs(loaded, setup, scope, layout, plan.size());
  std::vector<SampledRun> sampled;
  for (const DenseRun& run : plan) sampled.push_back(sample_run(runs, run, scope, layout));
  const Comparisons all = compare_all(sampled, all_heads(loaded), guidance);

  MaskFindings found{to_string(scope.grid), words_of(scope, layout, guidance, chance, !profile_rows.empty()), {}};
  found.rows = {all.captions.row("overlap/captions", chance), all.seeds.row("overlap/seeds", chance),
                all.guidance.row("overlap/guidance", chance), all.early_late.row("overlap/early_late", chance),
                all.neighbours.row("overlap/neighbouring_steps", chance)};
  found.rows.insert(found.rows.end(), profile_rows.begin(), profile_rows.end());
  found.rows.push_back({"overlap/best",
                        {{"recall", "share", true, all.kept.mean(), "all softmax mass", 1},
                         {"recall_p5", "share", true, all.kept.low(), "all softmax mass", 1}}});
  return found;
}

}  // namespace tulle::cli
