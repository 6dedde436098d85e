// tulle generate: prompt -> video; with --compare dense also the dense video of the same seed, and a report on both.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/system.hpp"
#include "cli/command.hpp"
#include "cli/video_run.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model = "models/tiny", prompt, grid = "9x16x16", policy = "dfsattn", out = "out/video";
  std::string compare, parallel = "auto", device = "cpu", precision = "auto", sampler;
  std::optional<std::int32_t> steps;
  std::optional<double> guidance, shift;
  int ranks = 1, threads = 0, fps = 8;
  std::uint64_t seed = 0;
  bool check_finite = false, json = false, quiet = false;
};

Precision precision_of(const Options& o) {
  if (o.precision == "auto") return default_precision();
  return o.precision == "bf16" ? Precision::kBf16 : Precision::kF32;
}

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

double total(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum;
}

// kept[i] / all[i], summed over ranks first.
std::vector<double> ratios(const std::vector<EngineStats>& stats, std::vector<double> EngineStats::*kept,
                           std::vector<double> EngineStats::*all) {
  std::vector<double> out;
  for (std::size_t i = 0; i < (stats[0].*kept).size(); ++i) {
    double k = 0, a = 0;
    for (const EngineStats& s : stats) k += (s.*kept)[i], a += (s.*all)[i];
    out.push_back(a > 0 ? k / a : 1.0);
  }
  return out;
}

// [layers][heads], the ranks' heads put side by side.
std::vector<std::vector<double>> head_density(const VideoResult& run) {
  const std::size_t layers = run.stats[0].kept_by_head.size();
  std::vector<std::vector<double>> out(layers);
  for (std::size_t l = 0; l < layers; ++l) {
    for (const EngineStats& s : run.stats) {
      for (std::size_t h = 0; h < s.kept_by_head[l].size(); ++h) {
        out[l].push_back(s.all_by_head[l][h] > 0 ? s.kept_by_head[l][h] / s.all_by_head[l][h] : 1.0);
      }
    }
  }
  return out;
}

double overall_density(const std::vector<EngineStats>& stats) {
  double kept = 0, all = 0;
  for (const EngineStats& s : stats) kept += total(s.kept_by_step), all += total(s.all_by_step);
  return all > 0 ? kept / all : 1.0;
}

// Largest over mean.
double imbalance(const std::vector<double>& loads) {
  const double mean = total(loads) / static_cast<double>(loads.size());
  return mean > 0 ? *std::max_element(loads.begin(), loads.end()) / mean : 1.0;
}

std::int64_t sent(const VideoResult& run) {
  std::int64_t sum = 0;
  for (const auto& from : run.bytes_per_edge) {
    for (std::int64_t bytes : from) sum += bytes;
  }
  return sum;
}

MaskPicture picture_of(const HeadMask& m) {
  MaskPicture p{m.layer, static_cast<std::int32_t>(m.head), m.mask.q_blocks(), m.mask.k_blocks(), {}};
  p.kept.reserve(static_cast<std::size_t>(p.rows * p.columns));
  for (std::int64_t i = 0; i < p.rows; ++i) {
    for (std::int64_t j = 0; j < p.columns; ++j) p.kept.push_back(m.mask.test(0, 0, i, j) ? 1 : 0);
  }
  return p;
}

void fill_machine(RunReport& r, const VideoRequest& request) {
  r.tulle_version = version();
  r.tulle_commit = commit();
  r.processor = cpu_name();
  r.cores = cpu_count();
  r.threads = request.threads;
}

void fill_run(RunReport& r, const Loaded& loaded, const VideoResult& run) {
  r.parallel = run.plan.parallel;
  r.density = overall_density(run.stats);
  r.density_by_step = ratios(run.stats, &EngineStats::kept_by_step, &EngineStats::all_by_step);
  r.density_by_layer = ratios(run.stats, &EngineStats::kept_by_layer, &EngineStats::all_by_layer);
  r.density_by_head = head_density(run);
  const Route gemm = loaded.model.gemm_route();
  r.routes.push_back({gemm.what, gemm.route, gemm.why});
  for (const Route& route : run.stats[0].routes) r.routes.push_back({route.what, route.route, route.why});
  r.time = run.time;
  r.bytes_sent = sent(run);
  r.bytes_per_edge = run.bytes_per_edge;
  std::vector<double> blocks;
  for (const EngineStats& s : run.stats) blocks.push_back(total(s.kept_by_step));
  r.balance_blocks = imbalance(blocks);
  r.balance_time = imbalance(run.rank_attention_s);
  r.timeline = run.timeline;
  for (const HeadMask& m : run.masks) r.masks.push_back(picture_of(m));
}

