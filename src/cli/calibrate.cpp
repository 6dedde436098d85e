// tulle calibrate: model and captions -> profile (WEST ranks and FAST curves), saved after every caption.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "base/system.hpp"
#include "calibrate/calibration.hpp"
#include "calibrate/findings.hpp"
#include "cli/captions.hpp"
#include "cli/command.hpp"
#include "cli/video_run.hpp"
#include "dit/model_hash.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultCaptions = 16;
constexpr std::int32_t kDefaultBins = 8;
constexpr std::int64_t kGateCaptions = 100;  // of a model's heldout.jsonl: kept for measuring what policies do

struct Options {
  std::string model = "models/tiny", grid = "9x16x16", captions, out = "out/profile.bin", order = "hilbert";
  std::string precision = "auto", sampler;
  std::int32_t block = 64, steps = 8;
  std::int64_t rows = 64, fidelity_count = 2;
  std::optional<std::int32_t> bins;
  std::optional<std::int64_t> count, skip;
  std::optional<double> guidance, shift;
  int threads = 0;
  std::uint64_t seed = 0;
  bool json = false, quiet = false;

  bool silent() const { return json || quiet; }
  std::int32_t parts() const { return bins.value_or(std::min(steps, kDefaultBins)); }
  fs::path partial() const { return out + ".partial"; }
};

void choose_captions(const Options& o, CalibrationPlan& plan) {
  const fs::path path = captions_path(o.model, o.captions);
  const std::vector<std::string> all = read_captions(path);
  const std::int64_t skip = o.skip.value_or(o.captions.empty() ? kGateCaptions : 0);
  const std::int64_t there = std::max<std::int64_t>(0, static_cast<std::int64_t>(all.size()) - skip);
  const std::int64_t count = o.count.value_or(o.captions.empty() ? kDefaultCaptions : there - o.fidelity_count);
  require(count >= 1 && o.fidelity_count >= 1, "--count {}, --fidelity-count {}: use at least 1 of each", count,
          o.fidelity_count);
  require(count <= there - o.fidelity_count,
          "{} has {} captions behind the first {}, but {} + {} are needed: give fewer", path.string(), there, skip,
          count, o.fidelity_count);
  const auto first = all.begin() + skip;
  plan.captions.assign(first, first + count);
  plan.fast_captions.assign(first + count, first + count + o.fidelity_count);
}

void check_options(const Options& o) {
  parse_precision(o.precision);
  require(o.threads >= 0, "--threads {}: use 0 for all cores, or a number of threads", o.threads);
  require(o.skip.value_or(0) >= 0, "--skip {}: use 0 or more", *o.skip);
  require(o.steps >= 1, "--steps {}: at least 1 is needed", o.steps);
  require(o.parts() >= 1 && o.parts() <= o.steps, "--bins {}: use 1 to {}, the number of steps", o.parts(), o.steps);
  require(o.rows >= 1, "--rows {}: use at least 1", o.rows);
  require(!fs::is_directory(o.out), "--out {}: this is a folder; name a file", o.out);
}

VideoRequest request_of(const Options& o, const Loaded& loaded) {
  VideoRequest r;
  r.grid = parse_grid(o.grid);
  r.policy = load_policy("dense");
  r.policy.order = parse_order(o.order);
  r.sampler = loaded.sampler;
  r.sampler.steps = o.steps;
  if (!o.sampler.empty()) r.sampler.kind = o.sampler;
  if (o.guidance) r.sampler.guidance = *o.guidance;
  if (o.shift) r.sampler.shift = *o.shift;
  r.threads = o.threads > 0 ? o.threads : Threads().width();
  r.quiet = true;  // one bar for all captions
  return r;
}

