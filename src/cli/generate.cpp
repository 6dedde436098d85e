// tulle generate: prompt -> video; with --compare dense also the dense video of the same seed, and a report on both.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "cli/command.hpp"
#include "cli/run_report.hpp"
#include "cli/video_run.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kSheetColumns = 7;
constexpr std::int64_t kMaxSide = 32768 / kSheetColumns / 8 * 8;  // a sheet's row of frames must fit one PNG

struct Options {
  std::string model = "models/tiny", prompt, grid = "9x16x16", policy = "dfsattn", profile, out = "out/video";
  std::string compare, parallel = "auto", device = "cpu", precision = "auto", sampler;
  std::optional<std::int32_t> steps;
  std::optional<double> guidance, shift;
  int ranks = 1, threads = 0, fps = 8;
  std::uint64_t seed = 0;
  bool check_finite = false, json = false, quiet = false;
};

VideoRequest request_of(const Options& o, const Loaded& loaded, const Policy& policy) {
  VideoRequest r;
  r.prompt = o.prompt;
  r.grid = parse_grid(o.grid);
  r.policy = policy;
  r.sampler = loaded.sampler;
  if (!o.sampler.empty()) r.sampler.kind = o.sampler;
  if (o.steps) r.sampler.steps = *o.steps;
  if (o.guidance) r.sampler.guidance = *o.guidance;
  if (o.shift) r.sampler.shift = *o.shift;
  r.ranks = o.ranks;
  r.threads = o.threads > 0 ? o.threads : Threads().width();
  r.seed = o.seed;
  r.check_finite = o.check_finite;
  r.quiet = o.quiet || o.json;
  r.label = policy.name;
  return r;
}

RunReport report_of(const Options& o, const Loaded& loaded, const VideoRequest& request, const VideoResult& run,
                    const VideoResult* dense, std::int64_t predicted) {
  RunReport r = make_report(loaded, request, run, dense);
  r.device = o.device;
  r.predicted_memory = predicted;
  return r;
}

void write_outputs(const Options& o, const RunReport& report, const VideoResult& run, const VideoResult* dense) {
  const fs::path out = o.out;
  write_mp4(out / "video.mp4", run.video, o.fps);
  std::vector<Video> rows = {run.video};
  if (dense != nullptr) {
    write_mp4(out / "dense.mp4", dense->video, o.fps);
    rows.push_back(dense->video);
  }
  write_frames_sheet(out / "frames.png", rows, kSheetColumns);
  write_file_atomic(out / "report.json", report_json(report) + "\n");
  write_report_html(out / "report.html", report, out / "video.mp4", dense != nullptr ? out / "dense.mp4" : fs::path(),
                    out / "frames.png");
}

// Files that could not be written at the end are refused at the start.
void check_pixels(const Loaded& loaded, const TokenGrid& grid) {
  const WanConfig& c = loaded.model.config();
  const std::int64_t height = grid.height * c.patch_h * loaded.codec.stride();
  const std::int64_t width = grid.width * c.patch_w * loaded.codec.stride();
  require(height <= kMaxSide && width <= kMaxSide, "--grid {}: frames of {} x {} pixels are more than {} to a side",
          to_string(grid), width, height, kMaxSide);
  const std::string problem = mp4_problem();
  if (!problem.empty()) throw Error(ErrorCode::kUnsupported, problem);
}

void check_options(const Options& o) {
  require(o.device == "cpu", "--device {}: this build runs models on the cpu", o.device);
  require(o.parallel == "auto" || o.parallel == "ulysses", "--parallel {}: this version has auto and ulysses",
          o.parallel);
  require(o.compare.empty() || o.compare == "dense", "--compare {}: the one comparison there is: dense", o.compare);
  parse_precision(o.precision);
  require(o.threads >= 0, "--threads {}: use 0 for all cores, or a number of threads", o.threads);
  require(o.ranks >= 1, "--ranks {}: at least 1 is needed", o.ranks);
  require(o.fps >= 1 && o.fps <= 240, "--fps {}: use 1 to 240", o.fps);
}

