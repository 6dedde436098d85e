// The quality study: presets against dense videos of the same seed, at equal density. `tulle bench quality`.
//
//     rows (preset x density x grid) x captions x seeds ──► one line of JSON a video ──► table and records
//
// Every line carries a key made of all that its video depends on, so a study stops and resumes anywhere, and several
// processes may share one folder (--shard).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/video_run.hpp"
#include "select/selector.hpp"

namespace tulle::cli {

constexpr std::int32_t kStudySteps = 30;
constexpr std::int32_t kStudyDenseSteps = 2;

// How a preset reaches a density.
enum class Knob : std::uint8_t {
  kNone,      // the policy is used as it is
  kSchedule,  // schedule.permille, counted beforehand
  kBudget,    // density of a budget from the profile, counted beforehand
  kTopP,      // top_p, found by trial runs: the density follows from the data
};

struct StudyPreset {
  std::string name;
  Policy policy;  // with the study's steps; the knob is turned by policy_at
  Knob knob = Knob::kNone;
};

// dfsattn, west, west+fast, topp, sparge, window, radial, tulle, each with kStudyDenseSteps dense steps of kStudySteps
// and no dense layer.
std::vector<StudyPreset> study_presets();

// The preset with its knob turned so that the whole run (dense steps included) has density `density` on `grid`; for
// kTopP the knob is `top_p`. Throws Error(kInvalidArgument) when the density lies below that of the dense steps alone.
Policy policy_at(const StudyPreset& preset, double density, const TokenGrid& grid, std::int32_t top_p);

// One video of the study, compared with the dense one.
struct StudyLine {
  std::string key, preset, policy, grid, caption;  // policy: hash of its JSON
  std::int32_t density_asked = 0;                  // permille
  std::uint64_t seed = 0;
  double density = 0, psnr = 0, ssim = 0, relative_l2 = 0;
  bool count = false, colours = false, shapes = false, motions = false;
  double attention_s = 0, select_s = 0, dit_s = 0, total_s = 0;
};

std::string to_json_line(const StudyLine& line);
// Throws Error(kBadFile) naming `where`.
StudyLine parse_study_line(const std::string& text, const std::string& where);

// Mean and the half-width of its 95 % confidence interval (Student's t).
struct Estimate {
  double mean = 0, half_width = 0;
  std::size_t n = 0;
};
Estimate estimate(const std::vector<double>& values);

// Lines of one (grid, preset, density), and what they say.
struct StudyRow {
  std::string grid, preset;
  std::int32_t density_asked = 0;
  std::vector<StudyLine> lines;
};
// Grouped; of several settings of one preset and density (trials of a knob) the one with the most lines counts. By
// grid, then falling density.
std::vector<StudyRow> study_rows(const std::vector<StudyLine>& lines);
// Markdown: one line a row, with density, PSNR, SSIM, relative L2, checker, times against dense.
std::string study_table(const std::vector<StudyRow>& rows);
// Records in the form of results/*.json; each row is set against the dense lines of its grid.
std::string study_records(const std::vector<StudyRow>& rows, const std::string& command);

}  // namespace tulle::cli
