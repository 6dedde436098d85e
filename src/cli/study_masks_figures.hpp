// What an ablation of masks found: figures over heads, the table and the records.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/study_records.hpp"

namespace tulle::cli {

// One figure of every head of every layer, over many comparisons (videos, or pairs of them).
class HeadMeans {
 public:
  explicit HeadMeans(std::size_t heads) : sums_(heads, 0.0) {}

  // One comparison: [heads], each the mean over its calls.
  void add(std::span<const double> by_head);

  // Over comparisons, of the mean over heads; n = 0 and kUnknown where there was none.
  Estimate mean() const;
  // The 5th percentile over heads of their means over comparisons. Its half-width is kUnknown.
  Estimate low() const;

 private:
  std::vector<double> sums_;   // [heads]
  std::vector<double> means_;  // [comparisons]
};

struct MaskRow {
  std::string name;  // of the records, without the grid
  std::vector<Figure> figures;
};

struct MaskFindings {
  std::string grid;
  std::string words;  // what was measured, and what could not be
  std::vector<MaskRow> rows;
};

// Markdown: one line a row, one column a metric.
std::string mask_table(const MaskFindings& findings);
// Records in the form of results/*.json.
std::string mask_records(const MaskFindings& findings, const std::string& command);

}  // namespace tulle::cli
