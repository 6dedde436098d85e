#include "cli/study_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/study_records.hpp"

namespace tulle::cli {
namespace {

constexpr std::string_view kChecker = "checker/";
constexpr std::array kRivals = {"dfsattn", "west+fast", "topp"};

bool is_checker(const StudyRow& r) { return r.preset.starts_with(kChecker); }
bool is_dense(const StudyRow& r) { return r.preset == "dense" || r.preset == "checker/dense"; }

double passed(const StudyLine& l) { return l.count && l.colours && l.shapes && l.motions; }
double attributes(const StudyLine& l) { return (l.count + l.colours + l.shapes + l.motions) / 4.0; }
// Shares of the dense video's times. Machines differ, and a study may be drawn on several.
double attention_share(const StudyLine& l) { return (l.attention_s + l.select_s) / l.dense_attention_s; }
double dit_share(const StudyLine& l) { return l.dit_s / l.dense_dit_s; }

template <class Field>
Estimate estimate_of(const StudyRow& row, Field field) {
  std::vector<double> values;
  for (const StudyLine& line : row.lines) {
    if (const double v = std::invoke(field, line); !std::isnan(v)) values.push_back(v);
  }
  return values.empty() ? Estimate{kUnknown, kUnknown, 0} : estimate(values);
}

template <class Field>
double mean_of(const StudyRow& row, Field field) {
  return estimate_of(row, field).mean;
}

struct Means {
  double first = kUnknown, second = kUnknown;
  std::size_t n = 0;
  double ratio() const { return first / second; }
};

// Means of a field over the videos of which both rows know it.
template <class Field>
Means means_of(const StudyRow& a, const StudyRow* b, Field field) {
  const std::vector<LinePair> pairs = b != nullptr ? matched(a, *b) : std::vector<LinePair>{};
  Means m{0, 0, 0};
  for (const auto& [mine, theirs] : pairs) {
    const double first = std::invoke(field, *mine), second = std::invoke(field, *theirs);
    if (std::isnan(first) || std::isnan(second)) continue;
    m.first += first, m.second += second, ++m.n;
  }
  if (m.n == 0) return {};
  m.first /= static_cast<double>(m.n), m.second /= static_cast<double>(m.n);
  return m;
}

std::string number(double value, const char* unit = "") {
  return std::isnan(value) ? "" : fmt::format("{:.3f}{}", value, unit);
}

std::string times(double ratio) { return std::isnan(ratio) ? "" : fmt::format("{:.2f}x", ratio); }

std::string table_line(const StudyRow& r) {
  const Estimate psnr = estimate_of(r, &StudyLine::psnr);
  return fmt::format("| {} | {} | {} | {:.3f} | {} | {} | {} | {:.0f} % | {:.0f} % | {} | {} | {} | {} |\n", r.grid,
                     r.preset, r.density_asked == 0 ? "" : number(r.density_asked / 1000.0),
                     mean_of(r, &StudyLine::density),
                     is_dense(r) ? "" : fmt::format("{:.2f} +- {:.2f}", psnr.mean, psnr.half_width),
                     number(mean_of(r, &StudyLine::ssim)), number(mean_of(r, &StudyLine::relative_l2)),
                     100 * mean_of(r, passed), 100 * mean_of(r, attributes), number(mean_of(r, &StudyLine::recall)),
                     times(1 / mean_of(r, attention_share)), times(1 / mean_of(r, dit_share)), r.lines.size());
}

std::string pair_line(const Paired& p) {
  return fmt::format("| {} | {} | {:.2f} | {:+.2f} +- {:.2f} | {} | {} | {} |\n", p.row->grid, p.other->preset,
                     p.row->density_asked / 1000.0, p.psnr_gain.mean, p.psnr_gain.half_width,
                     times(p.attention / p.other_attention), times(p.dit / p.other_dit), p.psnr_gain.n);
}

std::string density_warnings(const std::vector<StudyRow>& rows) {
  std::string out;
  for (const StudyRow& r : rows) {
    const double asked = r.density_asked / 1000.0, mean = mean_of(r, &StudyLine::density);
    if (r.density_asked == 0 || std::abs(mean - asked) <= kDensityTolerance) continue;
    out +=
        fmt::format("\nWarning: {} at {} was asked for density {:.2f}, and its mean is {:.3f}: off by more than {}.\n",
                    r.preset, r.grid, asked, mean, kDensityTolerance);
  }
  return out;
}

std::string record_name(const StudyRow& r, const std::string& what) {
  const std::string density = r.density_asked > 0 ? fmt::format("/density{:.2f}", r.density_asked / 1000.0) : "";
  return grid_prefix(r.grid) + what + density;
}

// The name of a dense row says no density.
std::string checker_name(const StudyRow& r) {
  return is_dense(r) ? grid_prefix(r.grid) + r.preset : record_name(r, r.preset);
}

Figure attributes_figure(const StudyRow& r, const StudyRow* dense) {
  return {"attributes",
          "share",
          true,
          estimate_of(r, attributes),
          "dense, same captions and seeds",
          means_of(r, dense, attributes).second};
}

// Of all lines: every value once, in their order.
std::string distinct(const StudyRow& r, std::string Made::*field) {
  std::vector<std::string> values;
  for (const StudyLine& l : r.lines) {
    if (std::ranges::find(values, l.made.*field) == values.end()) values.push_back(l.made.*field);
  }
  return fmt::format("{}", fmt::join(values, "; "));
}

Made made_of(const StudyRow& r) {
  return {distinct(r, &Made::machine), distinct(r, &Made::commit), distinct(r, &Made::date)};
}

void add_checker(Records& records, const StudyRow& r, const StudyRow* dense) {
  records.add(checker_name(r), attributes_figure(r, is_dense(r) ? nullptr : dense), made_of(r));
}

void add_row(Records& records, const StudyRow& r, const StudyRow* dense) {
  const Made made = made_of(r);
  const auto add = [&](const Figure& figure) { records.add(record_name(r, r.preset), figure, made); };
  const std::string same = "dense, same captions and seeds";
  add({"psnr", "dB", true, estimate_of(r, &StudyLine::psnr), same});
  add({"ssim", "1", true, estimate_of(r, &StudyLine::ssim), same});
  add({"relative_l2", "1", false, estimate_of(r, &StudyLine::relative_l2), same});
  add(attributes_figure(r, dense));
  add({"density", "share", false, estimate_of(r, &StudyLine::density), "density asked for",
       r.density_asked > 0 ? r.density_asked / 1000.0 : kUnknown});
  add({"recall", "share", true, estimate_of(r, &StudyLine::recall), "all softmax mass", 1});
  add({"recall_p5", "share", true, estimate_of(r, &StudyLine::recall_low), "all softmax mass", 1});
  const std::string machine = "dense, same captions, seeds and machine";
  add({"attention_time", "share", false, estimate_of(r, attention_share), machine, 1});
  add({"dit_time", "share", false, estimate_of(r, dit_share), machine, 1});
}

void add_pair(Records& records, const Paired& p) {
  const std::string name = record_name(*p.row, "paired/" + p.other->preset);
  const Made made = made_of(*p.row);
  const auto add = [&](const Figure& figure) { records.add(name, figure, made); };
  const auto mean = [&](double value) { return Estimate{value, kUnknown, std::isnan(value) ? 0 : p.psnr_gain.n}; };
  add({"psnr_gain", "dB", true, p.psnr_gain, p.other->preset + ", same captions and seeds"});
  add({"attention_time", "share", false, mean(p.attention), p.other->preset, p.other_attention});
  add({"dit_time", "share", false, mean(p.dit), p.other->preset, p.other_dit});
}

}  // namespace

const StudyRow* baseline_of(const std::vector<StudyRow>& rows, const StudyRow& row) {
  const char* name = is_checker(row) ? "checker/dense" : "dense";
  const auto it = std::ranges::find_if(rows, [&](const StudyRow& r) { return r.grid == row.grid && r.preset == name; });
  return it == rows.end() ? nullptr : &*it;
}

std::vector<LinePair> matched(const StudyRow& a, const StudyRow& b) {
  std::vector<LinePair> pairs;
  for (const StudyLine& mine : a.lines) {
    const auto it = std::ranges::find_if(
        b.lines, [&](const StudyLine& l) { return l.caption == mine.caption && l.seed == mine.seed; });
    if (it != b.lines.end()) pairs.emplace_back(&mine, &*it);
  }
  return pairs;
}

Paired compare(const StudyRow& row, const StudyRow& other) {
  Paired p;
  p.row = &row, p.other = &other;
  std::vector<double> gains;
  for (const auto& [mine, theirs] : matched(row, other)) gains.push_back(mine->psnr - theirs->psnr);
  p.psnr_gain = estimate(gains);
  const Means attention = means_of(row, &other, attention_share), dit = means_of(row, &other, dit_share);
  p.attention = attention.first, p.other_attention = attention.second;
  p.dit = dit.first, p.other_dit = dit.second;
  return p;
}

std::vector<Paired> study_pairs(const std::vector<StudyRow>& rows) {
  std::vector<Paired> pairs;
  for (const StudyRow& row : rows) {
    if (row.preset != "tulle") continue;
    for (const char* rival : kRivals) {
      const auto it = std::ranges::find_if(rows, [&](const StudyRow& r) {
        return r.preset == rival && r.grid == row.grid && r.density_asked == row.density_asked;
      });
      if (it != rows.end() && !matched(row, *it).empty()) pairs.push_back(compare(row, *it));
    }
  }
  return pairs;
}

std::string study_table(const std::vector<StudyRow>& rows) {
  std::string out =
      "| grid | preset | asked | density | PSNR dB | SSIM | relative L2 | checker | attributes | recall | attention | "
      "DiT | n "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const StudyRow& r : rows) out += table_line(r);
  const std::vector<Paired> pairs = study_pairs(rows);
  if (!pairs.empty()) {
    out +=
        "\n| grid | tulle against | density | PSNR gain dB | attention time | DiT time | n "
        "|\n|---|---|---|---|---|---|---|\n";
    for (const Paired& p : pairs) out += pair_line(p);
  }
  return out + density_warnings(rows);
}

std::string study_records(const std::vector<StudyRow>& rows, const std::string& command) {
  Records records(command);
  for (const StudyRow& r : rows) {
    const StudyRow* dense = baseline_of(rows, r);
    if (is_checker(r))
      add_checker(records, r, dense);
    else if (!is_dense(r))
      add_row(records, r, dense);
  }
  for (const Paired& p : study_pairs(rows)) add_pair(records, p);
  return records.text();
}

}  // namespace tulle::cli
