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

// The mass that the run's own masks keep, [heads].
std::vector<double> own_recall(const SampledRun& run, std::size_t heads) {
  std::vector<double> by_head(heads, 0.0);
  for (const Layers& layers : run.steps) {
    std::size_t at = 0;
    for (const Sample& sample : layers) {
      for (const Recall& r : sample.kept) by_head[at++] += r.mean / static_cast<double>(run.steps.size());
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
  explicit Comparisons(std::size_t heads_)
      : heads(heads_),
        captions(heads_),
        seeds(heads_),
        guidance(heads_),
        early_late(heads_),
        neighbours(heads_),
        kept(heads_) {}

  std::size_t heads;  // of all layers
  Comparison captions, seeds, guidance, early_late, neighbours;
  HeadMeans kept;  // by each run's own masks

  void add_run(const SampledRun& run) {
    early_late.add({{&run.steps.front(), &run.steps.back()}});
    neighbours.add(neighbouring_steps(run));
    kept.add(own_recall(run, heads));
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

using Priors = std::vector<std::shared_ptr<const Prior>>;

// The profiles of the grid with FAST's tables for the density, every step sparse.
Priors fast_priors(const std::vector<std::shared_ptr<const Profile>>& profiles, const MaskScope& scope) {
  Policy policy = study_preset("west+fast").policy;
  policy.density = scope.permille;
  policy.schedule.dense_steps = 0;
  Priors priors;
  for (const auto& profile : profiles) {
    if (profile->q().sequence.grid == scope.grid) priors.push_back(make_prior(policy, *profile, scope.grid));
  }
  return priors;
}

struct TableComparison {
  explicit TableComparison(std::size_t heads) : tables(heads), whole(heads) {}

  HeadMeans tables;  // two tables on one rank map, each of the two maps in turn
  HeadMeans whole;   // each table on its own map

  void add(const Prior& a, const Prior& b) {
    require(a.budget->bins == b.budget->bins,
            "profiles of {} and of {} parts of the run have no table in common: calibrate both with the same --bins",
            a.budget->bins, b.budget->bins);
    const auto a_on_a = table_masks(*a.budget, a.profile), b_on_b = table_masks(*b.budget, b.profile);
    tables.add(overlap_by_head(a_on_a, table_masks(*b.budget, a.profile), *a.budget));
    tables.add(overlap_by_head(table_masks(*a.budget, b.profile), b_on_b, *a.budget));
    whole.add(overlap_by_head(a_on_a, b_on_b, *a.budget));
  }
};

MaskRow overlap_row(const std::string& name, const HeadMeans& iou, double chance) {
  const std::string random = "random masks of that density";
  return {name,
          {{"iou", "share", true, iou.mean(), random, chance}, {"iou_p5", "share", true, iou.low(), random, chance}}};
}

// Of all pairs of profiles of the grid; none where there are fewer than two.
std::vector<MaskRow> compare_profiles(const Priors& priors, std::size_t heads, double chance) {
  if (priors.size() < 2) return {};
  TableComparison all(heads);
  for (std::size_t i = 0; i < priors.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) all.add(*priors[j], *priors[i]);
  }
  return {overlap_row("overlap/fast_tables", all.tables, chance), overlap_row("overlap/profiles", all.whole, chance)};
}

// Of two masks with as many blocks a row as the best blocks of a run have.
double chance_at(const MaskScope& scope, const BlockLayout& layout) {
  const std::int64_t blocks = BlockPartition{{scope.grid}, layout.block_k}.count();
  return chance_overlap(static_cast<double>(kept_count(blocks, scope.permille)) / static_cast<double>(blocks));
}

std::vector<MaskRow> rows_of(const Comparisons& all, double chance) {
  return {all.captions.row("overlap/captions", chance),
          all.seeds.row("overlap/seeds", chance),
          all.guidance.row("overlap/guidance", chance),
          all.early_late.row("overlap/early_late", chance),
          all.neighbours.row("overlap/neighbouring_steps", chance),
          {"overlap/best",
           {{"recall", "share", true, all.kept.mean(), "all softmax mass", 1},
            {"recall_p5", "share", true, all.kept.low(), "all softmax mass", 1}}}};
}

std::string words_of(const MaskScope& s, const BlockLayout& layout, double guidance, double chance) {
  return fmt::format(
      "{}, the best {:.3f} of each row's blocks ({}, {} x {} tokens) by exact mass in dense runs: {} captions, "
      "{} seeds, guidance {} and {}, steps {} of {}, conditional branch. IoU of random masks: {:.3f}. Relative recall: "
      "the mass that one run's mask keeps of the other run, over what that run's own keeps.\n",
      to_string(s.grid), s.permille / 1000.0, to_string(layout.order), layout.block_q, layout.block_k, s.captions,
      s.seeds, guidance, 2 * guidance, fmt::join(sampled_steps(kStudySteps), ", "), kStudySteps, chance);
}

// What the rows of profiles are worth: where no surface keeps more mass than one density for all, the table is the
// latter, which is the same for all captions of one rank map.
std::string words_of_tables(const Priors& priors) {
  if (priors.size() < 2) {
    return "FAST's tables were not compared: that takes two profiles of the grid from different captions (tulle "
           "calibrate --skip), one --profile each.\n";
  }
  const auto uniform = std::ranges::count_if(priors, [](const auto& p) { return p->budget->uniform; });
  return fmt::format("FAST's tables of {} profiles, {} of them with one density for all heads and steps.\n",
                     priors.size(), uniform);
}

}  // namespace

MaskFindings measure_overlap(const StudySetup& setup, const StudyChoice& choice) {
  const MaskScope scope = mask_scope(choice, 2);
  const BlockLayout layout;
  const Loaded loaded = load_model(setup.model, default_precision());
  const std::size_t heads = all_heads(loaded);
  const double guidance = loaded.sampler.guidance, chance = chance_at(scope, layout);
  const Priors priors = fast_priors(load_profiles(setup, loaded), scope);
  const std::vector<MaskRow> of_profiles = compare_profiles(priors, heads, chance);

  const std::vector<DenseRun> plan = runs_of(scope, guidance);
  DenseRuns runs(loaded, setup, scope, layout, plan.size());
  std::vector<SampledRun> sampled;
  for (const DenseRun& run : plan) sampled.push_back(sample_run(runs, run, scope, layout));

  MaskFindings found{to_string(scope.grid), words_of(scope, layout, guidance, chance) + words_of_tables(priors),
                     rows_of(compare_all(sampled, heads, guidance), chance)};
  found.rows.insert(found.rows.end(), of_profiles.begin(), of_profiles.end());
  return found;
}

}  // namespace tulle::cli
