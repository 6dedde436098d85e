#include "cli/study_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/fail.hpp"
#include "base/named.hpp"

namespace tulle::cli {
namespace {

// A grid of the published study.
struct Published {
  std::string grid;
  int captions, seeds;
  std::vector<std::string> presets;
  std::vector<double> densities;
};

std::vector<std::string> all_presets() {
  std::vector<std::string> names;
  for (const StudyPreset& p : study_presets()) names.push_back(p.name);
  return names;
}

std::vector<Published> published() {
  return {{kMainGrid, 8, 2, all_presets(), {0.55, 0.40, 0.25, 0.15}},
          {"13x20x24", 4, 1, {"dfsattn", "west+fast", "topp", "tulle"}, {0.40, 0.25}}};
}

std::vector<Published> of_grids(const std::vector<std::string>& grids) {
  const std::vector<Published> all = published();
  if (grids.empty()) return all;
  std::vector<Published> wanted;
  for (const std::string& name : grids) {
    const std::string grid = to_string(parse_grid(name));
    const auto it = std::ranges::find(all, grid, &Published::grid);
    wanted.push_back(it != all.end() ? *it : all.front());
    wanted.back().grid = grid;
  }
  return wanted;
}

int or_default(int chosen, int published) { return chosen > 0 ? chosen : published; }

template <class T>
const std::vector<T>& or_default(const std::vector<T>& chosen, const std::vector<T>& published) {
  return chosen.empty() ? published : chosen;
}

// Every row at every density.
std::vector<Wish> at_densities(const std::vector<Wish>& rows, const std::vector<double>& densities) {
  std::vector<Wish> wishes;
  for (const double density : densities) {
    for (const Wish& row : rows) wishes.push_back({row.preset, density, row.profile});
  }
  return wishes;
}

StudyPart part_of(const Published& p, const StudyChoice& c) {
  StudyPart part;
  part.grid = parse_grid(p.grid);
  part.captions = or_default(c.captions, p.captions), part.seeds = or_default(c.seeds, p.seeds);
  std::vector<Wish> rows;
  for (const std::string& name : or_default(c.presets, p.presets)) rows.push_back({study_preset(name), {}});
  part.wishes = at_densities(rows, or_default(c.densities, p.densities));
  for (const std::string& path : c.policies) {
    const Policy policy = load_policy(path);
    part.wishes.push_back({{policy.name, policy, Knob::kNone}, {}});
  }
  return part;
}

}  // namespace

void check_choice(const StudyChoice& c) {
  require(c.captions >= 0 && c.seeds >= 0, "--count {} --seeds {}: both must be at least 1", c.captions, c.seeds);
  for (const double d : c.densities) require(d > 0 && d <= 1, "--density {}: densities are in (0, 1]", d);
}

std::vector<StudyPart> study_plan(const StudyChoice& c) {
  check_choice(c);
  std::vector<StudyPart> parts;
  for (const Published& p : of_grids(c.grids)) parts.push_back(part_of(p, c));
  return parts;
}

std::vector<StudyPart> checker_plan(const StudyChoice& c) {
  constexpr int kCaptions = 100;
  check_choice(c);
  std::vector<StudyPart> parts;
  for (const Published& p : of_grids(or_default(c.grids, {kMainGrid}))) {
    StudyChoice own = c;
    own.policies.clear();
    own.captions = or_default(c.captions, kCaptions);
    own.presets = or_default(c.presets, {"tulle"});
    own.densities = or_default(c.densities, {0.15});
    StudyPart part = part_of(p, own);
    part.seed_is_caption = true;
    part.dense = "checker/dense";
    for (Wish& wish : part.wishes) wish.preset.name = "checker/" + wish.preset.name;
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<StudyPart> ablation_plan(const std::string& name, const StudyChoice& c,
                                     std::span<const std::shared_ptr<const Profile>> profiles) {
  check_choice(c);
  const Ablation& ablation = find_named(ablations(), name, "ablation");
  require(c.presets.size() <= 1, "an ablation starts from one preset, and --preset names {}", c.presets.size());
  std::vector<Wish> rows = ablation.rows({study_preset(c.presets.empty() ? "dfsattn" : c.presets[0]), profiles});
  for (Wish& row : rows) row.preset.name = fmt::format("ablation/{}/{}", name, row.preset.name);
  std::vector<StudyPart> parts;
  for (const Published& p : of_grids(or_default(c.grids, {kMainGrid}))) {
    StudyPart part = part_of(p, {{}, {}, {}, {}, c.captions, c.seeds});
    part.wishes = at_densities(rows, or_default(c.densities, {0.25}));
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tulle::cli
