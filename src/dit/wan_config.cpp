#include <algorithm>
#include <cmath>
#include <vector>

#include "base/json.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr std::string_view kKeys[] = {"_class_name",
                                      "_diffusers_version",
                                      "_name_or_path",
                                      "patch_size",
                                      "num_attention_heads",
                                      "attention_head_dim",
                                      "in_channels",
                                      "out_channels",
                                      "text_dim",
                                      "freq_dim",
                                      "ffn_dim",
                                      "num_layers",
                                      "cross_attn_norm",
                                      "qk_norm",
                                      "eps",
                                      "image_dim",
                                      "added_kv_proj_dim",
                                      "rope_max_seq_len",
                                      "pos_embed_seq_len"};

// The official repositories' config.json: WanModel's own words for the same sizes, with its defaults.
constexpr std::pair<std::string_view, std::string_view> kOfficialKeys[] = {{"num_heads", "num_attention_heads"},
                                                                           {"num_layers", "num_layers"},
                                                                           {"in_dim", "in_channels"},
                                                                           {"out_dim", "out_channels"},
                                                                           {"text_dim", "text_dim"},
                                                                           {"freq_dim", "freq_dim"},
                                                                           {"ffn_dim", "ffn_dim"},
                                                                           {"patch_size", "patch_size"},
                                                                           {"cross_attn_norm", "cross_attn_norm"},
                                                                           {"eps", "eps"}};
constexpr std::string_view kOfficialOnly[] = {"_class_name", "_diffusers_version", "dim",    "model_type",
                                              "text_len",    "window_size",        "qk_norm"};
constexpr std::int64_t kOfficialTextDim = 4096;

constexpr std::int64_t kMaxWidth = 1 << 17;  // of any layer; bounds every product of two sizes
constexpr std::int64_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 256, kMaxPatch = 64;

std::int64_t size(const Json& json, const char* key, std::int64_t most, const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end()) fail(ErrorCode::kBadFile, "{}: key \"{}\" is missing", where, key);
  const bool good = it->is_number_integer() && *it >= 1 && *it <= most;
  if (!good)
    fail(ErrorCode::kBadFile, "{}: \"{}\" is {}; an integer from 1 to {} is needed", where, key, it->dump(), most);
  return it->get<std::int64_t>();
}

void refuse_image_keys(const Json& json, const std::string& where) {
  for (const char* key : {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}) {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) continue;
    fail(ErrorCode::kBadFile,
         "{}: \"{}\" asks for image conditioning, which is not supported; use a text-to-video model", where, key);
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
    fail(ErrorCode::kBadFile, "{}: \"patch_size\" is {}; three integers from 1 to {} are needed", where, it->dump(),
         kMaxPatch);
  }
  config.patch_t = (*it)[0], config.patch_h = (*it)[1], config.patch_w = (*it)[2];
}

void check_sizes(const WanConfig& c, const std::string& where) {
  if (c.head_dim % 8 != 0) {
    fail(ErrorCode::kBadFile, "{}: \"attention_head_dim\" is {}; a multiple of 8 is needed", where, c.head_dim);
  }
  if (c.freq_dim % 2 != 0)
    fail(ErrorCode::kBadFile, "{}: \"freq_dim\" is {}; an even number is needed", where, c.freq_dim);
  for (const std::int64_t width : {c.hidden(), c.patch_features(), c.out_features()}) {
    if (width > kMaxWidth)
      fail(ErrorCode::kBadFile, "{}: a layer of {} channels is wider than {}", where, width, kMaxWidth);
  }
}

Json from_official(const Json& json, const std::string& where) {
  std::vector<std::string_view> known(std::begin(kOfficialOnly), std::end(kOfficialOnly));
  for (const auto& [theirs, ours] : kOfficialKeys) known.push_back(theirs);
  refuse_unknown_keys(json, known, where);
  if (json.value("model_type", Json("t2v")) != "t2v") {
    fail(ErrorCode::kBadFile, "{}: \"model_type\" is {}; only \"t2v\" is supported", where, json["model_type"].dump());
  }
  Json out = {{"patch_size", {1, 2, 2}}, {"text_dim", kOfficialTextDim}, {"cross_attn_norm", true}};
  for (const auto& [theirs, ours] : kOfficialKeys) {
    if (json.contains(theirs)) out[std::string(ours)] = json[std::string(theirs)];
  }
  if (!json_get<bool>(json, "qk_norm", true, where)) out["qk_norm"] = nullptr;
  const std::int64_t width = size(json, "dim", kMaxWidth, where), heads = size(json, "num_heads", kMaxHeads, where);
  if (width % heads != 0) fail(ErrorCode::kBadFile, "{}: \"dim\" {} is no multiple of {} heads", where, width, heads);
  out["attention_head_dim"] = width / heads;
  return out;
}

}  // namespace

WanConfig parse_wan_config(const std::string& text, const std::string& where) {
  Json json = parse_json(text, where).value();
  if (json.is_object() && json.contains("dim")) json = from_official(json, where);
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
  if (!std::isfinite(c.eps) || c.eps <= 0)
    fail(ErrorCode::kBadFile, "{}: \"eps\" is {}; a positive number is needed", where, c.eps);
  check_sizes(c, where);
  return c;
}

}  // namespace tulle
