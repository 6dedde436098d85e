// The quality study: knobs that meet densities, lines that survive a stop, estimates, and a whole small study.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/quality.hpp"
#include "cli/study_results.hpp"
#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

StudyLine line(const std::string& preset, std::int32_t asked, double psnr, const std::string& policy = "p") {
  StudyLine l;
  l.key = preset + std::to_string(psnr), l.preset = preset, l.policy = policy, l.grid = "9x16x16", l.caption = "c";
  l.density_asked = asked, l.density = asked / 1000.0, l.psnr = psnr;
  l.attention_s = 2, l.select_s = 0.5, l.dit_s = 4, l.total_s = 5;
  return l;
}

TEST(Study, LinesRoundTrip) {
  StudyLine l = line("tulle", 400, 21.5);
  l.seed = 7, l.count = l.motions = l.trial = true, l.ssim = 0.9, l.relative_l2 = 0.1, l.dense_attention_s = 6;
  const std::string text = to_json_line(l);
  EXPECT_EQ(to_json_line(parse_study_line(text, "test")), text);
  EXPECT_TRUE(std::isnan(parse_study_line(text, "test").recall));
  l.recall = 0.75, l.recall_low = 0.5;
  EXPECT_EQ(parse_study_line(to_json_line(l), "test").recall_low, 0.5);
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

TEST(Study, RowsTakeTheSettingWithTheMostVideosAndEachVideoOnce) {
  StudyLine trial = line("topp", 400, 17, "trial");
  trial.trial = true;
  const std::vector<StudyLine> lines = {trial,
                                        line("topp", 400, 18, "before"),
                                        line("topp", 400, 20, "final"),
                                        line("topp", 400, 22, "final"),
                                        line("topp", 400, 22, "final"),
                                        line("dense", 1000, 99)};
  const std::vector<StudyRow> rows = study_rows(lines);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].preset, "dense");
  EXPECT_EQ(rows[1].lines.size(), 2u);
  EXPECT_EQ(rows[1].lines[0].psnr, 20);
}

