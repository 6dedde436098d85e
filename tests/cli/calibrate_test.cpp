// tulle calibrate as a user meets it: what it writes, how it goes on after an interruption, what it refuses.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "dit/model_hash.hpp"
#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"
#include "tulle/profile.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

class CalibrateCommand : public CommandTest {
 protected:
  CalibrateCommand() { SmallModel().write(model()); }
  std::vector<std::string> args(const std::string& out, const std::vector<std::string>& extra = {}) const {
    std::vector<std::string> all = {"calibrate", "--model", model(), "--captions", captions(), "--grid",
                                    "3x8x10",    "--block", "16",    "--count",    "3",        "--steps",
                                    "4",         "--bins",  "2",     "--out",      file(out)};
    for (std::size_t i = 0; i < extra.size(); i += 2) {
      const auto at = std::find(all.begin(), all.end(), extra[i]);
      if (at == all.end())
        all.insert(all.end(), extra.begin() + static_cast<std::ptrdiff_t>(i),
                   extra.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, extra.size())));
      else
        *(at + 1) = extra[i + 1];
    }
    return all;
  }
  static std::string captions() { return TULLE_SOURCE_DIR "/models/tiny/heldout.jsonl"; }
  fs::path file(const std::string& name) const { return folder_.path / name; }
  Profile profile(const std::string& name) const {
    const std::string bytes = read_file(file(name));
    return parse_profile(std::as_bytes(std::span(bytes)), name).value();
  }
};

