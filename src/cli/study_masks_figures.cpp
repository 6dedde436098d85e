#include "cli/study_masks_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/study_recall.hpp"

namespace tulle::cli {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// All metrics, in the order in which rows name them first.
std::vector<std::string> metrics_of(const MaskFindings& findings) {
  std::vector<std::string> metrics;
  for (const MaskRow& row : findings.rows) {
    for (const Figure& f : row.figures) {
      if (std::ranges::find(metrics, f.metric) == metrics.end()) metrics.emplace_back(f.metric);
    }
  }
  return metrics;
}

std::string cell(const MaskRow& row, const std::string& metric) {
  const auto it = std::ranges::find(row.figures, metric, &Figure::metric);
  if (it == row.figures.end() || it->value.n == 0) return "";
  const Estimate& e = it->value;
  const bool interval = e.n > 1 && !std::isnan(e.half_width);
  return interval ? fmt::format("{:.3f} +- {:.3f}", e.mean, e.half_width) : fmt::format("{:.3f}", e.mean);
}

}  // namespace

void HeadMeans::add(std::span<const double> by_head) {
  std::ranges::transform(sums_, by_head, sums_.begin(), std::plus{});
  means_.push_back(mean_of(by_head));
}

Estimate HeadMeans::mean() const { return means_.empty() ? Estimate{kUnknown, kUnknown, 0} : estimate(means_); }

Estimate HeadMeans::low() const {
  if (means_.empty()) return {kUnknown, kUnknown, 0};
  std::vector<double> heads = sums_;
  for (double& h : heads) h /= static_cast<double>(means_.size());
  return {fifth_percentile(std::move(heads)), kUnknown, means_.size()};
}

std::string mask_table(const MaskFindings& findings) {
  const std::vector<std::string> metrics = metrics_of(findings);
  std::string out = findings.words + fmt::format("\n| masks | {} | n |\n|---|", fmt::join(metrics, " | "));
  for (std::size_t i = 0; i <= metrics.size(); ++i) out += "---|";
  for (const MaskRow& row : findings.rows) {
    out += fmt::format("\n| {} |", row.name);
    for (const std::string& metric : metrics) out += fmt::format(" {} |", cell(row, metric));
    out += fmt::format(" {} |", row.figures.front().value.n);
  }
  return out + "\n";
}

std::string mask_records(const MaskFindings& findings, const std::string& command) {
  Records records(command);
  const Made made = made_here();
  for (const MaskRow& row : findings.rows) {
    for (const Figure& f : row.figures) records.add(grid_prefix(findings.grid) + row.name, f, made);
  }
  return records.text();
}

}  // namespace tulle::cli