TEST(Study, ATrialIsNoRow) {
  StudyLine trial = line("topp", 400, 17, "trial");
  trial.trial = true;
  EXPECT_TRUE(study_rows({trial}).empty());
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
  void make_profile(const char* grid, const char* name) const {
    const std::string one = "a large red striped circle moving left over grey waves\n";
    write_file_atomic(folder_.path / "captions.txt", one + one + one);
    const Outcome made =
        run_tulle(folder_.path, {"calibrate", "--model", folder_.path / "model", "--captions",
                                 folder_.path / "captions.txt", "--count", "2", "--fidelity-count", "1", "--grid", grid,
                                 "--steps", "2", "--bins", "2", "--out", folder_.path / name});
    ASSERT_EQ(made.exit, 0) << made.err;
  }
  static fs::path first_file(const fs::path& folder) { return fs::directory_iterator(folder)->path().filename(); }
  // With what `extra` does not name at its least.
  Outcome study(const std::vector<std::string>& extra) const {
    std::vector<std::string> args = {"bench", "quality"};
    const std::vector<std::pair<std::string, std::string>> least = {{"--model", folder_.path / "model"},
                                                                    {"--captions", folder_.path / "captions.jsonl"},
                                                                    {"--count", "1"},
                                                                    {"--seeds", "1"},
                                                                    {"--grid", "3x10x14"},
                                                                    {"--density", "0.6"},
                                                                    {"--out", folder_.path / "study"}};
    for (const auto& [name, value] : least) {
      if (std::ranges::find(extra, name) == extra.end()) args.insert(args.end(), {name, value});
    }
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

TEST_F(QualityCommand, UsesTheProfileOfItsGrid) {
  make_profile("3x10x14", "p.bin");
  const Outcome o = study({"--preset", "west,tulle", "--profile", folder_.path / "p.bin"});
  ASSERT_EQ(o.exit, 0) << o.err;
  EXPECT_NE(o.out.find("| west |"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("| tulle |"), std::string::npos) << o.out;
  const Outcome other = study({"--preset", "west", "--grid", "3x10x10", "--profile", folder_.path / "p.bin"});
  EXPECT_EQ(other.exit, 2) << other.err;
  EXPECT_NE(other.err.find("3x10x10"), std::string::npos) << other.err;
  const std::string both = (folder_.path / "p.bin").string() + "," + (folder_.path / "p.bin").string();
  const Outcome twice = study({"--preset", "west", "--profile", both});
  EXPECT_EQ(twice.exit, 2) << twice.err;
  EXPECT_NE(twice.err.find("two profiles"), std::string::npos) << twice.err;
  // One in the model's folder need not be named.
  fs::create_directories(folder_.path / "model" / "profiles");
  fs::copy_file(folder_.path / "p.bin", folder_.path / "model" / "profiles" / "3x10x14.bin");
  const Outcome shipped = study({"--preset", "west,tulle"});
  EXPECT_EQ(shipped.exit, 0) << shipped.err;
  EXPECT_EQ(shipped.out, o.out) << "the same profile, so nothing was to be drawn";
}

// The videos of a study as its lines say, without times and in one order.
std::vector<std::string> videos_of(const fs::path& folder) {
  std::vector<std::string> videos;
  for (StudyLine l : read_study_lines(folder.string())) {
    l.attention_s = l.select_s = l.dit_s = l.total_s = l.dense_attention_s = l.dense_dit_s = 0;
    videos.push_back(to_json_line(l));
  }
  std::ranges::sort(videos);
  return videos;
}

TEST_F(QualityCommand, TwoShardsTogetherAreOneRun) {
  const fs::path one = folder_.path / "study", two = folder_.path / "two";
  const std::vector<std::string> what = {"--preset", "dfsattn,topp", "--seeds", "3"};
  const auto run = [&](std::vector<std::string> extra) {
    extra.insert(extra.end(), what.begin(), what.end());
    const Outcome o = study(extra);
    EXPECT_EQ(o.exit, 0) << o.err;
  };
  run({});
  run({"--out", two, "--find-knobs"});
  const std::size_t searched = read_study_lines(two.string()).size();
  run({"--out", two, "--shard", "1/2"});
  run({"--out", two, "--shard", "0/2"});
  EXPECT_EQ(videos_of(one), videos_of(two));
  EXPECT_EQ(read_file(one / "knobs" / first_file(one / "knobs")), read_file(two / "knobs" / first_file(two / "knobs")));
  // Seeds 0 and 2 belong to the first shard, which also made the search; seed 1, of three videos, to the other.
  const std::string theirs = read_file(two / "lines-1.jsonl");
  EXPECT_EQ(std::ranges::count(theirs, '\n'), 3);
  EXPECT_GT(searched, 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(two / "dense"), {}), 6);  // three videos and their times
}

TEST_F(QualityCommand, AShardWithoutTheSearchFindsTheSameKnob) {
  const fs::path one = folder_.path / "study", two = folder_.path / "two";
  ASSERT_EQ(study({"--preset", "topp", "--seeds", "2"}).exit, 0);
  ASSERT_EQ(study({"--preset", "topp", "--seeds", "2", "--out", two, "--shard", "1/2"}).exit, 0);
  EXPECT_EQ(read_file(one / "knobs" / first_file(one / "knobs")), read_file(two / "knobs" / first_file(two / "knobs")));
  write_file_atomic(two / "knobs" / first_file(two / "knobs"), R"({"top_p": 0})");
  EXPECT_EQ(study({"--preset", "topp", "--seeds", "2", "--out", two, "--shard", "0/2"}).exit, 1);
}

TEST_F(QualityCommand, CheckerComparesDenseAndSparse) {
  const Outcome o = study({"--checker", "--preset", "dfsattn", "--json"});
  ASSERT_EQ(o.exit, 0) << o.err;
  const Json records = parse_json(o.out, "records").value();
  ASSERT_EQ(records.size(), 2u) << o.out;
  EXPECT_EQ(records[0]["name"], "3x10x14/checker/dense");
  EXPECT_EQ(records[1]["name"], "3x10x14/checker/dfsattn/density0.60");
  EXPECT_EQ(records[1]["metric"], "attributes");
}

TEST_F(QualityCommand, Ablations) {
  const Outcome list = study({"--ablation", "list"});
  EXPECT_EQ(list.exit, 0);
  for (const char* name :
       {"order", "block", "sub_block", "fresh", "falling", "budget", "warmup", "captions", "scorer"}) {
    EXPECT_NE(list.out.find(std::string(name) + " "), std::string::npos) << name;
  }
  const Outcome unknown = study({"--ablation", "orders"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_NE(unknown.err.find("sub_block"), std::string::npos) << unknown.err;
  const Outcome o = study({"--ablation", "order", "--preset", "dfsattn"});
  ASSERT_EQ(o.exit, 0) << o.err;
  for (const char* row : {"| ablation/order/raster |", "| ablation/order/gilbert |"}) {
    EXPECT_NE(o.out.find(row), std::string::npos) << o.out;
  }
}

TEST_F(QualityCommand, MeasuresRecallOfTheFirstVideo) {
  ASSERT_EQ(study({"--preset", "dfsattn", "--seeds", "2"}).exit, 0);
  for (const StudyLine& l : read_study_lines((folder_.path / "study").string())) {
    if (l.preset == "dense" || l.seed > 0) {
      EXPECT_TRUE(std::isnan(l.recall)) << l.preset << " " << l.seed;
      continue;
    }
    EXPECT_GT(l.recall, 0.3);
    EXPECT_LT(l.recall, 1.0);
    EXPECT_LE(l.recall_low, l.recall);
    EXPECT_LT(l.attention_s + l.select_s, l.dit_s);
    EXPECT_GT(l.dense_dit_s, l.dense_attention_s);
  }
}

TEST_F(QualityCommand, SaysWhatIsMissing) {
  const Outcome profile = study({"--preset", "west"});
  EXPECT_EQ(profile.exit, 2) << profile.err;
  EXPECT_NE(profile.err.find("tulle calibrate"), std::string::npos) << profile.err;
  const Outcome damaged = study({"--preset", "west", "--profile", folder_.path / "captions.jsonl"});
  EXPECT_EQ(damaged.exit, 1) << damaged.err;
  EXPECT_NE(damaged.err.find("captions.jsonl"), std::string::npos) << damaged.err;
  for (const char* shard : {"3/2", "1/1", "0", "/2", "0/", "-1/2", "0/2x", "0/0"}) {
    EXPECT_EQ(study({"--shard", shard}).exit, 2) << shard;
  }
  EXPECT_EQ(study({"--preset", "nothing"}).exit, 2);
  EXPECT_EQ(study({"--checker", "--ablation", "order"}).exit, 2);
  const Outcome captions = study({"--preset", "dfsattn", "--count", "2"});
  EXPECT_EQ(captions.exit, 2) << captions.err;
  EXPECT_NE(captions.err.find("1 captions"), std::string::npos) << captions.err;
}

}  // namespace
}  // namespace tulle::cli
