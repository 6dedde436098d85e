// Ablations of masks: figures over heads, and whole small runs of overlap and remap.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <thread>

#include "cli/study_masks_figures.hpp"
#include "cli/study_recall.hpp"
#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

TEST(HeadMeans, AreOverComparisonsAndOverHeads) {
  HeadMeans m(2);
  EXPECT_EQ(m.mean().n, 0u);
  EXPECT_TRUE(std::isnan(m.low().mean));
  m.add(std::vector<double>{0.2, 0.6});
  m.add(std::vector<double>{0.4, 1.0});
  EXPECT_NEAR(m.mean().mean, 0.55, 1e-12);
  EXPECT_EQ(m.mean().n, 2u);
  EXPECT_NEAR(m.mean().half_width, 12.706 * 0.15, 1e-3);  // t(1) * s / sqrt(2), means 0.4 and 0.7
  EXPECT_NEAR(m.low().mean, 0.3, 1e-12) << "head 0, over both comparisons";
}

TEST(HeadMeans, FifthPercentileIsTheNearestRank) {
  std::vector<double> values;
  for (int i = 40; i > 0; --i) values.push_back(i);
  EXPECT_EQ(fifth_percentile(values), 2);
  EXPECT_EQ(fifth_percentile({7}), 7);
  EXPECT_EQ(sampled_steps(30), (std::vector<std::int32_t>{4, 10, 16, 22, 28}));
  EXPECT_TRUE(sampled_steps(4).empty());
}

TEST(MaskFindings, MakeOneColumnAMetric) {
  MaskFindings f{"5x8x8", "words\n", {}};
  f.rows = {{"a/x", {{"iou", "share", true, {0.5, 0.1, 3}, "chance", 0.25}}},
            {"a/y", {{"recall", "share", true, {0.75, kUnknown, 2}, "all", 1}}},
            {"a/z", {{"iou", "share", true, {kUnknown, kUnknown, 0}, "chance", 0.25}}}};
  EXPECT_EQ(mask_table(f),
            "words\n\n| masks | iou | recall | n |\n|---|---|---|---|\n| a/x | 0.500 +- 0.100 |  | 3 |\n"
            "| a/y |  | 0.750 | 2 |\n| a/z |  |  | 0 |\n");
  const Json records = parse_json(mask_records(f, "tulle bench quality"), "records").value();
  ASSERT_EQ(records.size(), 2u) << "nothing is said of no comparison";
  EXPECT_EQ(records[0]["name"], "5x8x8/a/x");
  EXPECT_EQ(records[0]["ratio"], 2.0);
  EXPECT_EQ(records[1]["spread"], nullptr);
  EXPECT_EQ(records[1]["command"], "tulle bench quality");
  f.grid = "9x16x16";
  EXPECT_EQ(parse_json(mask_records(f, ""), "records").value()[0]["name"], "a/x");
}

class MaskAblations : public CommandTest {
 protected:
  MaskAblations() {
    SmallModel().write(model());
    write_file_atomic(folder_.path / "captions.jsonl",
                      "{\"caption\": \"a large red striped circle moving left over grey waves\"}\n"
                      "{\"caption\": \"a small blue plain cross moving right over grey waves\"}\n");
  }
  void calibrate(const char* grid, const char* name, const char* skip = "100") const {
    const Outcome made =
        tulle({"calibrate", "--model", model(), "--captions", kHeldOut, "--count", "2", "--skip", skip,
               "--fidelity-count", "1", "--grid", grid, "--steps", "2", "--bins", "2", "--out", folder_.path / name});
    ASSERT_EQ(made.exit, 0) << made.err;
  }
  // With what `extra` does not name at its least.
  std::vector<std::string> args(const char* ablation, const std::vector<std::string>& extra) const {
    std::vector<std::string> all = {"bench", "quality", "--ablation", ablation, "--model", model()};
    const std::vector<std::pair<std::string, std::string>> least = {
        {"--captions", path("captions.jsonl")}, {"--count", "2"}, {"--grid", "3x10x14"}};
    for (const auto& [name, value] : least) {
      if (std::ranges::find(extra, name) == extra.end()) all.insert(all.end(), {name, value});
    }
    all.insert(all.end(), extra.begin(), extra.end());
    return all;
  }
  std::string path(const char* name) const { return folder_.path / name; }
  void refused(const char* ablation, const std::vector<std::string>& extra, const char* word) const {
    const Outcome o = tulle(args(ablation, extra));
    EXPECT_EQ(o.exit, 2) << word << ": " << o.err;
    EXPECT_NE(o.err.find(word), std::string::npos) << o.err;
  }

  static constexpr const char* kHeldOut = TULLE_SOURCE_DIR "/models/tiny/heldout.jsonl";
};

// Records by name and metric.
std::map<std::string, Json> by_name(const std::string& text) {
  std::map<std::string, Json> out;
  const Json records = parse_json(text, "records").value();
  for (const Json& r : records) {
    out[r["name"].get<std::string>() + " " + r["metric"].get<std::string>()] = r;
  }
  return out;
}

