// A small random model in a folder of its own, with the shipped vocabulary and codec: enough to run every command in
// seconds, and easy to damage.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/json.hpp"
#include "dit/safetensors.hpp"

namespace tulle {

struct SmallModel {
  std::map<std::string, std::pair<std::vector<std::int64_t>, std::vector<float>>> tensors;
  Json config;

  SmallModel() {
    constexpr std::int64_t kHeads = 3, kHidden = 48, kFfn = 64, kText = 128, kFreq = 32, kLayers = 2, kChannels = 16;
    config = {{"_class_name", "WanTransformer3DModel"},
              {"patch_size", {1, 2, 2}},
              {"num_attention_heads", kHeads},
              {"attention_head_dim", kHidden / kHeads},
              {"in_channels", kChannels},
              {"out_channels", kChannels},
              {"text_dim", kText},
              {"freq_dim", kFreq},
              {"ffn_dim", kFfn},
              {"num_layers", kLayers},
              {"cross_attn_norm", true},
              {"qk_norm", "rms_norm_across_heads"},
              {"eps", 1e-6}};
    add("patch_embedding", {kHidden, kChannels, 1, 2, 2});
    add("condition_embedder.time_embedder.linear_1", {kHidden, kFreq});
    add("condition_embedder.time_embedder.linear_2", {kHidden, kHidden});
    add("condition_embedder.time_proj", {6 * kHidden, kHidden});
    add("condition_embedder.text_embedder.linear_1", {kHidden, kText});
    add("condition_embedder.text_embedder.linear_2", {kHidden, kHidden});
    add("proj_out", {4 * kChannels, kHidden});
    put("scale_shift_table", {1, 2, kHidden});
    for (std::int64_t i = 0; i < kLayers; ++i) add_block(fmt::format("blocks.{}.", i), kHidden, kFfn);
  }

  // Writes everything; `weights` replaces the weight file's bytes when given.
  void write(const std::filesystem::path& folder, const std::string* weights = nullptr) const {
    std::filesystem::create_directories(folder);
    write_file_atomic(folder / "config.json", config.dump());
    write_file_atomic(folder / "diffusion_pytorch_model.safetensors", weights != nullptr ? *weights : bytes());
    const std::filesystem::path shipped = std::filesystem::path(TULLE_SOURCE_DIR) / "models/tiny";
    for (const char* name : {"vocabulary.json", "codec.safetensors", "text.safetensors"}) {
      std::filesystem::copy_file(shipped / name, folder / name);
    }
  }

  std::string bytes() const {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, "F32", tensor.first, std::as_bytes(std::span(tensor.second))});
    }
    return serialize_safetensors(entries);
  }

 private:
  void put(const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (std::int64_t s : shape) count *= static_cast<std::size_t>(s);
    std::normal_distribution<float> normal(0.0f, 0.1f);
    std::vector<float> values(count);
    for (float& v : values) v = normal(random_);
    tensors[name] = {std::move(shape), std::move(values)};
  }
  void add(const std::string& name, const std::vector<std::int64_t>& weight) {
    put(name + ".weight", weight);
    put(name + ".bias", {weight[0]});
  }
  void add_block(const std::string& block, std::int64_t hidden, std::int64_t ffn) {
    for (const char* attention : {"attn1.", "attn2."}) {
      for (const char* part : {"to_q", "to_k", "to_v", "to_out.0"}) add(block + attention + part, {hidden, hidden});
      put(block + attention + "norm_q.weight", {hidden});
      put(block + attention + "norm_k.weight", {hidden});
    }
    put(block + "norm2.weight", {hidden});
    put(block + "norm2.bias", {hidden});
    add(block + "ffn.net.0.proj", {ffn, hidden});
    add(block + "ffn.net.2", {hidden, ffn});
    put(block + "scale_shift_table", {1, 6, hidden});
  }

  std::mt19937 random_{7};
};

}  // namespace tulle
