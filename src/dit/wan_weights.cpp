#include "dit/wan_weights.hpp"

#include <algorithm>
#include <set>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "dit/safetensors.hpp"
#include "dit/wan_names.hpp"

namespace tulle {
namespace {

constexpr const char* kStem = "diffusion_pytorch_model";
constexpr std::size_t kConfigLimit = std::size_t{1} << 20;
// Rows that are never shared out between ranks take small tiles: one time embedding a sample, few text tokens.
constexpr std::int64_t kTimeTile = 1, kTextTile = 32, kTokenTile = 64;

using Shape = std::vector<std::int64_t>;

struct Plain {  // a linear layer before it is packed
  std::vector<float> weight, bias;
  std::int64_t outputs = 0, inputs = 0;
};

// Hands out tensors by diffusers' names and remembers which were asked for.
class Reader {
 public:
  Reader(const std::filesystem::path& folder, const WanConfig& config)
      : config_(config),
        set_(SafetensorsSet::open_folder(folder, kStem).value()),
        official_(set_.contains(official_wan_name("proj_out.weight"))) {}

  Buffer<float> vector(const std::string& name, const Shape& shape) {
    const std::string stored = official_ ? official_wan_name(name) : name;
    used_.insert(stored);
    return set_.read_f32(stored, shape);
  }

  // `name`.weight and `name`.bias; `shape` is the weight's, its first extent the outputs.
  Plain linear(const std::string& name, const Shape& shape) {
    const Buffer<float> weight = vector(name + ".weight", shape), bias = vector(name + ".bias", {shape[0]});
    return {{weight.data(), weight.data() + weight.size()},
            {bias.data(), bias.data() + bias.size()},
            shape[0],
            static_cast<std::int64_t>(weight.size()) / shape[0]};
  }

  void refuse_unused() const {
    for (const std::string& name : set_.names()) {
      if (used_.count(name) != 0) continue;
      fail(ErrorCode::kBadFile, "{} has no place in the configured text-to-video model; check config.json",
           set_.where(name));
    }
  }

  const WanConfig& config() const { return config_; }

 private:
  const WanConfig& config_;
  SafetensorsSet set_;
  bool official_;
  std::set<std::string> used_;
};

Plain stack(std::vector<Plain> parts) {
  Plain all{{}, {}, 0, parts.front().inputs};
  for (const Plain& p : parts) {
    all.weight.insert(all.weight.end(), p.weight.begin(), p.weight.end());
    all.bias.insert(all.bias.end(), p.bias.begin(), p.bias.end());
    all.outputs += p.outputs;
  }
  return all;
}

Linear pack(const Plain& p, DType in, DType out, Activation activation, std::int64_t tile) {
  return Linear({p.outputs, p.inputs, in, out, activation, tile}, p.weight, p.bias);
}

Linear pack_f32(const Plain& p, Activation activation, std::int64_t tile) {
  return pack(p, DType::kF32, DType::kF32, activation, tile);
}

// The head gives (pt, ph, pw, channel) in a checkpoint; tokens here are (channel, pt, ph, pw).
Plain channels_first(const Plain& head, std::int64_t channels) {
  Plain out = head;
  const std::int64_t patch = head.outputs / channels;
  for (std::int64_t p = 0; p < patch; ++p) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t from = p * channels + c, to = c * patch + p;
      std::copy_n(head.weight.begin() + from * head.inputs, head.inputs, out.weight.begin() + to * head.inputs);
      out.bias[static_cast<std::size_t>(to)] = head.bias[static_cast<std::size_t>(from)];
    }
  }
  return out;
}

