#include "cli/quality.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"

namespace tulle::cli {
namespace {

constexpr std::int32_t kSparseSteps = kStudySteps - kStudyDenseSteps;

constexpr std::int32_t kHighestFloor = 50;  // with more, the lowest density of the study cannot be met

StudyPreset preset_of(const char* name, Knob knob) {
  StudyPreset p{name, load_policy(name), knob};
  p.policy.floor = std::min(p.policy.floor, kHighestFloor);
  Schedule& s = p.policy.schedule;
  p.policy.dense_layers.clear();
  s.reference_steps = kStudySteps;
  // The first step of an interval computes all blocks where there are residuals: the first of all is the last dense
  // one.
  s.dense_steps = kStudyDenseSteps - (p.policy.residual ? 1 : 0);
  // As many intervals as the preset has densities; one density is kept step by step, so that two counts of whole blocks
  // can take turns.
  if (knob == Knob::kSchedule && s.starts.empty()) {
    const auto densities = static_cast<std::int32_t>(s.permille.size());
    s.interval = densities > 1 ? (kSparseSteps + densities - 1) / densities : 1;
  }
  return p;
}

double at_quantile(std::size_t degrees) {  // Student's t, two-sided 95 %
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                               2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  return degrees <= std::size(kTable) ? kTable[degrees - 1] : 1.96 + 2.4 / static_cast<double>(degrees);
}

// JSON has no infinity and no NaN: null stands for what a value is where it is not finite.
OrderedJson finite(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

double need_or(const Json& object, const char* key, double at_null, const std::string& where) {
  if (object.contains(key) && object.at(key).is_null()) return at_null;
  return json_need<double>(object, key, where);
}

// The lines of one file; what stands behind the last end of line is being written, or was left by an interruption.
void read_lines(const std::filesystem::path& path, std::vector<StudyLine>& lines) {
  const std::string text = read_file(path, std::size_t{256} << 20);
  for (std::size_t at = 0, n = 1; at < text.size(); ++n) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) return;
    lines.push_back(parse_study_line(text.substr(at, end - at), fmt::format("{}, line {}", path.string(), n)));
    at = end + 1;
  }
}

bool same_row(const StudyRow& row, const StudyLine& line) {
  return row.grid == line.grid && row.preset == line.preset && row.density_asked == line.density_asked &&
         row.lines.front().policy == line.policy;
}

bool same_wish(const StudyRow& a, const StudyRow& b) {
  return a.grid == b.grid && a.preset == b.preset && a.density_asked == b.density_asked;
}

// Of rows that answer one wish, the one with the most videos.
std::vector<StudyRow> largest(const std::vector<StudyRow>& rows) {
  std::vector<StudyRow> best;
  for (const StudyRow& r : rows) {
    const auto it = std::ranges::find_if(best, [&](const StudyRow& other) { return same_wish(r, other); });
    if (it == best.end())
      best.push_back(r);
    else if (it->lines.size() < r.lines.size())
      *it = r;
  }
  return best;
}

}  // namespace

std::vector<StudyPreset> study_presets() {
  return {preset_of("dfsattn", Knob::kSchedule),
          preset_of("west", Knob::kBudget),
          preset_of("west+fast", Knob::kBudget),
          preset_of("topp", Knob::kTopP),
          preset_of("sparge", Knob::kTopP),
          preset_of("svg2", Knob::kTopP),
          preset_of("window", Knob::kSchedule),
          preset_of("radial", Knob::kSchedule),
          preset_of("tulle", knob_of(load_policy("tulle")))};
}

StudyPreset study_preset(const std::string& name) {
  const std::vector<StudyPreset> all = study_presets();
  const auto it = std::ranges::find(all, name, &StudyPreset::name);
  if (it != all.end()) return *it;
  std::vector<std::string> names;
  for (const StudyPreset& p : all) names.push_back(p.name);
  fail(ErrorCode::kInvalidArgument, "the study has no preset \"{}\"; choose one of: {}", name, fmt::join(names, ", "));
}

Knob knob_of(const Policy& policy) {
  if (policy.budget != BudgetKind::kSchedule) return Knob::kBudget;
  return policy.chooser == "top_p" ? Knob::kTopP : Knob::kSchedule;
}