TEST_F(MaskAblations, OverlapComparesRunsStepsAndProfiles) {
  calibrate("3x10x14", "a.bin");
  calibrate("3x10x14", "b.bin", "110");
  const Outcome o = tulle(args("overlap", {"--seeds", "2", "--json", "--profile", path("a.bin") + "," + path("b.bin"),
                                           "--record", path("records.json")}));
  ASSERT_EQ(o.exit, 0) << o.err;
  EXPECT_EQ(read_file(path("records.json")), o.out);
  auto records = by_name(o.out);
  const std::map<std::string, std::size_t> n = {{"captions", 2},   {"seeds", 2},    {"guidance", 2},
                                                {"early_late", 4}, {"profiles", 1}, {"neighbouring_steps", 4},
                                                {"fast_tables", 2}};
  for (const auto& [name, count] : n) {
    const std::string full = "3x10x14/overlap/" + name;
    const Json iou = records.at(full + " iou");
    EXPECT_EQ(iou["n"], count) << name;
    EXPECT_NEAR(iou["baseline_value"].get<double>(), 1.0 / 6, 1e-9) << "two of seven blocks";
    EXPECT_GT(iou["value"].get<double>(), 1.0 / 6) << name;
    EXPECT_LE(iou["value"].get<double>(), 1.0) << name;
    EXPECT_LE(records.at(full + " iou_p5")["value"], iou["value"]) << name;
    if (!records.contains(full + " relative_recall")) continue;
    EXPECT_LE(records.at(full + " relative_recall")["value"].get<double>(), 1 + 1e-6)
        << "no mask beats the best blocks";
    EXPECT_GT(records.at(full + " relative_recall")["value"].get<double>(), 0.5) << name;
  }
  const double kept = records.at("3x10x14/overlap/best recall")["value"];
  EXPECT_GT(kept, 2.0 / 7) << "the best blocks hold more than any";
  EXPECT_LT(kept, 1.0);
}

TEST_F(MaskAblations, OverlapSaysWhatItLeavesOutAndDoesNotDependOnThreads) {
  const Outcome one = tulle(args("overlap", {"--seeds", "1", "--threads", "1"}));
  ASSERT_EQ(one.exit, 0) << one.err;
  EXPECT_NE(one.out.find("FAST's tables were not compared"), std::string::npos) << one.out;
  EXPECT_NE(one.out.find("| overlap/seeds |  |"), std::string::npos) << "one seed has no other: " << one.out;
  EXPECT_EQ(one.out.find("overlap/fast_tables"), std::string::npos) << one.out;
  EXPECT_EQ(tulle(args("overlap", {"--seeds", "1", "--threads", "2"})).out, one.out);
}

TEST_F(MaskAblations, RemapComparesWithTheGridsOwnProfile) {
  calibrate("3x10x14", "own.bin");
  calibrate("2x8x12", "other.bin");
  const Outcome o = tulle(args("remap", {"--json", "--profile", path("other.bin") + "," + path("own.bin")}));
  ASSERT_EQ(o.exit, 0) << o.err;
  auto records = by_name(o.out);
  EXPECT_NEAR(records.at("3x10x14/remap/best density")["value"].get<double>(), 2.0 / 7, 0.02);
  for (const char* rule : {"own", "2x8x12", "window", "best"}) {
    const std::string full = std::string("3x10x14/remap/") + rule;
    const Json recall = records.at(full + " recall");
    EXPECT_EQ(recall["n"], 2) << rule;
    EXPECT_NEAR(recall["ratio"].get<double>(), records.at(full + " relative_recall")["value"].get<double>(), 0.1)
        << rule;
    EXPECT_GT(recall["value"].get<double>(), 0.1) << rule;
    EXPECT_LT(recall["value"].get<double>(), 1.0) << rule;
    EXPECT_LE(records.at(full + " recall_p5")["value"], recall["value"]) << rule;
    EXPECT_GT(records.at(full + " density")["value"].get<double>(), 0.1) << rule;
  }
  EXPECT_GT(records.at("3x10x14/remap/best recall")["value"], records.at("3x10x14/remap/window recall")["value"]);
  EXPECT_EQ(records.at("3x10x14/remap/own recall")["ratio"].get<double>(), 1.0) << "its own mask at its own density";
  EXPECT_GT(records.at("3x10x14/remap/best relative_recall")["value"].get<double>(), 1.0);
  EXPECT_NEAR(records.at("3x10x14/remap/own relative_recall")["value"].get<double>(), 1.0, 1e-12);
}

TEST_F(MaskAblations, SayWhatIsMissing) {
  calibrate("3x10x14", "own.bin");
  calibrate("2x8x12", "other.bin");
  const std::string own = path("own.bin"), other = path("other.bin");
  refused("remap", {}, "tulle calibrate --grid 3x10x14");
  refused("remap", {"--profile", other}, "tulle calibrate --grid 3x10x14");
  refused("remap", {"--profile", own}, "another grid than 3x10x14");
  refused("remap", {"--profile", own + "," + other + "," + other}, "two profiles are of grid 2x8x12");
  refused("overlap", {"--count", "3"}, "lower --count");
  refused("overlap", {"--density", "0.2,0.4"}, "one density");
  refused("overlap", {"--density", "1.5"}, "--density 1.5");
  refused("overlap", {"--grid", "3x10x14,3x4x4"}, "one grid");
  refused("overlap", {"--quick"}, "leave out --quick");
  refused("overlap", {"--shard", "0/2"}, "leave out --quick");
  refused("overlap", {"--preset", "topp"}, "leave out --quick");
  refused("overlap", {"--checker"}, "--checker");
  refused("overlaps", {}, "overlap, remap");
}

TEST_F(MaskAblations, StopAtAnInterrupt) {
  const TulleProcess process(folder_.path, args("overlap", {"--grid", "13x20x24"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  process.signal(SIGINT);
  const Outcome o = process.wait();
  EXPECT_EQ(o.exit, 130) << o.err;
  EXPECT_NE(o.err.find("interrupted at step"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace tulle::cli