WanBlock read_block(Reader& reader, std::int64_t index, DType a) {
  const WanConfig& c = reader.config();
  const std::int64_t d = c.hidden();
  const std::string at = fmt::format("blocks.{}.", index);
  const auto square = [&](const char* name) { return reader.linear(at + name, {d, d}); };
  WanBlock b;
  b.qkv = pack(stack({square("attn1.to_q"), square("attn1.to_k"), square("attn1.to_v")}), a, a, Activation::kNone,
               kTokenTile);
  b.out = pack(square("attn1.to_out.0"), a, DType::kF32, Activation::kNone, kTokenTile);
  b.cross_q = pack(square("attn2.to_q"), a, a, Activation::kNone, kTokenTile);
  b.cross_kv = pack(stack({square("attn2.to_k"), square("attn2.to_v")}), a, a, Activation::kNone, kTextTile);
  b.cross_out = pack(square("attn2.to_out.0"), a, DType::kF32, Activation::kNone, kTokenTile);
  b.ffn_up = pack(reader.linear(at + "ffn.net.0.proj", {c.ffn_dim, d}), a, a, Activation::kGeluTanh, kTokenTile);
  b.ffn_down = pack(reader.linear(at + "ffn.net.2", {d, c.ffn_dim}), a, DType::kF32, Activation::kNone, kTokenTile);
  if (c.qk_norm) {
    b.norm_q = reader.vector(at + "attn1.norm_q.weight", {d});
    b.norm_k = reader.vector(at + "attn1.norm_k.weight", {d});
    b.cross_norm_q = reader.vector(at + "attn2.norm_q.weight", {d});
    b.cross_norm_k = reader.vector(at + "attn2.norm_k.weight", {d});
  }
  if (c.cross_attn_norm) {
    b.norm2_weight = reader.vector(at + "norm2.weight", {d});
    b.norm2_bias = reader.vector(at + "norm2.bias", {d});
  }
  b.modulation = reader.vector(at + "scale_shift_table", {1, 6, d});
  return b;
}

void read_outside(Reader& reader, WanWeights& w) {
  const WanConfig& c = w.config;
  const std::int64_t d = c.hidden();
  const std::string condition = "condition_embedder.";
  w.patch = pack_f32(reader.linear("patch_embedding", {d, c.in_channels, c.patch_t, c.patch_h, c.patch_w}),
                     Activation::kNone, kTokenTile);
  w.time1 =
      pack_f32(reader.linear(condition + "time_embedder.linear_1", {d, c.freq_dim}), Activation::kSilu, kTimeTile);
  w.time2 = pack_f32(reader.linear(condition + "time_embedder.linear_2", {d, d}), Activation::kNone, kTimeTile);
  w.time_proj = pack_f32(reader.linear(condition + "time_proj", {6 * d, d}), Activation::kNone, kTimeTile);
  w.text1 =
      pack_f32(reader.linear(condition + "text_embedder.linear_1", {d, c.text_dim}), Activation::kGeluTanh, kTextTile);
  w.text2 = pack(reader.linear(condition + "text_embedder.linear_2", {d, d}), DType::kF32, DType::kF32,
                 Activation::kNone, kTextTile);
  w.head = pack_f32(channels_first(reader.linear("proj_out", {c.out_features(), d}), c.out_channels), Activation::kNone,
                    kTokenTile);
  w.head_modulation = reader.vector("scale_shift_table", {1, 2, d});
}

// All linear layers of a block or of the rest, for sums over them.
std::vector<const Linear*> linears(const WanBlock& b) {
  return {&b.qkv, &b.out, &b.cross_q, &b.cross_kv, &b.cross_out, &b.ffn_up, &b.ffn_down};
}
std::vector<const Linear*> linears(const WanWeights& w) {
  return {&w.patch, &w.time1, &w.time2, &w.time_proj, &w.text1, &w.text2, &w.head};
}

}  // namespace

WanWeights load_wan_weights(const std::filesystem::path& folder, Precision precision) {
  const auto path = folder / "config.json";
  WanWeights w;
  w.config = parse_wan_config(read_file(path, kConfigLimit), path.string());
  w.precision = precision;
  Reader reader(folder, w.config);
  read_outside(reader, w);
  for (std::int64_t i = 0; i < w.config.layers; ++i) w.blocks.push_back(read_block(reader, i, w.activation()));
  reader.refuse_unused();
  const Linear& product = w.blocks.front().qkv;
  log(LogLevel::kInfo, "matrix products: {}{}{}", product.route(), product.route_reason().empty() ? "" : "; ",
      product.route_reason());
  return w;
}

std::int64_t weight_bytes(const WanWeights& w) {
  std::size_t floats = w.head_modulation.size();
  std::int64_t bytes = 0;
  for (const Linear* l : linears(w)) bytes += l->weight_bytes();
  for (const WanBlock& b : w.blocks) {
    for (const Linear* l : linears(b)) bytes += l->weight_bytes();
    for (const Buffer<float>* v :
         {&b.norm_q, &b.norm_k, &b.cross_norm_q, &b.cross_norm_k, &b.norm2_weight, &b.norm2_bias, &b.modulation}) {
      floats += v->size();
    }
  }
  return bytes + static_cast<std::int64_t>(floats * sizeof(float));
}

}  // namespace tulle