CalibrationPlan plan_of(const Options& o, const Loaded& loaded, const VideoRequest& request) {
  CalibrationPlan plan;
  plan.model_hash = model_hash(o.model);
  plan.q = plan.k = {{request.grid}, o.block};
  check_partition(plan.q);
  plan.order = request.policy.order;
  plan.layers = loaded.model.config().layers;
  plan.heads = loaded.model.config().heads;
  plan.steps = o.steps;
  plan.bins = o.parts();
  plan.rows = o.rows;
  plan.settings = {{"sampler", request.sampler.kind},
                   {"guidance", fmt::format("{}", request.sampler.guidance)},
                   {"shift", fmt::format("{}", request.sampler.shift)},
                   {"seed", fmt::format("{}", o.seed)},
                   {"precision", loaded.model.precision() == Precision::kBf16 ? "bf16" : "f32"}};
  choose_captions(o, plan);
  for (const auto* captions : {&plan.captions, &plan.fast_captions}) {
    for (const std::string& caption : *captions) loaded.prompts.parse(caption);  // refused now, not in an hour
  }
  return plan;
}

void refuse_if_too_large(const Loaded& loaded, const VideoRequest& request, const CalibrationPlan& plan) {
  const std::int64_t own = predicted_calibration_bytes(plan, loaded.model.config().head_dim, request.threads);
  const auto need = checked_add(predicted_memory(loaded, request) - resident_memory(), own);
  const std::int64_t have = available_memory();
  if (need && *need <= have) return;
  fail(ErrorCode::kOutOfMemory,
       "calibrating grid {} needs about {} more memory and {} are free: use a smaller grid or "
       "larger blocks",
       to_string(request.grid), human_bytes(static_cast<double>(own)), human_bytes(static_cast<double>(have)));
}

void go_on_from_partial(const Options& o, Calibration& calibration) {
  if (!fs::exists(o.partial())) return;
  const std::string bytes = read_file(o.partial(), std::size_t{1} << 36);
  calibration.restore(std::as_bytes(std::span(bytes)), o.partial().string());
  if (o.silent()) return;
  fmt::print(stderr, "going on from {}: {} of {} captions are done\n", o.partial().string(), calibration.done(),
             calibration.total());
}

[[noreturn]] void stopped(const Options& o, const Calibration& c) {
  if (c.done() == 0) fail(ErrorCode::kCancelled, "interrupted at caption 1 of {}: nothing is saved yet", c.total());
  fail(ErrorCode::kCancelled,
       "interrupted at caption {} of {}: {} are saved in {}; the same command goes on from there", c.done() + 1,
       c.total(), c.done(), o.partial().string());
}

void run_captions(const Options& o, const Loaded& loaded, VideoRequest request, Calibration& calibration) {
  const Threads threads(request.threads);
  const std::int64_t before = calibration.done(), steps = o.steps;
  Progress progress("calibrate", (calibration.total() - before) * steps, o.silent());
  request.observer = [&](const AttendCall& call, std::int64_t first_head, ConstTensorView q, ConstTensorView k,
                         const BlockMask*) { calibration.observe(call, first_head, q, k, threads); };
  request.on_step = [&](std::int32_t done) {
    progress.update((calibration.done() - before) * steps + done,
                    fmt::format("caption {}/{}", calibration.done() + 1, calibration.total()));
  };
  while (calibration.done() < calibration.total()) {
    request.prompt = calibration.caption();
    request.seed = o.seed + static_cast<std::uint64_t>(calibration.done());  // other noise for every caption
    try {
      if (interrupted) stopped(o, calibration);
      run_video(loaded, request);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kCancelled) stopped(o, calibration);
      throw;
    }
    calibration.end_caption();
    write_file_atomic(o.partial(), calibration.save());
  }
}

OrderedJson to_json(const Options& o, const Profile& profile, const Findings& f, double seconds) {
  OrderedJson heads = OrderedJson::array();
  for (const HeadNeed& h : f.heads) heads.push_back({{"layer", h.layer}, {"head", h.head}, {"density", h.density}});
  return {{"kind", "calibration"},
          {"out", o.out},
          {"model_hash", profile.model_hash},
          {"grid", to_string(profile.q().sequence.grid)},
          {"order", to_string(profile.order())},
          {"block", profile.q().block},
          {"steps", profile.steps},
          {"captions", profile.captions.size()},
          {"fidelity_captions", o.fidelity_count},
          {"seconds", seconds},
          {"union_density", profile.union_density},
          {"last_quarter", f.last_quarter},
          {"settled", f.settled},
          {"held_out_mass", f.held_out_mass},
          {"needed_mass", kNeededMass},
          {"needed_by_head", heads},
          {"needed_by_layer", f.by_layer},
          {"needed_by_part", f.by_bin}};
}

