// tulle bench quality: runs the quality study, and shows it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "base/system.hpp"
#include "cli/command.hpp"
#include "cli/quality.hpp"
#include "cli/run_report.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 0.01;  // of a row's density
constexpr int kTrials = 7;           // of a knob that is found by trial

struct Options {
  std::string model = "models/tiny", profile, captions, out = "out/quality", record, shard = "0/1";
  std::vector<std::string> grids = {"9x16x16"}, presets, policies;
  std::vector<double> densities = {0.55, 0.40, 0.25, 0.15};
  int count = 8, seeds = 2, threads = 0;
  bool quick = false, json = false, quiet = false, table_only = false;
};

struct Caption {
  std::string text;
  std::vector<ObjectFacts> objects;
};

std::vector<Caption> read_captions(const fs::path& path, int count) {
  const std::string text = read_file(path, std::size_t{64} << 20);
  std::vector<Caption> captions;
  for (std::size_t at = 0; at < text.size() && std::ssize(captions) < count;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}, line {}", path.string(), captions.size() + 1);
    const Json line = parse_json(std::string_view(text).substr(at, end - at), where).value();
    Caption c{json_need<std::string>(line, "caption", where), {}};
    for (const Json& o : line.at("objects")) {
      c.objects.push_back({json_need<std::string>(o, "colour", where), json_need<std::string>(o, "shape", where),
                           json_need<std::string>(o, "motion", where)});
    }
    captions.push_back(std::move(c));
    at = end + 1;
  }
  require(std::ssize(captions) == count, "{} has {} captions and {} were asked for: lower --count", path.string(),
          captions.size(), count);
  return captions;
}

std::string hash_text(const std::string& text) {
  return fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(text))));
}

// One row of the table before its videos exist.
struct Wish {
  StudyPreset preset;
  TokenGrid grid;
  std::optional<double> density;  // none: the policy as it is
};

class Study {
 public:
  explicit Study(const Options& o)
      : options_(o),
        loaded_(load_model(o.model, default_precision())),
        captions_(
            read_captions(o.captions.empty() ? fs::path(o.model) / "heldout.jsonl" : fs::path(o.captions), o.count)),
        profile_(load_profile(o.profile, loaded_)),
        profile_bytes_(profile_ != nullptr ? serialize(*profile_) : "") {
    const auto slash = o.shard.find('/');
    require(slash != std::string::npos, "--shard {}: write it as 0/4, the first of four", o.shard);
    shard_ = std::stoul(o.shard.substr(0, slash)), shards_ = std::stoul(o.shard.substr(slash + 1));
    require(shards_ >= 1 && shard_ < shards_, "--shard {}: the first number must be below the second", o.shard);
    fs::create_directories(fs::path(o.out) / "dense");
    read_lines();
  }

  void run(const std::vector<Wish>& wishes) {
    std::size_t index = 0;
    for (const Wish& wish : wishes) {
      if (index++ % shards_ == shard_) run_row(wish);
    }
  }

  const std::vector<StudyLine>& lines() const { return lines_; }