// The profile that was named, or the one that the model's folder has of this grid.
std::string profile_of(const Options& o, const Policy& policy) {
  const TokenGrid grid = parse_grid(o.grid);
  if (!o.profile.empty() || !needs_profile(policy)) return o.profile;
  const std::string path = shipped_profile(o.model, grid);
  require(
      !path.empty(),
      "policy \"{}\" needs a profile of the model, and {} has none of grid {}: make one with tulle calibrate and name "
      "it with --profile",
      o.policy, o.model, to_string(grid));
  return path;
}

int generate(const Options& o) {
  check_options(o);
  const Policy policy = load_policy(o.policy);
  // What can be refused is refused before minutes of work.
  const std::string profile = profile_of(o, policy);
  prepare_output_folder(o.out);
  const Loaded loaded = load_model(o.model, parse_precision(o.precision));
  check_pixels(loaded, parse_grid(o.grid));
  loaded.prompts.parse(o.prompt);
  VideoRequest request = request_of(o, loaded, policy);
  request.keep_masks = true;
  request.profile = load_profile(profile, loaded);
  const std::int64_t predicted = predicted_memory(loaded, request);
  const VideoResult run = run_video(loaded, request);
  std::optional<VideoResult> dense;
  if (!o.compare.empty()) {
    VideoRequest dense_request = request_of(o, loaded, load_policy("dense"));
    dense = run_video(loaded, dense_request);
  }
  const RunReport report = report_of(o, loaded, request, run, dense ? &*dense : nullptr, predicted);
  write_outputs(o, report, run, dense ? &*dense : nullptr);
  if (o.json) {
    fmt::print("{}\n", report_json(report));
  } else {
    fmt::print("{}\nwritten: {}/{{video.mp4,{}frames.png,report.json,report.html}}\n", report_table(report), o.out,
               dense ? "dense.mp4," : "");
  }
  return 0;
}

}  // namespace

std::function<int()> declare_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.option_defaults()->take_last();  // so that ./dev demo's own options can be overridden
  app.add_option("--model", o->model, "folder with config.json, weights, vocabulary and codec")->capture_default_str();
  app.add_option("--prompt", o->prompt, "what to show, in the words of the model's vocabulary")->required();
  app.add_option("--grid", o->grid, "frames x height x width in tokens (models/tiny: 8x8 pixels each)")
      ->capture_default_str();
  app.add_option("--policy", o->policy, fmt::format("a preset ({}) or a .json file", fmt::join(policy_presets(), ", ")))
      ->capture_default_str();
  app.add_option(
      "--profile", o->profile,
      "what tulle calibrate learned of the model, for policies that use it (default: profiles/<grid>.bin of the "
      "model's folder)");
  app.add_option("--ranks", o->ranks, "ranks, as threads of this process")->capture_default_str();
  app.add_option("--parallel", o->parallel, "auto or ulysses")->capture_default_str();
  app.add_option("--device", o->device, "cpu")->capture_default_str();
  app.add_option("--compare", o->compare, "dense: also run densely with the same seed, and compare");
  app.add_option("--out", o->out, "output folder")->capture_default_str();
  app.add_option("--steps", o->steps, "sampler steps (default: the model's)");
  app.add_option("--guidance", o->guidance, "classifier-free guidance scale, 1 for none (default: the model's)");
  app.add_option("--shift", o->shift, "timestep shift of the sampler (default: the model's)");
  app.add_option("--sampler", o->sampler, "euler or unipc (default: the model's)");
  app.add_option("--seed", o->seed, "seed of the noise")->capture_default_str();
  app.add_option("--precision", o->precision, "of matrix products: auto, f32 or bf16")->capture_default_str();
  app.add_option("--threads", o->threads, "threads of the whole process (default: all cores)");
  app.add_option("--fps", o->fps, "frames per second of the video file")->capture_default_str();
  app.add_flag("--check-finite", o->check_finite, "stop at the first NaN and name its step and layer");
  app.add_flag("--json", o->json, "print the report as JSON, no progress");
  app.add_flag("--quiet", o->quiet, "no progress bars");
  app.footer(
      "Example:\n  tulle generate --prompt \"a large red striped circle moving left over grey waves\" --grid 13x20x24 "
      "\\\n"
      "      --policy dfsattn --ranks 2 --compare dense --out out/demo");
  return [o] { return generate(*o); };
}

}  // namespace tulle::cli
