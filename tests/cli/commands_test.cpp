// The commands as a user meets them: outputs, reports, interruption, equality over ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"
#include "tulle/mask.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

const std::string kPrompt =
    "a large red striped circle moving left and a small blue plain square still over grey waves";

class Commands : public CommandTest {
 protected:
  Commands() { SmallModel().write(model()); }
  std::vector<std::string> generate_args(const std::string& out, const std::vector<std::string>& extra) const {
    std::vector<std::string> args = {"generate", "--model", model(), "--prompt", kPrompt, "--out", folder_.path / out};
    args.insert(args.end(), extra.begin(), extra.end());
    return args;
  }
  Json report(const std::string& out) const {
    return parse_json(read_file(folder_.path / out / "report.json"), "report.json").value();
  }
};

TEST_F(Commands, GenerateComparesWithDense) {
  const Outcome o =
      tulle(generate_args("out", {"--grid", "3x10x14", "--steps", "6", "--ranks", "2", "--compare", "dense"}));
  ASSERT_EQ(o.exit, 0) << o.err;
  for (const char* word : {"density", "attention", "total", "PSNR", "SSIM", "Amdahl"}) {
    EXPECT_NE(o.out.find(word), std::string::npos) << word << " in:\n" << o.out;
  }
  const Json r = report("out");
  EXPECT_EQ(r["schema"], 1);
  EXPECT_EQ(r["ranks"], 2);
  EXPECT_EQ(r["grid"], Json({3, 10, 14}));
  EXPECT_EQ(r["density"]["by_step"].size(), 6u);
  EXPECT_EQ(r["density"]["by_layer"].size(), 2u);
  EXPECT_LT(r["density"]["overall"].get<double>(), 1.0);
  EXPECT_EQ(r["density"]["by_step"][0], 1.0);   // warm-up is dense
  EXPECT_EQ(r["density"]["by_layer"][0], 1.0);  // so is layer 0 of the preset
  EXPECT_GT(r["quality"]["psnr"].get<double>(), 5.0);
  EXPECT_GT(r["bytes"]["sent"].get<std::int64_t>(), 0);
  EXPECT_TRUE(fs::exists(folder_.path / "out" / "dense.mp4"));
}

TEST_F(Commands, RanksAndRepetitionGiveTheSameReportedVideo) {
  // The frame sheet is made of the pixels: equal files mean equal videos.
  std::vector<std::string> sheets;
  for (const char* ranks : {"1", "1", "2", "3"}) {
    const std::string out = std::string("out") + ranks;
    const Outcome o =
        tulle(generate_args(out, {"--grid", "3x5x7", "--steps", "4", "--policy", "dense", "--ranks", ranks}));
    ASSERT_EQ(o.exit, 0) << o.err;
    sheets.push_back(read_file(folder_.path / out / "frames.png"));
  }
  EXPECT_EQ(sheets[0], sheets[1]) << "two equal runs differ";
  EXPECT_EQ(sheets[0], sheets[2]);
  EXPECT_EQ(sheets[0], sheets[3]);
}

TEST_F(Commands, JsonIsTheReportAndNothingElse) {
  std::vector<std::string> args = generate_args("out", {"--grid", "2x3x4", "--steps", "2", "--json"});
  const Outcome o = tulle(args);
  ASSERT_EQ(o.exit, 0) << o.err;
  EXPECT_EQ(parse_json(o.out, "stdout").value(), report("out"));
  EXPECT_EQ(o.err, "");
}

TEST_F(Commands, InterruptEndsWith130AndNoFiles) {
  const TulleProcess process(folder_.path, generate_args("out", {"--grid", "9x16x16", "--steps", "1000", "--quiet"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  process.signal(SIGINT);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome o = process.wait();
  EXPECT_EQ(o.exit, 130) << o.err;
  EXPECT_NE(o.err.find("interrupted at step"), std::string::npos) << o.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(fs::is_empty(folder_.path / "out"));
}

TEST_F(Commands, InspectTellsOfEveryKindOfFile) {
  ASSERT_EQ(tulle(generate_args("out", {"--grid", "2x3x4", "--steps", "2"})).exit, 0);
  const Outcome report = tulle({"inspect", folder_.path / "out/report.json"});
  EXPECT_EQ(report.exit, 0) << report.err;
  EXPECT_NE(report.out.find("policy dfsattn"), std::string::npos) << report.out;

  const Outcome folder = tulle({"inspect", model()});
  EXPECT_NE(folder.out.find("2 layers, 3 heads x 16"), std::string::npos) << folder.out << folder.err;

  const Outcome weights = tulle({"inspect", model() / "diffusion_pytorch_model.safetensors", "--json"});
  EXPECT_EQ(parse_json(weights.out, "stdout").value()["tensors"].size(), SmallModel().tensors.size());

  const Outcome preset = tulle({"inspect", "dfsattn"});
  EXPECT_NE(preset.out.find("hilbert"), std::string::npos) << preset.out << preset.err;
}

TEST_F(Commands, InspectDrawsAMask) {
  const BlockPartition blocks{{parse_grid("3x8x8")}, 64};
  BlockMask mask(1, 2, blocks, blocks, OrderKind::kHilbert);
  mask.set(0, 1, 2, 0);
  write_file_atomic(folder_.path / "mask.bin", serialize(mask));
  const fs::path picture = folder_.path / "mask.png";
  const Outcome o = tulle({"inspect", folder_.path / "mask.bin", "--out", picture});
  EXPECT_EQ(o.exit, 0) << o.err;
  EXPECT_NE(o.out.find("2 heads, 3 query blocks of 64"), std::string::npos) << o.out;
  EXPECT_TRUE(fs::exists(picture));
}

TEST_F(Commands, DoctorTellsTheFacts) {
  const Outcome o = tulle({"doctor", "--json"});
  ASSERT_EQ(o.exit, 0) << o.err;
  const Json json = parse_json(o.out, "stdout").value();
  EXPECT_GE(json["findings"].size(), 5u);
  EXPECT_EQ(tulle({"doctor"}).exit, 0);
}

TEST_F(Commands, HelpShowsAnExample) {
  for (const char* command : {"generate", "inspect", "doctor"}) {
    const Outcome o = tulle({command, "--help"});
    EXPECT_EQ(o.exit, 0);
    EXPECT_NE(o.out.find("Example:"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace tulle