void tell(const Options& o, const Profile& profile, std::int64_t captions, double seconds) {
  const Findings findings = find(profile);
  if (o.json) {
    fmt::print("{}\n", to_json(o, profile, findings, seconds).dump(2));
    return;
  }
  fmt::print("{}", words(findings));
  if (captions > 0) {
    fmt::print("{} captions in {}, {} each\n", captions, human_seconds(seconds),
               human_seconds(seconds / static_cast<double>(captions)));
  }
  fmt::print("written: {} ({})\n", o.out, human_bytes(static_cast<double>(fs::file_size(o.out))));
}

int calibrate(const Options& o) {
  check_options(o);
  parse_grid(o.grid);
  parse_order(o.order);
  const fs::path folder = fs::path(o.out).parent_path();
  prepare_output_folder(folder.empty() ? fs::path(".") : folder);
  const Loaded loaded = load_model(o.model, parse_precision(o.precision));
  const VideoRequest request = request_of(o, loaded);
  const CalibrationPlan plan = plan_of(o, loaded, request);
  refuse_if_too_large(loaded, request, plan);
  Calibration calibration(plan);
  go_on_from_partial(o, calibration);
  const std::int64_t before = calibration.done();
  const double start = now_seconds();
  run_captions(o, loaded, request, calibration);
  const Profile profile = calibration.profile();
  write_file_atomic(o.out, serialize(profile));
  fs::remove(o.partial());
  tell(o, profile, calibration.total() - before, now_seconds() - start);
  return 0;
}

}  // namespace

std::function<int()> declare_calibrate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "folder with config.json, weights, vocabulary and codec")->capture_default_str();
  app.add_option("--grid", o->grid, "frames x height x width in tokens")->capture_default_str();
  app.add_option("--captions", o->captions,
                 "one caption a line, or .jsonl with a \"caption\" (default: the model's heldout.jsonl)");
  app.add_option("--count", o->count, "captions for the rank maps (default: 16 of heldout.jsonl; all of --captions)");
  app.add_option("--fidelity-count", o->fidelity_count, "further captions, for the fidelity curves")
      ->capture_default_str();
  app.add_option("--skip", o->skip, "captions left out at the start (default: 100 of heldout.jsonl; 0 of --captions)");
  app.add_option("--steps", o->steps, "sampler steps of each run")->capture_default_str();
  app.add_option(
      "--bins", o->bins,
      "parts of the run that get curves of their own; one step of each is measured (default: 8, or all steps)");
  app.add_option("--rows", o->rows, "query rows per call and head that fidelity is measured on")->capture_default_str();
  app.add_option("--order", o->order, "token order: raster, tile, morton, hilbert or gilbert")->capture_default_str();
  app.add_option("--block", o->block, "tokens in a block")->capture_default_str();
  app.add_option("--out", o->out, "profile to write; the state so far is kept beside it as .partial")
      ->capture_default_str();
  app.add_option("--guidance", o->guidance, "classifier-free guidance scale, 1 for none (default: the model's)");
  app.add_option("--shift", o->shift, "timestep shift of the sampler (default: the model's)");
  app.add_option("--sampler", o->sampler, "euler or unipc (default: the model's)");
  app.add_option("--seed", o->seed, "seed of the first caption's noise; the next ones count up")->capture_default_str();
  app.add_option("--precision", o->precision, "of matrix products: auto, f32 or bf16")->capture_default_str();
  app.add_option("--threads", o->threads, "threads (default: all cores)");
  app.add_flag("--json", o->json, "print what was learned as JSON, no progress");
  app.add_flag("--quiet", o->quiet, "no progress bar");
  app.footer("Example:\n  tulle calibrate --model models/tiny --grid 9x16x16 --count 16 --out out/profile.bin");
  return [o] { return calibrate(*o); };
}

}  // namespace tulle::cli
