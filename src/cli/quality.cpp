#include "cli/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/json.hpp"
#include "base/system.hpp"
#include "select/chooser.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {
namespace {

constexpr std::int32_t kSparseSteps = kStudySteps - kStudyDenseSteps;
constexpr std::int32_t kIntervals = 3;

StudyPreset preset_of(const char* name, Knob knob) {
  StudyPreset p{name, load_policy(name), knob};
  p.policy.dense_layers.clear();
  p.policy.schedule.reference_steps = kStudySteps;
  p.policy.schedule.dense_steps = kStudyDenseSteps;
  if (name == std::string_view("dfsattn")) {
    p.policy.schedule.interval = ceil_div(kSparseSteps, kIntervals);
  } else if (knob == Knob::kSchedule) {
    p.policy.schedule.interval = 1;
  }
  return p;
}

// Density of the sparse steps under which the whole run has `density`.
double sparse_density(double density) {
  const double value = (density * kStudySteps - kStudyDenseSteps) / kSparseSteps;
  require(value > 0 && value <= 1, "a density of {:.3f} cannot be met: {} of {} steps are dense", density,
          kStudyDenseSteps, kStudySteps);
  return value;
}

std::int32_t to_permille(double density) {
  return std::clamp(static_cast<std::int32_t>(std::lround(density * 1000)), 1, 1000);
}

// What a chooser with whole blocks makes of a density, as a density.
double met(std::int64_t blocks, std::int32_t permille) {
  return static_cast<double>(kept_count(blocks, permille)) / static_cast<double>(blocks);
}

// Falling as DFSAttn's 0.3, 0.2, 0.1: 3 : 2 : 1 by interval. The scale is the one whose whole blocks come nearest.
std::vector<std::int32_t> falling(const Schedule& s, double wanted, std::int64_t blocks) {
  std::vector<std::int32_t> best;
  double best_error = 2;
  for (std::int32_t scale = 1; scale <= 1000; ++scale) {
    std::vector<std::int32_t> permille;
    double sum = 0;
    for (std::int32_t i = 0; i < kIntervals; ++i) {
      permille.push_back(std::min(1000, std::max(1, scale * (kIntervals - i) / 2)));
      const std::int32_t last = i + 1 == kIntervals ? kSparseSteps : (i + 1) * s.interval;
      sum += (last - i * s.interval) * met(blocks, permille.back());
    }
    const double error = std::abs(sum / kSparseSteps - wanted);
    if (error < best_error) best_error = error, best = permille;
  }
  return best;
}

// The same density at every step; where whole blocks do not meet it, two neighbouring counts take turns.
std::vector<std::int32_t> steady(double wanted, std::int64_t blocks) {
  std::vector<std::int32_t> permille;
  std::int64_t kept = 0;
  for (std::int32_t i = 1; i <= kSparseSteps; ++i) {
    const auto due = std::llround(wanted * static_cast<double>(blocks) * i);
    const std::int64_t count = std::clamp<std::int64_t>(due - kept, 1, blocks);
    kept += count;
    permille.push_back(static_cast<std::int32_t>((1000 * count + blocks - 1) / blocks));
  }
  return permille;
}

double at_quantile(std::size_t degrees) {  // Student's t, two-sided 95 %
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                               2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  return degrees <= std::size(kTable) ? kTable[degrees - 1] : 1.96 + 2.4 / static_cast<double>(degrees);
}

template <class Field>
Estimate estimate_of(const StudyRow& row, Field field) {
  std::vector<double> values;
  for (const StudyLine& line : row.lines) values.push_back(field(line));
  return estimate(values);
}

bool passed(const StudyLine& l) { return l.count && l.colours && l.shapes && l.motions; }

double attributes(const StudyLine& l) { return (l.count + l.colours + l.shapes + l.motions) / 4.0; }

const StudyRow* dense_row(const std::vector<StudyRow>& rows, const std::string& grid) {
  const auto it = std::ranges::find_if(rows, [&](const StudyRow& r) { return r.grid == grid && r.preset == "dense"; });
  return it == rows.end() ? nullptr : &*it;
}

double attention_time(const StudyLine& l) { return l.attention_s + l.select_s; }
double dit_time(const StudyLine& l) { return l.dit_s; }

template <class Field>
double speed_up(const StudyRow& row, const StudyRow* dense, Field field) {
  if (dense == nullptr) return std::numeric_limits<double>::quiet_NaN();
  return estimate_of(*dense, field).mean / estimate_of(row, field).mean;
}

}  // namespace

std::vector<StudyPreset> study_presets() {
  return {preset_of("dfsattn", Knob::kSchedule), preset_of("west", Knob::kBudget),
          preset_of("west+fast", Knob::kBudget), preset_of("topp", Knob::kTopP),
          preset_of("sparge", Knob::kTopP),      preset_of("window", Knob::kSchedule),
          preset_of("radial", Knob::kSchedule),  preset_of("tulle", Knob::kBudget)};
}

