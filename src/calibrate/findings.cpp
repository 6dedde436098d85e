#include "calibrate/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tulle {
namespace {

constexpr double kSettledShare = 0.05;
constexpr std::size_t kNamed = 3;
constexpr double kDiffer = 1.1;  // early and late needs within 10 % are called alike

double needed(const FidelityCurves& c, std::int64_t bin, std::int64_t layer, std::int64_t head) {
  const std::size_t at = c.at(bin, layer, head), density = c.at(layer, head);
  for (std::size_t l = 0; l < static_cast<std::size_t>(FidelityCurves::kLevels); ++l) {
    if (static_cast<double>(c.mass[at + l]) >= kNeededMass) return static_cast<double>(c.density[density + l]);
  }
  return 1;
}

std::string names(const std::vector<HeadNeed>& heads) {
  std::string text;
  for (const HeadNeed& h : heads) {
    text += fmt::format("{}layer {} head {} ({:.0f} %)", text.empty() ? "" : ", ", h.layer, h.head, 100 * h.density);
  }
  return text;
}

std::string head_words(const Findings& f) {
  const std::size_t named = std::min(kNamed, (f.heads.size() + 1) / 2);
  const std::vector<HeadNeed> least(f.heads.begin(), f.heads.begin() + static_cast<std::ptrdiff_t>(named));
  const std::vector<HeadNeed> most(f.heads.rbegin(), f.heads.rbegin() + static_cast<std::ptrdiff_t>(named));
  return fmt::format("Heads: to keep {:.0f} % of the attention mass, the least needy need {}; the neediest {}.\n",
                     100 * kNeededMass, names(least), names(most));
}

std::string step_words(const Findings& f) {
  const double early = f.by_bin.front(), late = f.by_bin.back();
  if (f.by_bin.size() == 1)
    return fmt::format("Steps: one part of the run was measured; it needs {:.0f} %.\n", 100 * early);
  const char* verdict = early > kDiffer * late   ? "early steps need more than late ones"
                        : late > kDiffer * early ? "late steps need more than early ones"
                                                 : "early and late steps need about the same";
  return fmt::format("Steps: {}: {:.0f} % in the first part of the run, {:.0f} % in the last.\n", verdict, 100 * early,
                     100 * late);
}

std::string layer_words(const Findings& f) {
  const auto [low, high] = std::ranges::minmax_element(f.by_layer);
  return fmt::format("Layers: layer {} needs least ({:.0f} %), layer {} most ({:.0f} %).\n", low - f.by_layer.begin(),
                     100 * *low, high - f.by_layer.begin(), 100 * *high);
}

std::string union_words(const Findings& f) {
  if (f.union_density <= 0)
    return "Captions: rows of fewer than four blocks have no best 25 %: nothing is said of the union.\n";
  if (f.captions == 1)
    return fmt::format(
        "Captions: one caption's best 25 % are {:.1f} % of the blocks; whether others would add to them takes two.\n",
        100 * f.union_density);
  return fmt::format(
      "Captions: the union of each caption's best 25 % covers {:.1f} % of the blocks; the last quarter of the captions "
      "added {:.1f} points: {}. The union of all but the last keeps {:.1f} % of the last one's mass.\n",
      100 * f.union_density, 100 * f.last_quarter,
      f.settled ? "it has settled" : "it still grows, so more captions would add blocks", 100 * f.held_out_mass);
}

}  // namespace

Findings find(const Profile& profile) {
  const FidelityCurves& c = profile.curves;
  Findings f;
  f.by_bin.assign(static_cast<std::size_t>(c.bins), 0.0);
  f.by_layer.assign(static_cast<std::size_t>(c.layers), 0.0);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    for (std::int64_t head = 0; head < c.heads; ++head) {
      double sum = 0;
      for (std::int64_t bin = 0; bin < c.bins; ++bin) {
        const double need = needed(c, bin, layer, head);
        sum += need;
        f.by_bin[static_cast<std::size_t>(bin)] += need / static_cast<double>(c.layers * c.heads);
        f.by_layer[static_cast<std::size_t>(layer)] += need / static_cast<double>(c.bins * c.heads);
      }
      f.heads.push_back({layer, head, sum / static_cast<double>(c.bins)});
    }
  }
  std::ranges::sort(f.heads, [](const HeadNeed& a, const HeadNeed& b) {
    return std::tie(a.density, a.layer, a.head) < std::tie(b.density, b.layer, b.head);
  });
  const std::size_t captions = profile.union_density.size();
  const std::size_t before = std::max<std::size_t>(1, captions - (captions + 3) / 4);
  f.union_density = static_cast<double>(profile.union_density.back());
  f.last_quarter = f.union_density - static_cast<double>(profile.union_density[before - 1]);
  f.captions = captions;
  f.settled = captions > 1 && f.last_quarter <= kSettledShare * f.union_density;
  f.held_out_mass = static_cast<double>(profile.held_out_mass);
  return f;
}

std::string words(const Findings& f) { return head_words(f) + layer_words(f) + step_words(f) + union_words(f); }

}  // namespace tulle
