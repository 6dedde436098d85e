// What the lines of a study say, against numbers worked out by hand.
#include "cli/study_results.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"

namespace tulle::cli {
namespace {

StudyLine line(const std::string& preset, const std::string& caption, std::uint64_t seed, double psnr) {
  StudyLine l;
  l.preset = preset, l.caption = caption, l.seed = seed, l.psnr = psnr;
  l.key = preset + caption + std::to_string(seed);
  l.policy = "p", l.grid = "9x16x16";
  l.density_asked = preset.ends_with("dense") ? 1000 : 400;
  l.density = l.density_asked / 1000.0;
  l.attention_s = 2, l.select_s = 0.5, l.dit_s = 4, l.total_s = 5;
  l.dense_attention_s = 5, l.dense_dit_s = 8;
  l.made = {"a processor", "c0ffee", "2026-01-01"};
  return l;
}

StudyRow row(std::vector<StudyLine> lines) {
  return {lines[0].grid, lines[0].preset, lines[0].density_asked, std::move(lines)};
}

const Json* find(const Json& records, const std::string& name, const std::string& metric) {
  for (const Json& r : records) {
    if (r["name"] == name && r["metric"] == metric) return &r;
  }
  return nullptr;
}

TEST(Results, PairsAreOfOneCaptionAndSeed) {
  const StudyRow mine =
      row({line("tulle", "a", 0, 25), line("tulle", "a", 1, 24), line("tulle", "b", 0, 22), line("tulle", "c", 0, 40)});
  const StudyRow theirs = row({line("dfsattn", "b", 0, 21), line("dfsattn", "a", 1, 20), line("dfsattn", "a", 0, 23),
                               line("dfsattn", "d", 0, 10)});
  const Paired p = compare(mine, theirs);
  // Differences 2, 4, 1: mean 7/3, deviation sqrt((1/9 + 25/9 + 16/9) / 2) = sqrt(7/3), t(2) = 4.303.
  EXPECT_EQ(p.psnr_gain.n, 3u);
  EXPECT_NEAR(p.psnr_gain.mean, 7.0 / 3, 1e-12);
  EXPECT_NEAR(p.psnr_gain.half_width, 4.303 * std::sqrt(7.0 / 3) / std::sqrt(3.0), 1e-9);
}

TEST(Results, PairedTimesAreSharesOfDenseOverTheSharedVideos) {
  StudyLine fast = line("tulle", "a", 0, 25), alone = line("tulle", "z", 0, 25), undated = line("tulle", "b", 0, 25);
  fast.attention_s = 1, fast.select_s = 0.25, fast.dit_s = 3;
  alone.attention_s = 100, undated.dense_attention_s = undated.dense_dit_s = kUnknown;
  StudyLine slow = line("topp", "a", 0, 20);  // on a machine that is half as fast
  slow.attention_s = 4, slow.select_s = 1, slow.dit_s = 8, slow.dense_attention_s = 10, slow.dense_dit_s = 16;
  const Paired p = compare(row({fast, alone, undated}), row({slow, line("topp", "b", 0, 20)}));
  EXPECT_DOUBLE_EQ(p.attention, 0.25);
  EXPECT_DOUBLE_EQ(p.other_attention, 0.5);
  EXPECT_DOUBLE_EQ(p.dit, 0.375);
  EXPECT_DOUBLE_EQ(p.other_dit, 0.5);
  EXPECT_EQ(p.psnr_gain.n, 2u);
  EXPECT_EQ(compare(row({fast}), row({line("topp", "b", 0, 20)})).psnr_gain.n, 0u);
}

TEST(Results, RecordsHaveEveryFigureOfARow) {
  StudyLine sparse = line("tulle", "a", 0, 25);
  sparse.attention_s = 1, sparse.dit_s = 2, sparse.recall = 0.75, sparse.recall_low = 0.5, sparse.count = true;
  StudyLine dense = line("dense", "a", 0, 99);
  dense.count = dense.colours = true;
  const std::vector<StudyRow> rows = {row({dense, line("dense", "b", 0, 99)}), row({sparse}),
                                      row({line("dfsattn", "a", 0, 22)})};
  const Json records = parse_json(study_records(rows, "command"), "records").value();
  const auto value = [&](const char* name, const char* metric) {
    const Json* r = find(records, name, metric);
    return r == nullptr ? kUnknown : (*r)["value"].get<double>();
  };
  EXPECT_EQ(value("tulle/density0.40", "psnr"), 25);
  EXPECT_EQ(value("tulle/density0.40", "recall"), 0.75);
  EXPECT_EQ(value("tulle/density0.40", "recall_p5"), 0.5);
  EXPECT_EQ(find(records, "dfsattn/density0.40", "recall"), nullptr) << "it was not measured";
  EXPECT_EQ(value("paired/dfsattn/density0.40", "psnr_gain"), 3);
  EXPECT_EQ((*find(records, "paired/dfsattn/density0.40", "attention_time"))["ratio"], 1.5 / 2.5);
  EXPECT_EQ((*find(records, "tulle/density0.40", "attributes"))["ratio"], 0.5);
  EXPECT_EQ((*find(records, "tulle/density0.40", "dit_time"))["ratio"], 0.25);
  for (const Json& r : records) EXPECT_EQ(r.size(), 15u) << "results/*.json have 15 keys: " << r.dump();
}

TEST(Results, RecordsSayWhereTheirLinesWereMade) {
  StudyLine first = line("tulle", "a", 0, 25), second = line("tulle", "b", 0, 26), third = line("tulle", "c", 0, 27);
  second.made.machine = "another";
  third.made.date = "2026-01-02";
  const Json records = parse_json(study_records({row({first, second, third})}, "command"), "records").value();
  for (const Json& r : records) {
    EXPECT_EQ(r["machine"], "a processor; another");
    EXPECT_EQ(r["commit"], "c0ffee");
    EXPECT_EQ(r["date"], "2026-01-01; 2026-01-02");
  }
}

TEST(Results, OtherGridsStandInTheNames) {
  StudyLine l = line("tulle", "a", 0, 25);
  l.grid = "13x20x24";
  const Json records = parse_json(study_records({row({l})}, "command"), "records").value();
  EXPECT_NE(find(records, "13x20x24/tulle/density0.40", "psnr"), nullptr) << records.dump();
}

TEST(Results, CheckerRowsAreSetAgainstTheirOwnDense) {
  StudyLine dense = line("checker/dense", "a", 0, 99), sparse = line("checker/tulle", "a", 0, 20);
  dense.count = dense.colours = dense.shapes = dense.motions = true;
  sparse.count = sparse.colours = sparse.shapes = true;
  const std::vector<StudyRow> rows = {row({line("dense", "a", 0, 99)}), row({dense}), row({sparse})};
  const Json records = parse_json(study_records(rows, "command"), "records").value();
  ASSERT_EQ(records.size(), 2u) << records.dump();
  EXPECT_EQ((*find(records, "checker/dense", "attributes"))["value"], 1.0);
  EXPECT_EQ((*find(records, "checker/tulle/density0.40", "attributes"))["ratio"], 0.75);
}

TEST(Results, TableWarnsOfADensityThatIsOff) {
  StudyLine off = line("topp", "a", 0, 20);
  off.density = 0.4101;
  EXPECT_NE(study_table({row({off})}).find("Warning: topp"), std::string::npos);
  off.density = 0.4099;
  EXPECT_EQ(study_table({row({off})}).find("Warning"), std::string::npos);
}

}  // namespace
}  // namespace tulle::cli
