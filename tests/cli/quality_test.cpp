// The quality study: knobs that meet densities, lines that survive a stop, estimates, and a whole small study.
#include <gtest/gtest.h>

#include "cli/quality.hpp"
#include "select/chooser.hpp"
#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// Density of the whole run that a schedule comes to, counted in whole blocks.
double density_of(const Policy& p, const TokenGrid& grid) {
  const std::int64_t blocks = (grid.tokens() + p.block_k - 1) / p.block_k;
  double sum = 0;
  for (std::int32_t step = 0; step < kStudySteps; ++step) {
    const StepRule rule = rule_for(p, step, kStudySteps, 0);
    sum += rule.dense ? 1.0 : double(kept_count(blocks, rule.permille)) / double(blocks);
  }
  return sum / kStudySteps;
}

TEST(Study, SchedulesMeetTheDensityWithTheDenseStepsCounted) {
  for (const StudyPreset& preset : study_presets()) {
    if (preset.knob != Knob::kSchedule) continue;
    for (const char* grid : {"9x16x16", "13x20x24", "5x14x18"}) {
      for (const double density : {0.55, 0.40, 0.25, 0.15}) {
        const Policy p = policy_at(preset, density, parse_grid(grid), 0);
        const double tolerance = parse_grid(grid).tokens() > 2000 ? 0.01 : 0.012;
        EXPECT_NEAR(density_of(p, parse_grid(grid)), density, tolerance) << preset.name << " " << grid;
      }
    }
  }
}

TEST(Study, EveryPresetHasTheSameDenseStepsAndNoDenseLayer) {
  for (const StudyPreset& preset : study_presets()) {
    const Policy p = policy_at(preset, 0.4, parse_grid("9x16x16"), 800);
    EXPECT_TRUE(p.dense_layers.empty()) << preset.name;
    for (std::int32_t step = 0; step < kStudySteps; ++step) {
      EXPECT_EQ(rule_for(p, step, kStudySteps, 0).dense, step < kStudyDenseSteps) << preset.name << " " << step;
    }
  }
}

TEST(Study, RefusesADensityBelowTheDenseSteps) {
  EXPECT_THROW(policy_at(study_presets()[0], 0.05, parse_grid("9x16x16"), 0), Error);
}

StudyLine line(const std::string& preset, std::int32_t asked, double psnr, const std::string& policy = "p") {
  StudyLine l;
  l.key = preset + std::to_string(psnr), l.preset = preset, l.policy = policy, l.grid = "9x16x16", l.caption = "c";
  l.density_asked = asked, l.density = asked / 1000.0, l.psnr = psnr;
  l.attention_s = 2, l.select_s = 0.5, l.dit_s = 4, l.total_s = 5;
  return l;
}

TEST(Study, LinesRoundTrip) {
  StudyLine l = line("tulle", 400, 21.5);
  l.seed = 7, l.count = l.motions = true, l.ssim = 0.9, l.relative_l2 = 0.1;
  const std::string text = to_json_line(l);
  EXPECT_EQ(to_json_line(parse_study_line(text, "test")), text);
  l.psnr = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(parse_study_line(to_json_line(l), "test").psnr));
  EXPECT_THROW(parse_study_line("{\"key\": \"a\"}", "test"), Error);
  EXPECT_THROW(parse_study_line("{", "test"), Error);
}

TEST(Study, EstimatesAreStudents) {
  const Estimate e = estimate({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(e.mean, 2.5);
  EXPECT_NEAR(e.half_width, 3.182 * 1.2909944 / 2, 1e-4);  // t(3) * s / sqrt(4)
  EXPECT_EQ(estimate({5}).half_width, 0);
}

TEST(Study, RowsTakeTheSettingWithTheMostVideos) {
  const std::vector<StudyLine> lines = {line("topp", 400, 18, "trial"), line("topp", 400, 20, "final"),
                                        line("topp", 400, 22, "final"), line("dense", 1000, 99)};
  const std::vector<StudyRow> rows = study_rows(lines);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].preset, "dense");
  EXPECT_EQ(rows[1].lines.size(), 2u);
  EXPECT_NE(study_table(rows).find("21.00"), std::string::npos) << study_table(rows);
  const Json records = parse_json(study_records(rows, "command"), "records").value();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["name"], "topp/density0.40");
}