std::string to_json_line(const StudyLine& l) {
  const OrderedJson object = {{"key", l.key},
                              {"preset", l.preset},
                              {"policy", l.policy},
                              {"grid", l.grid},
                              {"caption", l.caption},
                              {"density_asked", l.density_asked},
                              {"seed", l.seed},
                              {"trial", l.trial},
                              {"density", l.density},
                              {"psnr", finite(l.psnr)},
                              {"ssim", l.ssim},
                              {"relative_l2", l.relative_l2},
                              {"count", l.count},
                              {"colours", l.colours},
                              {"shapes", l.shapes},
                              {"motions", l.motions},
                              {"attention_s", l.attention_s},
                              {"select_s", l.select_s},
                              {"dit_s", l.dit_s},
                              {"total_s", l.total_s},
                              {"dense_attention_s", finite(l.dense_attention_s)},
                              {"dense_dit_s", finite(l.dense_dit_s)},
                              {"recall", finite(l.recall)},
                              {"recall_low", finite(l.recall_low)},
                              {"machine", l.made.machine},
                              {"commit", l.made.commit},
                              {"date", l.made.date}};
  return object.dump() + "\n";
}

StudyLine parse_study_line(const std::string& text, const std::string& where) {
  const Json o = parse_json(text, where).value();
  StudyLine l;
  l.key = json_need<std::string>(o, "key", where);
  l.preset = json_need<std::string>(o, "preset", where);
  l.policy = json_need<std::string>(o, "policy", where);
  l.grid = json_need<std::string>(o, "grid", where);
  l.caption = json_need<std::string>(o, "caption", where);
  l.density_asked = json_need<std::int32_t>(o, "density_asked", where);
  l.seed = json_need<std::uint64_t>(o, "seed", where);
  l.density = json_need<double>(o, "density", where);
  l.trial = json_need<bool>(o, "trial", where);
  l.psnr = need_or(o, "psnr", std::numeric_limits<double>::infinity(), where);
  l.ssim = json_need<double>(o, "ssim", where);
  l.relative_l2 = json_need<double>(o, "relative_l2", where);
  l.count = json_need<bool>(o, "count", where);
  l.colours = json_need<bool>(o, "colours", where);
  l.shapes = json_need<bool>(o, "shapes", where);
  l.motions = json_need<bool>(o, "motions", where);
  l.attention_s = json_need<double>(o, "attention_s", where);
  l.select_s = json_need<double>(o, "select_s", where);
  l.dit_s = json_need<double>(o, "dit_s", where);
  l.total_s = json_need<double>(o, "total_s", where);
  l.dense_attention_s = need_or(o, "dense_attention_s", kUnknown, where);
  l.dense_dit_s = need_or(o, "dense_dit_s", kUnknown, where);
  l.recall = need_or(o, "recall", kUnknown, where);
  l.recall_low = need_or(o, "recall_low", kUnknown, where);
  l.made = {json_need<std::string>(o, "machine", where), json_need<std::string>(o, "commit", where),
            json_need<std::string>(o, "date", where)};
  return l;
}

Estimate estimate(const std::vector<double>& values) {
  Estimate e;
  e.n = values.size();
  if (e.n == 0) return e;
  e.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(e.n);
  if (e.n < 2) return e;
  double squares = 0;
  for (const double v : values) squares += (v - e.mean) * (v - e.mean);
  const double deviation = std::sqrt(squares / static_cast<double>(e.n - 1));
  e.half_width = at_quantile(e.n - 1) * deviation / std::sqrt(static_cast<double>(e.n));
  return e;
}

std::vector<StudyLine> read_study_lines(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  std::vector<StudyLine> lines;
  for (const std::filesystem::path& file : files) read_lines(file, lines);
  return lines;
}

std::vector<StudyRow> study_rows(const std::vector<StudyLine>& lines) {
  std::vector<StudyRow> rows;
  for (const StudyLine& l : lines) {
    if (l.trial) continue;
    auto it = std::ranges::find_if(rows, [&](const StudyRow& r) { return same_row(r, l); });
    if (it == rows.end()) it = rows.insert(rows.end(), {l.grid, l.preset, l.density_asked, {l}});
    // Two processes without a shard may both have drawn it.
    if (std::ranges::find(it->lines, l.key, &StudyLine::key) == it->lines.end()) it->lines.push_back(l);
  }
  rows = largest(rows);
  std::ranges::stable_sort(rows, [](const StudyRow& a, const StudyRow& b) {
    if (a.grid != b.grid) return a.grid > b.grid;
    return a.density_asked > b.density_asked;
  });
  return rows;
}

}  // namespace tulle::cli
