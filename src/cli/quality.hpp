// The quality study: presets against dense videos of the same seed, at equal density. `tulle bench quality`.
//
//     parts (grid, captions, seeds) x wishes (preset, density) ──► one line of JSON a video ──► table and records
//     study_plan.hpp, study_ablation.cpp                          study.hpp                    study_results.hpp
//
// Every line carries a key made of all that its video depends on, so a study stops and resumes anywhere, and several
// processes may share one folder (--shard).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/made.hpp"
#include "tulle/policy.hpp"

namespace tulle::cli {

constexpr const char* kMainGrid = "9x16x16";  // whose records have no grid in their names
constexpr std::int32_t kStudySteps = 30;
constexpr std::int32_t kStudyDenseSteps = 2;
constexpr double kDensityTolerance = 0.01;  // of a row's mean density

// How a preset reaches a density.
enum class Knob : std::uint8_t {
  kNone,      // the policy is used as it is
  kSchedule,  // schedule.permille, counted beforehand
  kBudget,    // density of a budget from the profile, counted beforehand
  kTopP,      // top_p, found by trial runs: the density follows from the data
};

// The knob that a policy has.
Knob knob_of(const Policy& policy);

struct StudyPreset {
  std::string name;
  Policy policy;  // with the study's steps; the knob is turned by policy_at
  Knob knob = Knob::kNone;
};

// All presets but dense, each with kStudyDenseSteps dense steps of kStudySteps and no dense layer.
std::vector<StudyPreset> study_presets();
// Throws Error(kInvalidArgument) that lists them.
StudyPreset study_preset(const std::string& name);

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// One video of the study, compared with the dense one.
struct StudyLine {
  std::string key, preset, policy, grid, caption;  // policy: hash of its JSON
  std::int32_t density_asked = 0;                  // permille; 0: the policy was used as it is
  std::uint64_t seed = 0;
  bool trial = false;  // of the search for a knob, not of a row
  double density = 0;  // kept pairs over all; a tail's work counts too
  double psnr = 0, ssim = 0, relative_l2 = 0;
  bool count = false, colours = false, shapes = false, motions = false;
  double attention_s = 0, select_s = 0, dit_s = 0, total_s = 0;
  double dense_attention_s = kUnknown, dense_dit_s = kUnknown;  // of the dense video, on the machine that drew this one
  double recall = kUnknown, recall_low = kUnknown;  // kept softmax mass, where it was measured: mean, 5th percentile
  Made made;
};

std::string to_json_line(const StudyLine& line);
// Throws Error(kBadFile) naming `where`.
StudyLine parse_study_line(const std::string& text, const std::string& where);
// All whole lines of a study's folder, file by file in the order of their names; none where there is no such folder.
// Throws Error(kBadFile | kIo).
std::vector<StudyLine> read_study_lines(const std::string& folder);

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
// Grouped, without trials, each video once; of several settings of one preset and density the one with the most lines
// counts. By grid, then falling density.
std::vector<StudyRow> study_rows(const std::vector<StudyLine>& lines);

}  // namespace tulle::cli