class QualityCommand : public testing::Test {
 protected:
  QualityCommand() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    SmallModel().write(folder_.path / "model");
    write_file_atomic(folder_.path / "captions.jsonl",
                      R"({"caption": "a large red striped circle moving left over grey waves", "objects": )"
                      R"([{"colour": "red", "shape": "circle", "motion": "left"}]})"
                      "\n");
  }
  // Where the profile is made from: three captions, one a line.
  void write_plain_captions() const {
    const std::string one = "a large red striped circle moving left over grey waves\n";
    write_file_atomic(folder_.path / "captions.txt", one + one + one);
  }
  Outcome study(std::vector<std::string> extra) const {
    std::vector<std::string> args = {"bench",      "quality",
                                     "--model",    folder_.path / "model",
                                     "--captions", folder_.path / "captions.jsonl",
                                     "--count",    "1",
                                     "--seeds",    "1",
                                     "--grid",     "3x10x14",
                                     "--density",  "0.6",
                                     "--out",      folder_.path / "study"};
    args.insert(args.end(), extra.begin(), extra.end());
    return run_tulle(folder_.path, args);
  }
  TestFolder folder_;
};

TEST_F(QualityCommand, RunsStopsAndGoesOn) {
  const Outcome first = study({"--preset", "dfsattn"});
  ASSERT_EQ(first.exit, 0) << first.err;
  EXPECT_NE(first.out.find("dfsattn"), std::string::npos) << first.out;
  const fs::path lines = folder_.path / "study" / "lines-0.jsonl";
  const std::string before = read_file(lines);
  // A line cut short by a stop is drawn again; whole ones are not.
  write_file_atomic(lines, before + before.substr(0, 20));
  const Outcome second = study({"--preset", "dfsattn,window"});
  ASSERT_EQ(second.exit, 0) << second.err;
  EXPECT_NE(second.out.find("window"), std::string::npos) << second.out;
  const std::string after = read_file(lines);
  EXPECT_EQ(after.substr(0, before.size()), before);
  const Outcome third = study({"--table"});
  EXPECT_EQ(third.out, second.out);
}

TEST_F(QualityCommand, UsesTheProfileOfItsModel) {
  write_plain_captions();
  const fs::path profile = folder_.path / "p.bin";
  const Outcome made = run_tulle(folder_.path, {"calibrate", "--model", folder_.path / "model", "--captions",
                                                folder_.path / "captions.txt", "--count", "2", "--fidelity-count", "1",
                                                "--grid", "3x10x14", "--steps", "2", "--bins", "2", "--out", profile});
  ASSERT_EQ(made.exit, 0) << made.err;
  const Outcome o = study({"--preset", "tulle", "--profile", profile});
  ASSERT_EQ(o.exit, 0) << o.err;
  EXPECT_NE(o.out.find("| tulle |"), std::string::npos) << o.out;
}

TEST_F(QualityCommand, SaysWhatIsMissing) {
  const Outcome profile = study({"--preset", "tulle"});
  EXPECT_EQ(profile.exit, 2) << profile.err;
  EXPECT_NE(profile.err.find("tulle calibrate"), std::string::npos) << profile.err;
  const Outcome damaged = study({"--preset", "tulle", "--profile", folder_.path / "captions.jsonl"});
  EXPECT_EQ(damaged.exit, 1) << damaged.err;
  EXPECT_NE(damaged.err.find("captions.jsonl"), std::string::npos) << damaged.err;
  const Outcome shard = study({"--shard", "3/2"});
  EXPECT_EQ(shard.exit, 2) << shard.err;
}

}  // namespace
}  // namespace tulle::cli