// They are found by their names alone, so names, grids and weights must belong together.
TEST(ShippedProfiles, AreOfTheModelAndOfTheGridsTheyAreNamedAfter) {
  const fs::path tiny = TULLE_SOURCE_DIR "/models/tiny";
  const std::string hash = model_hash(tiny);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(tiny / "profiles")) {
    const std::string where = entry.path().string(), bytes = read_file(entry.path());
    const Profile p = parse_profile(std::as_bytes(std::span(bytes)), where).value();
    require_model(p, hash, where);
    EXPECT_EQ(to_string(p.q().sequence.grid), entry.path().stem().string());
    ++count;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(CalibrateCommand, WritesAProfileAndSaysWhatItLearned) {
  const Outcome o = tulle(args("p.bin"));
  ASSERT_EQ(o.exit, 0) << o.err;
  for (const char* word : {"Heads:", "Layers:", "Steps:", "Captions:", "5 captions in", "written:"}) {
    EXPECT_NE(o.out.find(word), std::string::npos) << word << " in:\n" << o.out;
  }
  const Profile p = profile("p.bin");
  EXPECT_EQ(p.ranks.size(), 2u);
  EXPECT_EQ(p.ranks[0].heads(), 3);
  EXPECT_EQ(p.q().block, 16);
  EXPECT_EQ(p.q().sequence.grid, parse_grid("3x8x10"));
  EXPECT_EQ(p.order(), OrderKind::kHilbert);
  EXPECT_EQ(p.steps, 4);
  EXPECT_EQ(p.curves.bins, 2);
  EXPECT_EQ(p.captions.size(), 3u);
  EXPECT_EQ(p.captions[0].rfind("a large yellow plain cross", 0), 0u) << p.captions[0];
  EXPECT_FALSE(fs::exists(file("p.bin.partial")));
}

TEST_F(CalibrateCommand, OneCaptionIsEnough) {
  const Outcome o = tulle(args("p.bin", {"--count", "1"}));
  ASSERT_EQ(o.exit, 0) << o.err;
  EXPECT_NE(o.out.find("one caption's best 25 %"), std::string::npos) << o.out;
  EXPECT_EQ(profile("p.bin").captions.size(), 1u);
}

TEST_F(CalibrateCommand, ThreadsAndRepetitionGiveTheSameBytes) {
  ASSERT_EQ(tulle(args("one.bin", {"--threads", "1"})).exit, 0);
  ASSERT_EQ(tulle(args("three.bin", {"--threads", "3"})).exit, 0);
  EXPECT_EQ(read_file(file("one.bin")), read_file(file("three.bin")));
}

TEST_F(CalibrateCommand, JsonHasTheFindings) {
  const Outcome o = tulle(args("p.bin", {"--json"}));
  ASSERT_EQ(o.exit, 0) << o.err;
  const Json json = parse_json(o.out, "stdout").value();
  EXPECT_EQ(json["captions"], 3);
  EXPECT_EQ(json["needed_by_head"].size(), 6u);
  EXPECT_EQ(json["needed_by_part"].size(), 2u);
  EXPECT_EQ(json["union_density"].size(), 3u);
  EXPECT_EQ(json["model_hash"], profile("p.bin").model_hash);
  EXPECT_EQ(o.err, "");
}

TEST_F(CalibrateCommand, InterruptedItGoesOnAndEqualsAFreshRun) {
  const std::vector<std::string> more = {"--count", "30", "--steps", "10", "--bins", "5"};
  const TulleProcess process(folder_.path, args("cut.bin", more));
  const auto begin = std::chrono::steady_clock::now();
  while (!fs::exists(file("cut.bin.partial")) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  process.signal(SIGINT);
  const Outcome cut = process.wait();
  ASSERT_EQ(cut.exit, 130) << cut.out << cut.err;
  EXPECT_NE(cut.err.find("the same command goes on from there"), std::string::npos) << cut.err;
  EXPECT_FALSE(fs::exists(file("cut.bin")));

  const Outcome rest = tulle(args("cut.bin", more));
  ASSERT_EQ(rest.exit, 0) << rest.err;
  EXPECT_NE(rest.err.find("going on from"), std::string::npos) << rest.err;
  ASSERT_EQ(tulle(args("fresh.bin", more)).exit, 0);
  EXPECT_EQ(read_file(file("cut.bin")), read_file(file("fresh.bin")));
  EXPECT_FALSE(fs::exists(file("cut.bin.partial")));
}

TEST_F(CalibrateCommand, AnotherCalibrationsStateIsRefused) {
  const TulleProcess process(folder_.path, args("p.bin", {"--count", "60"}));
  while (!fs::exists(file("p.bin.partial"))) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  process.signal(SIGINT);
  ASSERT_EQ(process.wait().exit, 130);

  const Outcome other = tulle(args("p.bin", {"--count", "60", "--seed", "5"}));
  EXPECT_EQ(other.exit, 2);
  EXPECT_NE(other.err.find("seed is 5 here and 0 there"), std::string::npos) << other.err;
  EXPECT_TRUE(fs::exists(file("p.bin.partial"))) << "a refused state stays";

  std::string bytes = read_file(file("p.bin.partial"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file_atomic(file("p.bin.partial"), bytes);
  const Outcome damaged = tulle(args("p.bin", {"--count", "60"}));
  EXPECT_EQ(damaged.exit, 1);
  EXPECT_NE(damaged.err.find("checksum"), std::string::npos) << damaged.err;
}

TEST_F(CalibrateCommand, RefusesWhatItCannotUse) {
  const auto refused = [&](const std::vector<std::string>& extra, int exit, const std::string& word) {
    const Outcome o = tulle(args("p.bin", extra));
    EXPECT_EQ(o.exit, exit) << word << ": " << o.err;
    EXPECT_NE(o.err.find(word), std::string::npos) << o.err;
    EXPECT_FALSE(fs::exists(file("p.bin")));
  };
  write_file_atomic(file("few.txt"), "a large red striped circle moving left over grey waves\n\n");
  write_file_atomic(file("odd.txt"),
                    "a large red striped circle moving left over grey waves\r\nan elephant\nx\ny\nz\n");
  write_file_atomic(file("bad.jsonl"), "{\"caption\": 3}\n");
  refused({"--captions", file("few.txt")}, 2, "1 captions behind the first 0");
  refused({"--captions", file("odd.txt")}, 2, "elephant");
  refused({"--captions", file("bad.jsonl")}, 1, "bad.jsonl:1");
  refused({"--captions", file("none.txt")}, 1, "none.txt");
  refused({"--count", "599"}, 2, "are needed");
  refused({"--count", "0"}, 2, "--count 0");
  refused({"--bins", "5"}, 2, "--bins 5");
  refused({"--order", "spiral"}, 2, "spiral");
  refused({"--block", "0"}, 2, "block");
  refused({"--grid", "3x8"}, 2, "3x8");
  refused({"--out", folder_.path}, 2, "folder");
}

}  // namespace
}  // namespace tulle
