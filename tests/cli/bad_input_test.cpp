// Bad input meets one clear sentence and the right exit code, and leaves no half-written file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cli/run_tulle.hpp"
#include "tests/cli/small_model.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

const std::string kPrompt = "a large red striped circle moving left over grey waves";

class BadInput : public CommandTest {
 protected:
  fs::path out() const { return folder_.path / "out"; }

  Outcome generate(std::vector<std::string> extra = {}, const std::string& prompt = kPrompt) {
    std::vector<std::string> args = {"generate", "--model", model(), "--prompt", prompt, "--steps",
                                     "2",        "--grid",  "2x3x5", "--out",    out()};
    // A later option wins over an earlier one only if it is the sole one: replace it.
    for (std::size_t i = 0; i + 1 < extra.size(); i += 2) {
      const auto it = std::find(args.begin(), args.end(), extra[i]);
      if (it != args.end())
        *(it + 1) = extra[i + 1];
      else
        args.push_back(extra[i]), args.push_back(extra[i + 1]);
    }
    return tulle(args);
  }

  // The run failed with this code, in one line that holds all the words, and wrote nothing.
  void expect_refusal(const Outcome& o, int exit, const std::vector<std::string>& words) const {
    EXPECT_EQ(o.exit, exit) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    for (const std::string& word : words) EXPECT_NE(o.err.find(word), std::string::npos) << word << " in: " << o.err;
    if (!fs::is_directory(out())) return;
    EXPECT_TRUE(fs::is_empty(out())) << "files were left in the output folder";
  }
};

TEST_F(BadInput, TheSmallModelItselfRuns) {
  SmallModel().write(model());
  const Outcome o = generate();
  EXPECT_EQ(o.exit, 0) << o.err;
  for (const char* name : {"video.mp4", "frames.png", "report.json", "report.html"}) {
    EXPECT_TRUE(fs::exists(out() / name)) << name;
  }
}

