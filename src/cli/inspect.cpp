// tulle inspect: any file of ours in words, and as a picture where it has one.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "calibrate/findings.hpp"
#include "cli/command.hpp"
#include "dit/safetensors.hpp"
#include "tulle/model.hpp"
#include "tulle/profile.hpp"
#include "tulle/report.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// What an inspection says: words for people, the same facts as JSON for machines.
struct Account {
  std::string words;
  OrderedJson json;
};

Account model(const fs::path& folder) {
  const std::string where = (folder / "config.json").string();
  const WanConfig c = parse_wan_config(read_file(folder / "config.json", 1 << 20), where);
  const SafetensorsSet set = SafetensorsSet::open_folder(folder, "diffusion_pytorch_model").value();
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;
  for (const std::string& name : set.names()) {
    parameters += set.tensor(name).elements();
    bytes += set.tensor(name).bytes();
  }
  Account a;
  a.words = fmt::format(
      "a Wan transformer: {} layers, {} heads x {}, hidden {}, FFN {}, {} latent channels, text of {} features\n"
      "{} tensors, {:.2f} M parameters, {} on disk\n",
      c.layers, c.heads, c.head_dim, c.hidden(), c.ffn_dim, c.in_channels, c.text_dim, set.names().size(),
      static_cast<double>(parameters) * 1e-6, human_bytes(static_cast<double>(bytes)));
  a.json = {{"kind", "model"},          {"layers", c.layers},   {"heads", c.heads},
            {"head_dim", c.head_dim},   {"ffn_dim", c.ffn_dim}, {"tensors", set.names().size()},
            {"parameters", parameters}, {"bytes", bytes}};
  return a;
}

Account tensors(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  Account a;
  a.json = {{"kind", "safetensors"}, {"tensors", OrderedJson::array()}};
  a.words = fmt::format("safetensors with {} tensors\n", file.header().tensors.size());
  for (const SafetensorsTensor& t : file.header().tensors) {
    a.words += fmt::format("  {:<60} {:<5} {:<24} {}\n", t.name, t.type->name, shape_text(t.shape),
                           human_bytes(static_cast<double>(t.bytes())));
    a.json["tensors"].push_back({{"name", t.name}, {"type", t.type->name}, {"shape", t.shape}});
  }
  return a;
}

// What is asked of a picture; -1 leaves the choice to us.
struct PictureRequest {
  std::string path;
  std::int64_t layer = -1, head = -1, query = -1;
  bool video = false;

  bool details() const { return layer >= 0 || head >= 0 || query >= 0 || video; }
  bool in_video() const { return video || query >= 0; }
};

void draw_mask(const BlockMask& m, const PictureRequest& r) {
  require(r.layer < 0, "--layer {}: a mask is of one layer; leave --layer out", r.layer);
  if (r.in_video()) {
    const std::int64_t query = r.query >= 0 ? r.query : centre_block(m.q(), m.order());
    return write_mask_video_png(r.path, m, 0, std::max<std::int64_t>(r.head, 0), query);
  }
  r.head >= 0 ? write_mask_png(r.path, m, 0, r.head) : write_mask_png(r.path, m);
}

Account mask(const std::string& bytes, const std::string& where, const PictureRequest& picture) {
  const BlockMask m = parse_mask(std::as_bytes(std::span(bytes)), where).value();
  const Sequence& s = m.q().sequence;
  Account a;
  a.words = fmt::format(
      "a block mask: batch {}, {} heads, {} query blocks of {} x {} key blocks of {}, grid {} in {} order, {} text "
      "tokens\n"
      "density {:.4f}\n",
      m.batch(), m.heads(), m.q_blocks(), m.q().block, m.k_blocks(), m.k().block, to_string(s.grid),
      to_string(m.order()), s.text_tokens, density(m));
  a.json = {{"kind", "mask"},
            {"batch", m.batch()},
            {"heads", m.heads()},
            {"grid", to_string(s.grid)},
            {"order", to_string(m.order())},
            {"density", density(m)},
            {"density_by_head", OrderedJson::array()}};
  for (std::int64_t h = 0; h < m.heads(); ++h) {
    const double d = density(slice_heads(m, h, h + 1));
    a.words += fmt::format("  head {:<3} {:.4f}\n", h, d);
    a.json["density_by_head"].push_back(d);
  }
  if (!picture.path.empty()) draw_mask(m, picture);
  return a;
}

