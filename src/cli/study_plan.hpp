// Which videos a quality study is made of: the published study, what options leave of it, and ablations.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/study.hpp"

namespace tulle::cli {

// What narrows or replaces the published study; empty or 0: as published.
struct StudyChoice {
  std::vector<std::string> grids, presets, policies;  // policies: .json files, further rows, used as they are
  std::vector<double> densities;
  int captions = 0, seeds = 0;
};

// Throws Error(kInvalidArgument) for counts and densities that there are not.
void check_choice(const StudyChoice& choice);

// The published study. 9x16x16: all presets at D = 0.55, 0.40, 0.25, 0.15, 8 captions x 2 seeds; 13x20x24: dfsattn,
// west+fast, topp and tulle at D = 0.40 and 0.25, 4 captions x 1 seed. Another grid gets what 9x16x16 has. Throws
// Error(kInvalidArgument) for unknown names and counts below 1.
std::vector<StudyPart> study_plan(const StudyChoice& choice);

// The checker's study: dense and tulle at D = 0.15 at 9x16x16, 100 captions, each with its index as seed.
std::vector<StudyPart> checker_plan(const StudyChoice& choice);

// What an ablation is made from.
struct AblationInput {
  StudyPreset base;
  std::span<const std::shared_ptr<const Profile>> profiles;  // in the order given
};

// One question, asked by rows that differ in one thing.
struct Ablation {
  const char* name;
  const char* help;
  std::vector<Wish> (*rows)(const AblationInput& input);  // without densities; names are labels
};
std::span<const Ablation> ablations();

// Rows "ablation/<name>/<label>" at 9x16x16 and D = 0.25, 8 captions x 2 seeds, unless chosen otherwise; choice.presets
// may name one base preset in place of tulle. Throws Error(kInvalidArgument) that lists the ablations.
std::vector<StudyPart> ablation_plan(const std::string& name, const StudyChoice& choice,
                                     std::span<const std::shared_ptr<const Profile>> profiles);

}  // namespace tulle::cli