TEST_F(BadInput, TruncatedWeights) {
  const SmallModel m;
  const std::string whole = m.bytes();
  for (std::size_t keep : {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    const std::string cut = whole.substr(0, keep);
    fs::remove_all(model());
    m.write(model(), &cut);
    expect_refusal(generate(), 1, {"diffusion_pytorch_model.safetensors"});
  }
}

TEST_F(BadInput, HostileHeaderLength) {
  std::string bytes = SmallModel().bytes();
  for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = '\xff';
  SmallModel().write(model(), &bytes);
  expect_refusal(generate(), 1, {"diffusion_pytorch_model.safetensors", "header"});
}

TEST_F(BadInput, MisshapedMissingAndSuperfluousWeights) {
  SmallModel m;
  m.tensors["blocks.1.attn1.to_q.weight"].first = {24, 96};
  m.write(model());
  expect_refusal(generate(), 1, {"blocks.1.attn1.to_q.weight", "[24, 96]"});

  SmallModel missing;
  missing.tensors.erase("blocks.0.norm2.bias");
  fs::remove_all(model());
  missing.write(model());
  expect_refusal(generate(), 1, {"blocks.0.norm2.bias"});

  SmallModel extra;
  extra.tensors["blocks.0.to_gate_compress.weight"] = {{4}, {1, 2, 3, 4}};
  fs::remove_all(model());
  extra.write(model());
  expect_refusal(generate(), 1, {"blocks.0.to_gate_compress.weight"});
}

TEST_F(BadInput, NanAndInfiniteWeights) {
  for (float bad : {std::nanf(""), INFINITY}) {
    SmallModel m;
    m.tensors["blocks.1.ffn.net.2.weight"].second[77] = bad;
    fs::remove_all(model());
    m.write(model());
    expect_refusal(generate(), 1, {"blocks.1.ffn.net.2.weight", "finite"});
  }
}

TEST_F(BadInput, UnknownConfigKeyAndWrongValues) {
  SmallModel m;
  m.config["num_layer"] = 2;
  m.write(model());
  expect_refusal(generate(), 1, {"num_layer", "did you mean \"num_layers\""});
  SmallModel odd;
  odd.config["num_attention_heads"] = -3;
  fs::remove_all(model());
  odd.write(model());
  expect_refusal(generate(), 1, {"num_attention_heads"});
}

TEST_F(BadInput, UnknownPolicy) {
  SmallModel().write(model());
  expect_refusal(generate({"--policy", "dfs"}), 2, {"dfs", "dfsattn"});
  const fs::path file = folder_.path / "mine.json";
  write_file_atomic(file, R"({"name": "mine", "sparse": true, "blok_q": 64})");
  expect_refusal(generate({"--policy", file}), 1, {"blok_q", "block_q"});
}

TEST_F(BadInput, WordsOutsideTheVocabulary) {
  SmallModel().write(model());
  expect_refusal(generate({}, "a large red striped elephant moving left"), 2, {"elephant"});
  expect_refusal(generate({}, "a large red striped cirle moving left"), 2, {"cirle", "circle"});
}

TEST_F(BadInput, Grids) {
  SmallModel().write(model());
  expect_refusal(generate({"--grid", "0x4x4"}), 2, {"0x4x4"});
  expect_refusal(generate({"--grid", "4x4"}), 2, {"4x4"});
  expect_refusal(generate({"--grid", "4x-4x4"}), 2, {"4x-4x4"});
  expect_refusal(generate({"--grid", "999999999x999999999x999999999"}), 2, {"999999999"});
  expect_refusal(generate({"--grid", "256x256x256"}), 1, {"256x256x256", "memory", "free"});
  expect_refusal(generate({"--grid", "1x1x2000"}), 2, {"1x1x2000", "pixels"});
  const Outcome one = generate({"--grid", "1x1x1", "--compare", "dense"});
  EXPECT_EQ(one.exit, 0) << one.err;
  const Json report = parse_json(read_file(out() / "report.json"), "report.json").value();
  EXPECT_TRUE(report["quality"]["ssim"].is_null());  // frames of 8 x 8 pixels have none
}

TEST_F(BadInput, StepsGuidanceRanks) {
  SmallModel().write(model());
  expect_refusal(generate({"--steps", "0"}), 2, {"steps"});
  expect_refusal(generate({"--steps", "-1"}), 2, {"steps"});
  expect_refusal(generate({"--guidance", "0.5"}), 2, {"guidance"});
  expect_refusal(generate({"--shift", "0"}), 2, {"shift"});
  expect_refusal(generate({"--ranks", "0"}), 2, {"ranks"});
  expect_refusal(generate({"--ranks", "4"}), 2, {"heads", "3"});
  expect_refusal(generate({"--sampler", "ddim"}), 2, {"ddim", "euler"});
  expect_refusal(generate({"--device", "cuda"}), 2, {"cuda"});
}

TEST_F(BadInput, OutputFolderThatCannotBeWritten) {
  SmallModel().write(model());
  write_file_atomic(folder_.path / "file", "x");
  expect_refusal(generate({"--out", folder_.path / "file" / "sub"}), 1, {"file/sub"});
  expect_refusal(generate({"--out", "/proc/tulle"}), 1, {"/proc/tulle"});
}

TEST_F(BadInput, NoHalfWrittenFileUnderItsFinalName) {
  SmallModel().write(model());
  fs::create_directories(out() / "report.json" / "in the way");  // a folder where the report should go
  const Outcome o = generate();
  EXPECT_EQ(o.exit, 1);
  EXPECT_NE(o.err.find("report.json"), std::string::npos) << o.err;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(out())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  // Written before the failure, whole; nothing temporary, nothing after it.
  EXPECT_EQ(names, (std::vector<std::string>{"frames.png", "report.json", "video.mp4"}));
}

TEST_F(BadInput, MissingModelAndMissingCommand) {
  expect_refusal(generate(), 2, {"model"});
  EXPECT_EQ(tulle({}).exit, 2);
  EXPECT_EQ(tulle({"generat"}).exit, 2);
  EXPECT_EQ(tulle({"generate", "--prompt"}).exit, 2);
  EXPECT_EQ(tulle({"inspect", folder_.path / "nothing.bin"}).exit, 1);
}

TEST_F(BadInput, PartsOfAModelThatDoNotFit) {
  SmallModel m;
  m.config["text_dim"] = 64;
  for (auto& [name, tensor] : m.tensors) {
    if (name == "condition_embedder.text_embedder.linear_1.weight")
      tensor = {{48, 64}, std::vector<float>(48 * 64, 0.1f)};
  }
  m.write(model());
  expect_refusal(generate(), 1, {"text encoder", "128", "64"});
}

TEST_F(BadInput, UsageErrorsAreOneLineAndJsonToo) {
  const Outcome o = tulle({"generate", "--json"});
  EXPECT_EQ(o.exit, 2);
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_NE(parse_json(o.out, "stdout").value()["error"]["message"].get<std::string>().find("--prompt"),
            std::string::npos);
  EXPECT_EQ(tulle({"inspect", "dfsattn", "--out", out() / "x.png"}).exit, 2);
  expect_refusal(generate({"--threads", "-3"}), 2, {"threads"});
}

TEST_F(BadInput, ErrorsAsJson) {
  SmallModel().write(model());
  std::vector<std::string> args = {"generate", "--model", model(), "--prompt", "elephant", "--out", out(), "--json"};
  const Outcome o = tulle(args);
  EXPECT_EQ(o.exit, 2);
  const Json json = parse_json(o.out, "stdout").value();
  EXPECT_EQ(json["error"]["code"], "invalid argument");
  EXPECT_NE(json["error"]["message"].get<std::string>().find("elephant"), std::string::npos);
}

}  // namespace
}  // namespace tulle
