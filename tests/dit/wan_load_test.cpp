// Weights and configurations that must be refused, each with a sentence that names what is wrong.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/file.hpp"
#include "base/half.hpp"
#include "base/json.hpp"
#include "dit/fixtures.hpp"
#include "dit/temporary.hpp"
#include "dit/wan_names.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModel = "wan_narrow_diffusers";
constexpr const char* kFile = "diffusion_pytorch_model.safetensors";

struct Stored {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

std::vector<Stored> tensors_of(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  std::vector<Stored> all;
  for (const SafetensorsTensor& t : file.header().tensors) {
    Stored s{t.name, t.type->name, t.shape, std::string(t.bytes(), '\0')};
    file.read(t, std::as_writable_bytes(std::span(s.bytes)));
    all.push_back(std::move(s));
  }
  return all;
}

class WanLoad : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fixture(kModel) / "config.json", folder.path);
    tensors = tensors_of(fixture(kModel) / kFile);
    config = parse_json(read_file(folder.path / "config.json"), "config").value();
  }

  Stored& tensor(const std::string& name) {
    for (Stored& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no " + name);
  }

  // The refusal of what stands in the folder, "" if it loads.
  std::string refusal() {
    write_file_atomic(folder.path / "config.json", config.dump());
    std::vector<SafetensorsEntry> entries;
    for (const Stored& t : tensors) entries.push_back({t.name, t.type, t.shape, std::as_bytes(std::span(t.bytes))});
    write_file_atomic(folder.path / kFile, serialize_safetensors(entries));
    return load();
  }
  std::string load() {
    try {
      WanModel::load(folder.path, Precision::kF32);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  void expect(const std::string& says) {
    const std::string what = refusal();
    EXPECT_NE(what.find(says), std::string::npos) << "got: " << what;
  }

  TemporaryFolder folder;
  std::vector<Stored> tensors;
  Json config;
};

TEST_F(WanLoad, CountsItsBytes) {
  ASSERT_EQ(refusal(), "");
  const WanModel model = WanModel::load(folder.path, Precision::kF32);
  std::int64_t values = 0;
  for (const Stored& t : tensors) values += static_cast<std::int64_t>(t.bytes.size()) / 2;
  EXPECT_GE(model.weight_bytes(), values * 4);  // packing may pad
  EXPECT_LE(model.weight_bytes(), values * 4 * 3 / 2);
  EXPECT_EQ(model.config().hidden(), 48);
  EXPECT_FALSE(model.gemm_route().route.empty());
  EXPECT_TRUE(model.gemm_route().why.empty());
}

TEST_F(WanLoad, RefusesTensorsThatAreMissingSuperfluousOrMisshaped) {
  const auto kept = tensors;
  std::erase_if(tensors, [](const Stored& t) { return t.name == "blocks.1.attn1.to_k.bias"; });
  expect("tensor \"blocks.1.attn1.to_k.bias\" is missing");
  tensors = kept;
  tensors.push_back({"blocks.0.to_gate_compress.weight", "F32", {1}, std::string(4, '\0')});
  expect("tensor \"blocks.0.to_gate_compress.weight\" has no place");
  tensors = kept;
  auto& shape = tensor("blocks.0.ffn.net.2.weight").shape;
  std::swap(shape[0], shape[1]);
  expect("tensor \"blocks.0.ffn.net.2.weight\" has shape [80, 48] but the configuration asks for [48, 80]");
  tensors = kept;
  tensor("proj_out.bias").type = "I16";
  expect("holds I16; F32, BF16 or F16 is needed");
}

TEST_F(WanLoad, RefusesMoreOrFewerLayersThanThereAre) {
  config["num_layers"] = 3;
  expect("tensor \"blocks.2.attn1.to_q.weight\" is missing");
  config["num_layers"] = 1;
  expect("tensor \"blocks.1.attn1.norm_k.weight\" has no place");
}

TEST_F(WanLoad, RefusesNanAndInfinity) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* name : {"blocks.1.attn2.norm_q.weight", "patch_embedding.weight", "scale_shift_table"}) {
      Stored& t = tensor(name);
      const std::string kept = t.bytes;
      const Bf16 value = from_f32<Bf16>(bad);
      std::memcpy(t.bytes.data() + 6, &value, 2);
      expect(std::string("tensor \"") + name + "\" holds " + (std::isnan(bad) ? "nan" : "inf") + " at element 3");
      t.bytes = kept;
    }
  }
}