 private:
  void read_lines() {
    for (const auto& entry : fs::directory_iterator(options_.out)) {
      if (entry.path().extension() != ".jsonl") continue;
      const std::string text = read_file(entry.path(), std::size_t{256} << 20);
      for (std::size_t at = 0, n = 1; at < text.size(); ++n) {
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) {  // cut short by an interruption: that video is drawn again
          write_file_atomic(entry.path(), text.substr(0, at));
          break;
        }
        lines_.push_back(
            parse_study_line(text.substr(at, end - at), fmt::format("{}, line {}", entry.path().string(), n)));
        at = end + 1;
      }
    }
  }

  VideoRequest request_of(const Policy& policy, const TokenGrid& grid, std::size_t caption, std::uint64_t seed) {
    VideoRequest r;
    r.prompt = captions_[caption].text;
    r.grid = grid;
    r.policy = policy;
    r.sampler = loaded_.sampler;
    r.sampler.steps = kStudySteps;
    r.threads = options_.threads > 0 ? options_.threads : Threads().width();
    r.seed = seed;
    r.quiet = options_.quiet || options_.json;
    r.profile = profile_;
    return r;
  }

  std::string key_of(const Policy& policy, const TokenGrid& grid, std::size_t caption, std::uint64_t seed) const {
    const SamplerOptions& s = loaded_.sampler;
    std::string all =
        fmt::format("{}|{}|{}|{}|{} {} {} {}|{}", to_json(policy), to_string(grid), captions_[caption].text, seed,
                    s.kind, s.shift, s.guidance, kStudySteps, version_key_);
    if (needs_profile(policy)) all += "|" + profile_bytes_;
    return hash_text(all);
  }

  const StudyLine* known(const std::string& key) const {
    const auto it = std::ranges::find(lines_, key, &StudyLine::key);
    return it == lines_.end() ? nullptr : &*it;
  }

  void keep(const StudyLine& line) {
    append_file(fs::path(options_.out) / fmt::format("lines-{}.jsonl", shard_), to_json_line(line));
    lines_.push_back(line);
  }

  // The dense video, drawn once and kept as raw f32.
  Video dense_video(const TokenGrid& grid, std::size_t caption, std::uint64_t seed) {
    const Policy policy = load_policy("dense");
    const std::string key = key_of(policy, grid, caption, seed);
    const fs::path path = fs::path(options_.out) / "dense" / (key + ".f32");
    const WanConfig& c = loaded_.model.config();
    Video v{grid.frames * c.patch_t,
            grid.height * c.patch_h * loaded_.codec.stride(),
            grid.width * c.patch_w * loaded_.codec.stride(),
            {}};
    const auto count = static_cast<std::size_t>(v.frames * v.height * v.width * 3);
    if (fs::exists(path) && known(key) != nullptr) {
      const std::string bytes = read_file(path, count * sizeof(float));
      if (bytes.size() == count * sizeof(float)) {
        v.rgb.resize(count);
        std::memcpy(v.rgb.data(), bytes.data(), bytes.size());
        return v;
      }
    }
    VideoRequest request = request_of(policy, grid, caption, seed);
    request.label = fmt::format("dense, caption {}, seed {}", caption + 1, seed);
    const VideoResult run = run_video(loaded_, request);
    write_file_atomic(path, {reinterpret_cast<const char*>(run.video.rgb.data()), count * sizeof(float)});
    if (known(key) == nullptr) keep(line_of("dense", policy, 1000, key, grid, caption, seed, run, run.video));
    return run.video;
  }

  StudyLine line_of(const std::string& preset, const Policy& policy, std::int32_t asked, const std::string& key,
                    const TokenGrid& grid, std::size_t caption, std::uint64_t seed, const VideoResult& run,
                    const Video& dense) const {
    StudyLine l;
    l.key = key, l.preset = preset, l.policy = hash_text(to_json(policy));
    l.grid = to_string(grid), l.caption = captions_[caption].text;
    l.density_asked = asked, l.seed = seed;
    l.density = overall_density(run.stats);
    l.psnr = psnr(run.video, dense), l.ssim = ssim(run.video, dense);
    l.relative_l2 = relative_l2(run.video.rgb, dense.rgb);
    const CheckResult check = check_clip(run.video, captions_[caption].objects);
    l.count = check.count, l.colours = check.colours, l.shapes = check.shapes, l.motions = check.motions;
    l.attention_s = run.time.attention_s, l.select_s = run.time.select_s;
    l.dit_s = run.time.dit_s, l.total_s = run.time.total_s;
    return l;
  }

  StudyLine run_one(const Wish& wish, const Policy& policy, std::size_t caption, std::uint64_t seed) {
    const std::string key = key_of(policy, wish.grid, caption, seed);
    if (const StudyLine* line = known(key)) return *line;
    const Video dense = dense_video(wish.grid, caption, seed);
    VideoRequest request = request_of(policy, wish.grid, caption, seed);
    const auto asked = static_cast<std::int32_t>(std::lround(1000 * wish.density.value_or(0)));
    request.label = fmt::format("{} {:.2f}, caption {}, seed {}", wish.preset.name, asked / 1000.0, caption + 1, seed);
    const VideoResult run = run_video(loaded_, request);
    const StudyLine line = line_of(wish.preset.name, policy, asked, key, wish.grid, caption, seed, run, dense);
    keep(line);
    if (!request.quiet) {
      fmt::print(stderr, "{}: density {:.3f}, PSNR {:.2f} dB, checker {}\n", request.label, line.density, line.psnr,
                 line.count && line.colours && line.shapes && line.motions ? "passed" : "failed");
    }
    return line;
  }

  // Finds the top_p that meets the density, on the first caption and seed, by bisection.
  Policy find_policy(const Wish& wish) {
    if (wish.preset.knob != Knob::kTopP) return policy_at(wish.preset, *wish.density, wish.grid, 0);
    std::int32_t low = 1, high = 1000, best = 500;
    double best_error = 2;
    for (int trial = 0; trial < kTrials && low <= high && best_error > kTolerance / 2; ++trial) {
      const std::int32_t middle = (low + high) / 2;
      const double error =
          run_one(wish, policy_at(wish.preset, *wish.density, wish.grid, middle), 0, 0).density - *wish.density;
      if (std::abs(error) < best_error) best_error = std::abs(error), best = middle;
      (error > 0 ? high : low) = error > 0 ? middle - 1 : middle + 1;
    }
    return policy_at(wish.preset, *wish.density, wish.grid, best);
  }

  void run_row(const Wish& wish) {
    require(profile_ != nullptr || !needs_profile(wish.preset.policy),
            "policy \"{}\" needs a profile: make one with tulle calibrate, name it with --profile", wish.preset.name);
    const Policy policy = wish.density ? find_policy(wish) : wish.preset.policy;
    for (int seed = 0; seed < options_.seeds; ++seed) {
      for (std::size_t caption = 0; caption < captions_.size(); ++caption) {
        run_one(wish, policy, caption, static_cast<std::uint64_t>(seed));
      }
    }
  }

 private:
  const Options& options_;
  Loaded loaded_;
  std::vector<Caption> captions_;
  std::shared_ptr<const Profile> profile_;
  std::string profile_bytes_;  // part of the keys of videos that need it
  std::size_t shard_ = 0, shards_ = 1;
  std::vector<StudyLine> lines_;
  static constexpr int version_key_ = 1;
};