void draw_profile(const Profile& p, const PictureRequest& r) {
  const std::int64_t layer = std::max<std::int64_t>(r.layer, 0), layers = p.curves.layers;
  require(layer < layers, "--layer {}: the profile has layers 0 to {}", layer, layers - 1);
  const RankMap& map = p.ranks[static_cast<std::size_t>(layer)];
  if (r.in_video()) {
    const std::int64_t query = r.query >= 0 ? r.query : centre_block(map.q(), map.order());
    return write_rank_map_video_png(r.path, map, std::max<std::int64_t>(r.head, 0), query);
  }
  r.head >= 0 ? write_rank_map_png(r.path, map, r.head) : write_rank_map_png(r.path, map);
}

std::string profile_words(const Profile& p) {
  std::string text = fmt::format(
      "a profile of the model with hash {}: {} layers, {} heads, {} query blocks of {} x {} key blocks of {}, grid {} "
      "in "
      "{} order\n"
      "made from {} captions with {} steps; fidelity in {} parts of the run; {} in memory\n"
      "Density of the union of the first 1, 2, ... captions:",
      p.model_hash, p.curves.layers, p.curves.heads, p.q().count(), p.q().block, p.k().count(), p.k().block,
      to_string(p.q().sequence.grid), to_string(p.order()), p.captions.size(), p.steps, p.curves.bins,
      human_bytes(static_cast<double>(memory_bytes(p))));
  for (const float d : p.union_density) text += fmt::format(" {:.3f}", d);
  return text + "\n";
}

OrderedJson profile_json(const Profile& p, const Findings& f) {
  OrderedJson json = {{"kind", "profile"},
                      {"model_hash", p.model_hash},
                      {"layers", p.curves.layers},
                      {"heads", p.curves.heads},
                      {"grid", to_string(p.q().sequence.grid)},
                      {"order", to_string(p.order())},
                      {"block_q", p.q().block},
                      {"block_k", p.k().block},
                      {"q_blocks", p.q().count()},
                      {"k_blocks", p.k().count()},
                      {"captions", p.captions},
                      {"steps", p.steps},
                      {"bins", p.curves.bins},
                      {"bytes", memory_bytes(p)},
                      {"union_density", p.union_density},
                      {"union_settled", f.settled},
                      {"held_out_mass", p.held_out_mass},
                      {"needed_mass", kNeededMass},
                      {"needed_by_bin", f.by_bin},
                      {"needed_by_layer", f.by_layer},
                      {"needed_by_head", OrderedJson::array()}};
  for (const HeadNeed& h : f.heads) {
    json["needed_by_head"].push_back({{"layer", h.layer}, {"head", h.head}, {"density", h.density}});
  }
  return json;
}

Account profile(const std::string& bytes, const std::string& where, const PictureRequest& picture) {
  const Profile p = parse_profile(std::as_bytes(std::span(bytes)), where).value();
  const Findings findings = find(p);
  if (!picture.path.empty()) draw_profile(p, picture);
  return {profile_words(p) + words(findings), profile_json(p, findings)};
}

Account clips(const fs::path& path, const std::string& out) {
  const std::vector<Video> videos = read_clips(path);
  Account a;
  a.words = fmt::format("{} clips\n", videos.size());
  a.json = {{"kind", "clips"}, {"clips", OrderedJson::array()}};
  for (const Video& v : videos) {
    a.words += fmt::format("  {} frames of {} x {}:", v.frames, v.width, v.height);
    OrderedJson seen = OrderedJson::array();
    for (const ObjectFacts& o : observe_clip(v)) {
      a.words += fmt::format(" [{} {} {}]", o.colour, o.shape, o.motion);
      seen.push_back({{"colour", o.colour}, {"shape", o.shape}, {"motion", o.motion}});
    }
    a.words += "\n";
    a.json["clips"].push_back({{"frames", v.frames}, {"height", v.height}, {"width", v.width}, {"objects", seen}});
  }
  if (!out.empty()) write_frames_sheet(out, std::span(videos).first(std::min<std::size_t>(12, videos.size())), 7);
  return a;
}