TEST_F(WanLoad, RefusesATruncatedFileAtAnyLength) {
  ASSERT_EQ(refusal(), "");
  const auto size = fs::file_size(folder.path / kFile);
  for (const double part : {0.99999, 0.9, 0.1, 0.01, 0.0001, 0.0}) {
    fs::resize_file(folder.path / kFile, static_cast<std::uintmax_t>(static_cast<double>(size) * part));
    EXPECT_NE(load().find(kFile), std::string::npos) << part << ": " << load();
  }
  fs::remove(folder.path / kFile);
  EXPECT_NE(load().find("neither"), std::string::npos);
}

TEST_F(WanLoad, RefusesBadConfigurations) {
  const Json kept = config;
  const auto with = [&](const char* key, const Json& value, const std::string& says) {
    config = kept;
    config[key] = value;
    expect(says);
  };
  with("num_headz", 2, "unknown key \"num_headz\"");
  with("num_layer", 2, "did you mean \"num_layers\"?");
  with("num_layers", 0, "\"num_layers\" is 0; an integer from 1");
  with("num_layers", "2", "\"num_layers\" is \"2\"");
  with("num_attention_heads", -1, "\"num_attention_heads\" is -1");
  with("num_attention_heads", 18446744073709551615u, "an integer from 1");
  with("ffn_dim", 1.5, "\"ffn_dim\" is 1.5");
  with("ffn_dim", 1000000000, "\"ffn_dim\" is 1000000000");
  with("attention_head_dim", 20, "a multiple of 8");
  with("freq_dim", 31, "an even number");
  with("num_attention_heads", 4096, "has shape");
  with("attention_head_dim", 512, "an integer from 1 to 256");
  with("patch_size", {1, 2}, "three integers");
  with("patch_size", 2, "three integers");
  with("eps", 0, "a positive number");
  with("eps", "x", "wrong type");
  with("qk_norm", "layer_norm", "\"rms_norm_across_heads\" or null");
  with("image_dim", 1280, "image conditioning");
  with("cross_attn_norm", 1, "wrong type");
  config = kept;
  config.erase("text_dim");
  expect("key \"text_dim\" is missing");
  for (const char* text : {"", "{", "[]", "7", "{\"num_layers\":}"}) {
    EXPECT_THROW(parse_wan_config(text, "config.json"), Error) << text;
  }
}

TEST(WanConfigFile, OfficialWordsMeanTheSame) {
  const std::string text = R"({"_class_name": "WanModel", "_diffusers_version": "0.30.0", "dim": 1536, "eps": 1e-06,
    "ffn_dim": 8960, "freq_dim": 256, "in_dim": 16, "model_type": "t2v", "num_heads": 12, "num_layers": 30,
    "out_dim": 16, "text_len": 512})";
  const WanConfig c = parse_wan_config(text, "config.json");
  EXPECT_EQ(c.heads, 12);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.layers, 30);
  EXPECT_EQ(c.ffn_dim, 8960);
  EXPECT_EQ(c.text_dim, 4096);
  EXPECT_EQ(c.patch_features(), 64);
  EXPECT_TRUE(c.qk_norm && c.cross_attn_norm);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_THROW(parse_wan_config(changed, "config.json"), Error) << to;
  };
  refused("\"t2v\"", "\"i2v\"");
  refused("1536", "1537");
  refused("\"num_heads\": 12", "\"num_heads\": 0");
  refused("text_len", "text_length");
}