void fill_comparison(RunReport& r, const VideoResult& run, const VideoResult& dense) {
  r.compared = true;
  r.dense_time = dense.time;
  r.dense_bytes_sent = sent(dense);
  r.speedup_attention = dense.time.attention_s / (run.time.attention_s + run.time.select_s);
  r.speedup_dit = dense.time.dit_s / run.time.dit_s;
  r.speedup_total = dense.time.total_s / run.time.total_s;
  const double share = dense.time.attention_s / dense.time.dit_s;
  r.amdahl_ceiling = 1.0 / (1.0 - share + share * r.density);
  r.psnr = psnr(run.video, dense.video);
  r.ssim = ssim(run.video, dense.video);
  r.relative_l2 = relative_l2(run.video.rgb, dense.video.rgb);
}

RunReport make_report(const Options& o, const Loaded& loaded, const VideoRequest& request, const VideoResult& run,
                      const VideoResult* dense, std::int64_t predicted) {
  RunReport r;
  r.predicted_memory = predicted;
  fill_machine(r, request);
  r.model = fs::path(loaded.folder).lexically_normal().filename().string();
  r.prompt = o.prompt;
  r.policy = request.policy.name;
  r.device = o.device;
  r.precision = loaded.model.precision() == Precision::kBf16 ? "bf16" : "f32";
  r.grid[0] = request.grid.frames, r.grid[1] = request.grid.height, r.grid[2] = request.grid.width;
  r.steps = request.sampler.steps;
  r.ranks = request.ranks;
  r.seed = request.seed;
  r.guidance = request.sampler.guidance;
  r.shift = request.sampler.shift;
  r.peak_memory = peak_memory();
  fill_run(r, loaded, run);
  if (dense != nullptr) fill_comparison(r, run, *dense);
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
  write_frames_sheet(out / "frames.png", rows, 7);
  write_file_atomic(out / "report.json", report_json(report) + "\n");
  write_report_html(out / "report.html", report, out / "video.mp4", dense != nullptr ? out / "dense.mp4" : fs::path(),
                    out / "frames.png");
}

void check_options(const Options& o) {
  require(o.device == "cpu", "--device {}: this build runs models on the cpu", o.device);
  require(o.parallel == "auto" || o.parallel == "ulysses", "--parallel {}: this version has auto and ulysses",
          o.parallel);
  require(o.compare.empty() || o.compare == "dense", "--compare {}: the one comparison there is: dense", o.compare);
  require(o.precision == "auto" || o.precision == "f32" || o.precision == "bf16",
          "--precision {}: use auto, f32 or bf16", o.precision);
  require(o.ranks >= 1, "--ranks {}: at least 1 is needed", o.ranks);
  require(o.fps >= 1 && o.fps <= 240, "--fps {}: use 1 to 240", o.fps);
}

int generate(const Options& o) {
  check_options(o);
  const Policy policy = load_policy(o.policy);
  // What can be refused is refused before minutes of work.
  parse_grid(o.grid);
  prepare_output_folder(o.out);
  if (const std::string problem = mp4_problem(); !problem.empty()) throw Error(ErrorCode::kUnsupported, problem);
  const Loaded loaded = load_model(o.model, precision_of(o));
  loaded.prompts.parse(o.prompt);
  VideoRequest request = request_of(o, loaded, policy);
  request.keep_masks = true;
  const std::int64_t predicted = predicted_memory(loaded, request);
  const VideoResult run = run_video(loaded, request);
  std::optional<VideoResult> dense;
  if (!o.compare.empty()) {
    VideoRequest dense_request = request_of(o, loaded, load_policy("dense"));
    dense = run_video(loaded, dense_request);
  }
  const RunReport report = make_report(o, loaded, request, run, dense ? &*dense : nullptr, predicted);
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
  app.add_option("--model", o->model, "folder with config.json, weights, vocabulary and codec")->capture_default_str();
  app.add_option("--prompt", o->prompt, "what to show, in the words of the model's vocabulary")->required();
  app.add_option("--grid", o->grid, "frames x height x width in tokens (models/tiny: 8x8 pixels each)")
      ->capture_default_str();
  app.add_option("--policy", o->policy, "a preset (dense, dfsattn) or a .json file")->capture_default_str();
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
      "Example:\n  tulle generate --prompt \"a large red striped circle moving left over grey waves\" --grid 13x20x24 \\\n"
      "      --policy dfsattn --ranks 2 --compare dense --out out/demo");
  return [o] { return generate(*o); };
}

}  // namespace tulle::cli