Account policy(const Policy& p) {
  const std::string text = to_json(p);
  return {fmt::format("policy {}\n{}\n", p.name, text), {{"kind", "policy"}, {"policy", OrderedJson::parse(text)}}};
}

Account json_file(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where).value();
  if (json.is_object() && json.contains("schema")) {
    const RunReport report = parse_report(text, where);
    return {fmt::format("report of a run: {} at {}x{}x{}, policy {}, {} rank(s)\n{}\n", report.model, report.grid[0],
                        report.grid[1], report.grid[2], report.policy, report.ranks, report_table(report)),
            {{"kind", "report"}, {"report", OrderedJson::parse(text)}}};
  }
  return policy(parse_policy(text, where));
}

bool is_preset(const std::string& name) {
  const std::vector<std::string> presets = policy_presets();
  return std::find(presets.begin(), presets.end(), name) != presets.end();
}

constexpr std::size_t kLargestFile = std::size_t{1} << 33;  // a profile of the largest models has over 1 GiB

Account binary(const std::string& bytes, const std::string& where, const PictureRequest& picture) {
  return bytes.starts_with("TULLEPRF") ? profile(bytes, where, picture) : mask(bytes, where, picture);
}

Account examine(const std::string& what, const PictureRequest& picture) {
  const fs::path path = what;
  if (!fs::exists(path) && is_preset(what)) return policy(load_policy(what));
  if (fs::is_directory(path)) return model(path);
  const std::string kind = path.extension().string();
  if (kind == ".safetensors") return tensors(path);
  if (kind == ".npy") return clips(path, picture.path);
  const std::string bytes = read_file(path, kLargestFile);
  return kind == ".json" ? json_file(bytes, what) : binary(bytes, what, picture);
}

struct Options {
  std::string what;
  PictureRequest picture;
  bool json = false;
};

void check_picture(const Options& o) {
  const PictureRequest& r = o.picture;
  const std::string kind = fs::path(o.what).extension().string();
  const bool wordy = fs::is_directory(o.what) || kind == ".json" || kind == ".safetensors" || !fs::exists(o.what);
  require(r.path.empty() || !wordy, "--out {}: only masks, profiles and clips have a picture", r.path);
  require(!r.details() || !r.path.empty(),
          "--layer, --head, --query and --video choose a picture; give --out FILE.png");
  require(!r.details() || kind != ".npy", "--layer, --head, --query and --video are for masks and profiles, not clips");
}

int inspect(const Options& o) {
  check_picture(o);
  const Account account = examine(o.what, o.picture);
  if (o.json)
    fmt::print("{}\n", account.json.dump(2));
  else
    fmt::print("{}", account.words);
  return 0;
}

}  // namespace

std::function<int()> declare_inspect(CLI::App& app) {
  auto o = std::make_shared<Options>();
  PictureRequest& r = o->picture;
  app.add_option("what", o->what,
                 "a model folder, .safetensors, .json (policy, report), .npy clips, a mask, a profile, or a preset")
      ->required();
  app.add_option("--out,--picture", r.path, "picture to write (.png): masks, profiles and clips");
  app.add_option("--layer", r.layer, "layer of a profile to draw; 0 if not given")->check(CLI::NonNegativeNumber);
  app.add_option("--head", r.head, "one head to draw; if not given all, or 0 in the video")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--video", r.video, "draw what one query block keeps in the frames of the video");
  app.add_option("--query", r.query, "that query block (implies --video); if not given the one in the centre")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", o->json, "machine-readable");
  app.footer(
      "Example:\n  tulle inspect out/demo/report.json\n"
      "  tulle inspect tiny.profile --out ranks.png --layer 3 --head 2 --video");
  return [o] { return inspect(*o); };
}

}  // namespace tulle::cli
