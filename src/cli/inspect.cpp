// tulle inspect: any file of ours in words, and as a picture where it has one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "cli/command.hpp"
#include "dit/safetensors.hpp"
#include "tulle/model.hpp"
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

// Heads side by side, one pixel a block, scaled up to be seen; kept blocks dark on light.
void draw_mask(const BlockMask& m, const fs::path& out) {
  const std::int64_t scale = std::max<std::int64_t>(1, 160 / m.k_blocks()), gap = 4;
  const std::int64_t tile_w = m.k_blocks() * scale + gap, tile_h = m.q_blocks() * scale + gap;
  const std::int64_t width = m.heads() * tile_w, height = m.batch() * tile_h;
  std::vector<float> rgb(static_cast<std::size_t>(width * height * 3), 1.0f);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t i = y % tile_h / scale, j = x % tile_w / scale;
      if (i >= m.q_blocks() || j >= m.k_blocks()) continue;
      const bool kept = m.test(y / tile_h, x / tile_w, i, j);
      float* pixel = &rgb[static_cast<std::size_t>((y * width + x) * 3)];
      pixel[0] = kept ? 0.10f : 0.90f, pixel[1] = kept ? 0.25f : 0.92f, pixel[2] = kept ? 0.55f : 0.94f;
    }
  }
  write_png(out, height, width, rgb);
}

Account mask(const std::string& bytes, const std::string& where, const std::string& out) {
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
  if (!out.empty()) draw_mask(m, out);
  return a;
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

Account examine(const std::string& what, const std::string& out) {
  const fs::path path = what;
  if (!fs::exists(path) && is_preset(what)) return policy(load_policy(what));
  if (fs::is_directory(path)) return model(path);
  const std::string kind = path.extension().string();
  if (kind == ".safetensors") return tensors(path);
  if (kind == ".npy") return clips(path, out);
  const std::string bytes = read_file(path);
  return kind == ".json" ? json_file(bytes, what) : mask(bytes, what, out);
}

struct Options {
  std::string what, out;
  bool json = false;
};

int inspect(const Options& o) {
  const std::string kind = fs::path(o.what).extension().string();
  const bool wordy = fs::is_directory(o.what) || kind == ".json" || kind == ".safetensors" || !fs::exists(o.what);
  require(o.out.empty() || !wordy, "--out {}: only masks and clips have a picture", o.out);
  const Account account = examine(o.what, o.out);
  if (o.json)
    fmt::print("{}\n", account.json.dump(2));
  else
    fmt::print("{}", account.words);
  return 0;
}

}  // namespace

std::function<int()> declare_inspect(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("what", o->what,
                 "a model folder, .safetensors, .json (policy, report), .npy clips, a mask, or a preset")
      ->required();
  app.add_option("--out", o->out, "picture to write (.png): masks and clips");
  app.add_flag("--json", o->json, "machine-readable");
  app.footer("Example:\n  tulle inspect out/demo/report.json");
  return [o] { return inspect(*o); };
}

}  // namespace tulle::cli
