#include <array>
#include <cmath>

#include "base/json.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr std::string_view kKeys[] = {
    "_class_name", "_diffusers_version", "_name_or_path", "patch_size", "num_attention_heads", "attention_head_dim",
    "in_channels", "out_channels",       "text_dim",      "freq_dim",   "ffn_dim",             "num_layers",
    "cross_attn_norm", "qk_norm",        "eps",           "image_dim",  "added_kv_proj_dim",   "rope_max_seq_len",
    "pos_embed_seq_len"};

constexpr std::int64_t kMaxWidth = 1 << 17;  // of any layer; bounds every product of two sizes
constexpr std::int64_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 256, kMaxPatch = 64;

std::int64_t size(const Json& json, const char* key, std::int64_t most, const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end()) fail(ErrorCode::kBadFile, "{}: key \"{}\" is missing", where, key);
  const bool good = it->is_number_integer() && *it >= 1 && *it <= most;
  if (!good) fail(ErrorCode::kBadFile, "{}: \"{}\" is {}; an integer from 1 to {} is needed", where, key, it->dump(), most);
  return it->get<std::int64_t>();
}

void refuse_image_keys(const Json& json, const std::string& where) {
  for (const char* key : {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}) {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) continue;
    fail(ErrorCode::kBadFile, "{}: \"{}\" asks for image conditioning, which is not supported; use a text-to-video model",
         where, key);
  }
}

bool qk_norm(const Json& json, const std::string& where) {
  const auto it = json.find("qk_norm");
  if (it == json.end() || *it == "rms_norm_across_heads") return true;
  if (it->is_null()) return false;
  fail(ErrorCode::kBadFile, "{}: \"qk_norm\" is {}; \"rms_norm_across_heads\" or null is needed", where, it->dump());
}

void read_patch(const Json& json, WanConfig& config, const std::string& where) {
  const auto it = json.find("patch_size");
  if (it == json.end()) fail(ErrorCode::kBadFile, "{}: key \"patch_size\" is missing", where);
  const auto good = [](const Json& n) { return n.is_number_integer() && n >= 1 && n <= kMaxPatch; };
  if (!it->is_array() || it->size() != 3 || !std::all_of(it->begin(), it->end(), good)) {
    fail(ErrorCode::kBadFile, "{}: \"patch_size\" is {}; three integers from 1 to {} are needed", where, it->dump(), kMaxPatch);
  }
  config.patch_t = (*it)[0], config.patch_h = (*it)[1], config.patch_w = (*it)[2];
}

void check_sizes(const WanConfig& c, const std::string& where) {
  if (c.head_dim % 8 != 0) {
    fail(ErrorCode::kBadFile, "{}: \"attention_head_dim\" is {}; a multiple of 8 is needed", where, c.head_dim);
  }
  if (c.freq_dim % 2 != 0) fail(ErrorCode::kBadFile, "{}: \"freq_dim\" is {}; an even number is needed", where, c.freq_dim);
  for (const std::int64_t width : {c.hidden(), c.patch_features(), c.out_features()}) {
    if (width > kMaxWidth) fail(ErrorCode::kBadFile, "{}: a layer of {} channels is wider than {}", where, width, kMaxWidth);
  }
}

}  // namespace

WanConfig parse_wan_config(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where).value();
  refuse_unknown_keys(json, kKeys, where);
  refuse_image_keys(json, where);
  WanConfig c;
  c.heads = size(json, "num_attention_heads", kMaxHeads, where);
  c.head_dim = size(json, "attention_head_dim", kMaxHeadDim, where);
  c.layers = size(json, "num_layers", kMaxLayers, where);
  c.ffn_dim = size(json, "ffn_dim", kMaxWidth, where);
  c.in_channels = size(json, "in_channels", kMaxWidth, where);
  c.out_channels = json.contains("out_channels") && !json["out_channels"].is_null()
                       ? size(json, "out_channels", kMaxWidth, where)
                       : c.in_channels;
  c.text_dim = size(json, "text_dim", kMaxWidth, where);
  c.freq_dim = size(json, "freq_dim", kMaxWidth, where);
  read_patch(json, c, where);
  c.cross_attn_norm = json_need<bool>(json, "cross_attn_norm", where);
  c.qk_norm = qk_norm(json, where);
  c.eps = json_need<float>(json, "eps", where);
  if (!std::isfinite(c.eps) || c.eps <= 0) fail(ErrorCode::kBadFile, "{}: \"eps\" is {}; a positive number is needed", where, c.eps);
  check_sizes(c, where);
  return c;
}

}  // namespace tulle