std::vector<Wish> wishes_of(const Options& o) {
  std::vector<Wish> wishes;
  for (const std::string& grid : o.grids) {
    for (const double density : o.densities) {
      for (const StudyPreset& preset : study_presets()) {
        const bool wanted = o.presets.empty() || std::ranges::find(o.presets, preset.name) != o.presets.end();
        if (wanted) wishes.push_back({preset, parse_grid(grid), density});
      }
    }
    for (const std::string& path : o.policies) {
      const Policy policy = load_policy(path);
      wishes.push_back({{policy.name, policy, Knob::kNone}, parse_grid(grid), std::nullopt});
    }
  }
  return wishes;
}

std::string command_of(const Options& o) {
  return fmt::format("tulle bench quality --grid {} --density {} --captions {} --seeds {}", fmt::join(o.grids, ","),
                     fmt::join(o.densities, ","), o.count, o.seeds);
}

int bench_quality(Options o) {
  if (o.quick) o.count = o.seeds = 1, o.densities = {0.25}, o.presets = {"dfsattn", "west+fast", "topp", "tulle"};
  require(o.count >= 1 && o.seeds >= 1, "--count {} --seeds {}: both must be at least 1", o.count, o.seeds);
  Study study(o);
  if (!o.table_only) study.run(wishes_of(o));
  const std::vector<StudyRow> rows = study_rows(study.lines());
  if (!o.record.empty()) write_file_atomic(o.record, study_records(rows, command_of(o)));
  fmt::print("{}", o.json ? study_records(rows, command_of(o)) : study_table(rows));
  return 0;
}

void declare_quality(CLI::App& app, std::shared_ptr<Options> o) {
  app.add_option("--model", o->model, "model folder")->capture_default_str();
  app.add_option("--profile", o->profile, "profile of the model (tulle calibrate)");
  app.add_option("--captions", o->captions, "captions with their objects, .jsonl (default: the model's heldout.jsonl)");
  app.add_option("--count", o->count, "captions, the first of the file")->capture_default_str();
  app.add_option("--seeds", o->seeds, "noise seeds of each caption")->capture_default_str();
  app.add_option("--grid", o->grids, "token grids")->delimiter(',')->capture_default_str();
  app.add_option("--density", o->densities, "densities of the whole run")->delimiter(',')->capture_default_str();
  app.add_option("--preset", o->presets, "presets of the study (default: all)")->delimiter(',');
  app.add_option("--policy", o->policies, "further rows: .json policies as they are")->delimiter(',');
  app.add_option("--out", o->out, "folder of the study; what stands there is not run again")->capture_default_str();
  app.add_option("--shard", o->shard, "this process's share of the rows, e.g. 0/4")->capture_default_str();
  app.add_option("--threads", o->threads, "threads (default: all cores)");
  app.add_option("--record", o->record, "write records there (results/quality.json)");
  app.add_flag("--quick", o->quick, "one caption, one density, four presets");
  app.add_flag("--table", o->table_only, "run nothing, show what stands in --out");
  app.add_flag("--json", o->json, "records on standard output");
  app.add_flag("--quiet", o->quiet, "no progress");
  app.footer(
      "Example:\n  tulle calibrate --out out/profile.bin && tulle bench quality --profile out/profile.bin --quick\n"
      "Stop it with Ctrl-C and run it again: it goes on where it was.");
}

}  // namespace

std::function<int()> declare_bench(CLI::App& app) {
  app.require_subcommand(1);
  auto o = std::make_shared<Options>();
  declare_quality(*app.add_subcommand("quality", "videos of every preset against dense ones of the same seed"), o);
  return [o] { return bench_quality(*o); };
}

}  // namespace tulle::cli