TEST_F(WanLoad, RefusesCallsThatDoNotFit) {
  ASSERT_EQ(refusal(), "");
  const WanModel model = WanModel::load(folder.path, Precision::kF32),
                 other = WanModel::load(folder.path, Precision::kF32);
  const WanConfig& c = model.config();
  const Threads threads(1);
  const auto fabric = make_self_fabric();
  Engine engine({Policy{}, {{1, 2, 3}}, c.heads, c.head_dim, c.layers, 1}, *fabric, threads);
  std::vector<float> latents(6 * c.patch_features(), 0.1f), text(2 * c.text_dim, 0.1f), velocity(6 * c.out_features());
  const std::vector<float> time{500};
  const auto workspace = model.make_workspace();
  const auto what = [&](const std::function<void(WanModel::Input&)>& change, bool check = false) -> std::string {
    WanModel::Input input{latents, time, text, 1, 2, 3, 30, Branch::kConditional};
    change(input);
    try {
      model.forward(input, engine, threads, *workspace, velocity, check);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(what([](auto&) {}), "");
  EXPECT_EQ(what([](auto&) {}, true), "");
  EXPECT_NE(what([](auto& in) { in.batch = 0; }), "");
  EXPECT_NE(what([](auto& in) { in.text_tokens = 0; }).find("at least one text token"), std::string::npos);
  EXPECT_NE(what([](auto& in) { in.text_tokens = 3; }).find("text: "), std::string::npos);
  EXPECT_NE(what([](auto& in) { in.latents = in.latents.first(5); }).find("latents: 5 values"), std::string::npos);
  WanModel::Input input{latents, time, text, 1, 2, 3, 30, Branch::kConditional};
  EXPECT_THROW(other.forward(input, engine, threads, *workspace, velocity), Error);
  latents[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(what([](auto&) {}, true).find("step 3 of 30, the latents given"), std::string::npos);
  std::fill(latents.begin(), latents.begin() + c.patch_features(), 3e38f);  // finite, and their sums are not
  EXPECT_NE(what([](auto&) {}, true).find("step 3 of 30, layer 0"), std::string::npos) << what([](auto&) {}, true);
}

TEST(WanMemory, IsPredictedByCheckedArithmetic) {
  WanConfig c;
  c.heads = 6, c.head_dim = 64, c.layers = 8, c.ffn_dim = 832, c.in_channels = c.out_channels = 16;
  c.text_dim = 128, c.freq_dim = 256;
  const std::int64_t bytes = predicted_activation_bytes(c, 6240, 1, 20);
  EXPECT_GT(bytes, 6240 * 384 * 4 * 6);
  EXPECT_LT(bytes, 6240 * 384 * 4 * 8);
  EXPECT_EQ(predicted_activation_bytes(c, 2 * 6240, 1) - predicted_activation_bytes(c, 6240, 1),
            predicted_activation_bytes(c, 6240, 1) - predicted_activation_bytes(c, 0, 1));
  EXPECT_THROW(predicted_activation_bytes(c, std::int64_t{1} << 60, 1), Error);
}

TEST(WanNames, SwapTheNorms) {
  EXPECT_EQ(official_wan_name("blocks.7.norm2.weight"), "blocks.7.norm3.weight");
  EXPECT_EQ(official_wan_name("blocks.12.attn1.to_out.0.bias"), "blocks.12.self_attn.o.bias");
  EXPECT_EQ(official_wan_name("blocks.0.attn2.norm_k.weight"), "blocks.0.cross_attn.norm_k.weight");
  EXPECT_EQ(official_wan_name("blocks.0.scale_shift_table"), "blocks.0.modulation");
  EXPECT_EQ(official_wan_name("scale_shift_table"), "head.modulation");
  EXPECT_EQ(official_wan_name("proj_out.weight"), "head.head.weight");
  EXPECT_EQ(official_wan_name("patch_embedding.bias"), "patch_embedding.bias");
  EXPECT_EQ(official_wan_name("condition_embedder.time_proj.bias"), "time_projection.1.bias");
}

}  // namespace
}  // namespace tulle
