// What the lines of a quality study say: tables, paired comparisons, records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/quality.hpp"

namespace tulle::cli {

// Rows "checker/..." are set against the dense row of that name, all others against "dense"; null where the row's grid
// has none.
const StudyRow* baseline_of(const std::vector<StudyRow>& rows, const StudyRow& row);

// Two lines of the same caption and seed.
using LinePair = std::pair<const StudyLine*, const StudyLine*>;
// For every line of `a` the one of `b`, where there is one. The pointers are into the rows.
std::vector<LinePair> matched(const StudyRow& a, const StudyRow& b);

// `row` against `other`, over the videos that both have.
struct Paired {
  const StudyRow* row = nullptr;
  const StudyRow* other = nullptr;
  Estimate psnr_gain;  // dB, mean of the differences
  // Mean times of row, as shares of the dense video's on the same machine; attention with selection. Over the videos
  // whose dense times are known of both; not a number where there is none.
  double attention = kUnknown, dit = kUnknown;
  double other_attention = kUnknown, other_dit = kUnknown;
};
// n is 0 where they share no video.
Paired compare(const StudyRow& row, const StudyRow& other);
// tulle against dfsattn, west+fast and topp, wherever both stand at one grid and density.
std::vector<Paired> study_pairs(const std::vector<StudyRow>& rows);

// Markdown: one line a row, the paired comparisons below, and a sentence for each row whose mean density is off by more
// than kDensityTolerance.
std::string study_table(const std::vector<StudyRow>& rows);
// Records in the form of results/*.json.
std::string study_records(const std::vector<StudyRow>& rows, const std::string& command);

}  // namespace tulle::cli