Policy policy_at(const StudyPreset& preset, double density, const TokenGrid& grid, std::int32_t top_p) {
  Policy p = preset.policy;
  const double wanted = sparse_density(density);
  const std::int64_t blocks = ceil_div(grid.tokens(), std::int64_t{p.block_k});
  switch (preset.knob) {
    case Knob::kNone:
      break;
    case Knob::kSchedule:
      p.schedule.permille = p.schedule.interval > 1 ? falling(p.schedule, wanted, blocks) : steady(wanted, blocks);
      break;
    case Knob::kBudget:
      p.density = to_permille(wanted);
      break;
    case Knob::kTopP:
      p.top_p = top_p;
      p.schedule.permille = {1000};
      break;
  }
  check_policy(p);
  return p;
}

std::string to_json_line(const StudyLine& l) {
  const OrderedJson object = {{"key", l.key},
                              {"preset", l.preset},
                              {"policy", l.policy},
                              {"grid", l.grid},
                              {"caption", l.caption},
                              {"density_asked", l.density_asked},
                              {"seed", l.seed},
                              {"density", l.density},
                              {"psnr", std::isfinite(l.psnr) ? OrderedJson(l.psnr) : OrderedJson(nullptr)},
                              {"ssim", l.ssim},
                              {"relative_l2", l.relative_l2},
                              {"count", l.count},
                              {"colours", l.colours},
                              {"shapes", l.shapes},
                              {"motions", l.motions},
                              {"attention_s", l.attention_s},
                              {"select_s", l.select_s},
                              {"dit_s", l.dit_s},
                              {"total_s", l.total_s}};
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
  const bool equal = o.contains("psnr") && o.at("psnr").is_null();
  l.psnr = equal ? std::numeric_limits<double>::infinity() : json_need<double>(o, "psnr", where);
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

std::vector<StudyRow> study_rows(const std::vector<StudyLine>& lines) {
  std::vector<StudyRow> rows;
  for (const StudyLine& l : lines) {
    auto it = std::ranges::find_if(rows, [&](const StudyRow& r) {
      return r.grid == l.grid && r.preset == l.preset && r.density_asked == l.density_asked &&
             r.lines.front().policy == l.policy;
    });
    if (it == rows.end()) it = rows.insert(rows.end(), {l.grid, l.preset, l.density_asked, {}});
    it->lines.push_back(l);
  }
  const auto same_wish = [](const StudyRow& a, const StudyRow& b) {
    return a.grid == b.grid && a.preset == b.preset && a.density_asked == b.density_asked;
  };
  std::vector<StudyRow> best;
  for (const StudyRow& r : rows) {
    const auto it = std::ranges::find_if(best, [&](const StudyRow& other) { return same_wish(r, other); });
    if (it == best.end())
      best.push_back(r);
    else if (it->lines.size() < r.lines.size())
      *it = r;
  }
  rows = std::move(best);
  std::ranges::stable_sort(rows, [](const StudyRow& a, const StudyRow& b) {
    if (a.grid != b.grid) return a.grid > b.grid;
    return a.density_asked > b.density_asked;
  });
  return rows;
}

std::string study_table(const std::vector<StudyRow>& rows) {
  std::string out =
      "| grid | preset | density | PSNR dB | SSIM | relative L2 | checker | attributes | attention | DiT | n |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const StudyRow& r : rows) {
    const StudyRow* dense = dense_row(rows, r.grid);
    const bool is_dense = r.preset == "dense";
    const Estimate psnr = estimate_of(r, [](const StudyLine& l) { return l.psnr; });
    out += fmt::format("| {} | {} | {:.3f} | {} | {:.3f} | {:.3f} | {:.0f} % | {:.0f} % | {:.2f}x | {:.2f}x | {} |\n",
                       r.grid, r.preset, estimate_of(r, [](const StudyLine& l) { return l.density; }).mean,
                       is_dense ? "" : fmt::format("{:.2f} +- {:.2f}", psnr.mean, psnr.half_width),
                       estimate_of(r, [](const StudyLine& l) { return l.ssim; }).mean,
                       estimate_of(r, [](const StudyLine& l) { return l.relative_l2; }).mean,
                       100 * estimate_of(r, [](const StudyLine& l) { return double(passed(l)); }).mean,
                       100 * estimate_of(r, attributes).mean, speed_up(r, dense, attention_time),
                       speed_up(r, dense, dit_time), r.lines.size());
  }
  return out;
}

std::string study_records(const std::vector<StudyRow>& rows, const std::string& command) {
  OrderedJson records = OrderedJson::array();
  for (const StudyRow& r : rows) {
    if (r.preset == "dense") continue;
    const Estimate psnr = estimate_of(r, [](const StudyLine& l) { return l.psnr; });
    const std::string prefix = r.grid == "9x16x16" ? "" : r.grid + "/";
    records.push_back({{"bench", "quality"},
                       {"name", fmt::format("{}{}/density{:.2f}", prefix, r.preset, r.density_asked / 1000.0)},
                       {"metric", "psnr"},
                       {"unit", "dB"},
                       {"better", "higher"},
                       {"value", psnr.mean},
                       {"spread", psnr.half_width},
                       {"n", r.lines.size()},
                       {"baseline", "dense, same seed"},
                       {"baseline_value", nullptr},
                       {"ratio", nullptr},
                       {"machine", fmt::format("{}, {} cores", cpu_name(), cpu_count())},
                       {"commit", commit()},
                       {"date", utc_date()},
                       {"command", command}});
  }
  return records.dump(1) + "\n";
}

}  // namespace tulle::cli
