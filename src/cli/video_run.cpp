#include "cli/video_run.hpp"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/progress.hpp"
#include "base/system.hpp"
#include "cli/command.hpp"
#include "dit/model_hash.hpp"
#include "run/gather.hpp"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxProfileBytes = std::size_t{1} << 32;

SamplerOptions read_sampler(const fs::path& path) {
  SamplerOptions options;
  if (!fs::exists(path)) return options;
  const std::string where = path.string();
  const Json json = parse_json(read_file(path, 1 << 16), where).value();
  constexpr std::string_view kKnown[] = {"sampler", "steps", "shift", "guidance"};
  refuse_unknown_keys(json, kKnown, where);
  options.kind = json_get<std::string>(json, "sampler", options.kind, where);
  options.steps = json_get<std::int32_t>(json, "steps", options.steps, where);
  options.shift = json_get<double>(json, "shift", options.shift, where);
  options.guidance = json_get<double>(json, "guidance", options.guidance, where);
  return options;
}

PlanRequest plan_request(const Loaded& loaded, const VideoRequest& request) {
  const WanConfig& c = loaded.model.config();
  PlanRequest r;
  r.sequence.grid = request.grid;
  r.heads = c.heads;
  r.head_dim = c.head_dim;
  r.layers = c.layers;  // hidden and ffn stay 0: the model predicts its own activations
  r.ranks = request.ranks;
  r.mask_block = std::min(request.policy.block_q, request.policy.block_k);
  return r;
}

// Latent extents of a token grid.
struct LatentShape {
  std::int64_t channels, frames, height, width;
  std::size_t size() const { return static_cast<std::size_t>(channels * frames * height * width); }
};

LatentShape latent_shape(const WanConfig& c, std::int64_t channels, const TokenGrid& g) {
  return {channels, g.frames * c.patch_t, g.height * c.patch_h, g.width * c.patch_w};
}

// Differences of an Engine's running sums over one step, laid end to end: a timeline by phases.
class StepClock {
 public:
  StepClock(std::int32_t rank, double start) : rank_(rank), start_(start), last_(start) {}

  void step(const EngineStats& now, double time, std::vector<TimelineSpan>& spans) {
    const double parts[] = {now.attention_s - attention_, now.select_s - select_, now.communication_s - communication_};
    constexpr const char* kNames[] = {"attention", "select", "communication"};
    double at = last_ - start_;
    for (int i = 0; i < 3; ++i) {
      if (parts[i] <= 0) continue;
      spans.push_back({kNames[i], rank_, at, at + parts[i]});
      at += parts[i];
    }
    spans.push_back({"other", rank_, at, std::max(at, time - start_)});
    attention_ = now.attention_s, select_ = now.select_s, communication_ = now.communication_s, last_ = time;
  }

 private:
  std::int32_t rank_;
  double start_, last_, attention_ = 0, select_ = 0, communication_ = 0;
};

// Everything one rank does for one video.
class RankRun {
 public:
  RankRun(const Loaded& loaded, const VideoRequest& request, Fabric& fabric, double start, Progress* progress)
      : loaded_(loaded),
        request_(request),
        fabric_(fabric),
        progress_(progress),
        threads_(std::max(1, request.threads / request.ranks)),
        engine_(engine_options(), fabric, threads_),
        workspace_(loaded.model.make_workspace()),
        sampler_(request.sampler),
        clock_(fabric.rank(), start) {
    if (request.observer) engine_.on_attend(request.observer);
  }

  // Returns all latents [channels, frames, height, width] (every rank holds them in the end).
  std::vector<float> sample(std::vector<TimelineSpan>& spans) {
    prepare();
    for (std::int32_t s = 0; s < sampler_.steps(); ++s) {
      if (interrupted) fail(ErrorCode::kCancelled, "interrupted at step {} of {}", s + 1, sampler_.steps());
      const double begin = now_seconds();
      velocity(s);
      sampler_.advance(s, cond_, tokens_);
      dit_s_ += now_seconds() - begin;
      clock_.step(engine_.stats(), now_seconds(), spans);
      if (progress_ != nullptr) progress_->update(s + 1);
      if (request_.on_step && fabric_.rank() == 0) request_.on_step(s + 1);
    }
    return collect();
  }

  const Engine& engine() const { return engine_; }
  double dit_seconds() const { return dit_s_; }

 private:
  EngineOptions engine_options() const {
    const WanConfig& c = loaded_.model.config();
    EngineOptions o;
    o.policy = request_.policy;
    o.profile = request_.profile;
    o.sequence.grid = request_.grid;
    o.heads = c.heads, o.head_dim = c.head_dim, o.layers = c.layers;
    o.keep_masks = request_.keep_masks;
    return o;
  }

  void prepare() {
    const WanConfig& c = loaded_.model.config();
    const Range local = engine_.local_tokens();
    text_ = loaded_.prompts.encode(request_.prompt);
    no_text_ = loaded_.prompts.encode("");
    tokens_.resize(static_cast<std::size_t>(local.size() * c.patch_features()));
    cond_.resize(static_cast<std::size_t>(local.size() * c.out_features()));
    uncond_.resize(cond_.size());
    // Noise belongs to raster positions of the latents, so that it is the same for every order and number of ranks.
    std::vector<float> noise(latent_shape(c, c.in_channels, request_.grid).size());
    fill_noise(request_.seed, 0, noise);
    patchify(noise, c, engine_.order(), local, tokens_);
  }

  void forward(std::int32_t step, Branch branch, const std::vector<float>& text, std::vector<float>& out) {
    const float timestep = sampler_.timestep(step);
    WanModel::Input input;
    input.latents = tokens_;
    input.timesteps = {&timestep, 1};
    input.text = text;
    input.text_tokens = loaded_.prompts.slots();
    input.step = step;
    input.steps = sampler_.steps();
    input.branch = branch;
    loaded_.model.forward(input, engine_, threads_, *workspace_, out, request_.check_finite);
  }

  void velocity(std::int32_t step) {
    forward(step, Branch::kConditional, text_, cond_);
    if (request_.sampler.guidance == 1.0) return;
    forward(step, Branch::kUnconditional, no_text_, uncond_);
    apply_guidance(cond_, uncond_, static_cast<float>(request_.sampler.guidance));
  }

  std::vector<float> collect() {
    const WanConfig& c = loaded_.model.config();
    const std::vector<float> all = gather_tokens(fabric_, engine_.plan(), tokens_, c.patch_features());
    std::vector<float> latents(latent_shape(c, c.in_channels, request_.grid).size());
    unpatchify(all, c, engine_.order(), {0, request_.grid.tokens()}, latents);
    return latents;
  }

  const Loaded& loaded_;
  const VideoRequest& request_;
  Fabric& fabric_;
  Progress* progress_;
  Threads threads_;
  Engine engine_;
  WanModel::WorkspacePtr workspace_;
  Sampler sampler_;
  StepClock clock_;
  std::vector<float> text_, no_text_, tokens_, cond_, uncond_;
  double dit_s_ = 0;
};

void keep_masks(const Engine& engine, Range heads, std::int64_t layers, std::vector<HeadMask>& kept) {
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const BlockMask* mask = engine.mask(static_cast<std::int32_t>(layer), Branch::kConditional);
    if (mask == nullptr) continue;
    for (std::int64_t h = 0; h < heads.size(); ++h) {
      kept.push_back({static_cast<std::int32_t>(layer), heads.begin + h, slice_heads(*mask, h, h + 1)});
    }
  }
}

Video decode(const Codec& codec, const WanConfig& c, const TokenGrid& grid, std::span<const float> latents) {
  const LatentShape shape = latent_shape(c, c.out_channels, grid);
  Video video{shape.frames, shape.height * codec.stride(), shape.width * codec.stride(), {}};
  video.rgb.resize(static_cast<std::size_t>(video.frames * video.height * video.width * 3));
  codec.decode(latents, shape.frames, shape.height, shape.width, video.rgb);
  return video;
}

double mean(const std::vector<EngineStats>& stats, double EngineStats::*field) {
  double sum = 0;
  for (const EngineStats& s : stats) sum += s.*field;
  return sum / static_cast<double>(stats.size());
}

// The parts of a model folder must fit each other.
void check_parts(const Loaded& loaded) {
  const WanConfig& c = loaded.model.config();
  const auto fits = [&](const char* what, std::int64_t have, std::int64_t want) {
    if (have == want) return;
    fail(ErrorCode::kBadFile, "{}: {} are {} where config.json needs {}", loaded.folder, what, have, want);
  };
  fits("the model's out_channels", c.out_channels, c.in_channels);
  fits("the codec's channels", loaded.codec.channels(), c.in_channels);
  fits("the text encoder's features", loaded.prompts.text_dim(), c.text_dim);
}

void refuse_if_too_large(const Loaded& loaded, const VideoRequest& request) {
  const std::int64_t need = predicted_memory(loaded, request) - resident_memory(), have = available_memory();
  if (need <= have) return;
  fail(ErrorCode::kOutOfMemory, "grid {} needs about {} more memory on {} rank(s) and {} are free: use a smaller grid",
       to_string(request.grid), human_bytes(static_cast<double>(need)), request.ranks,
       human_bytes(static_cast<double>(have)));
}

}  // namespace

Precision parse_precision(const std::string& text) {
  require(text == "auto" || text == "f32" || text == "bf16", "--precision {}: use auto, f32 or bf16", text);
  if (text == "auto") return default_precision();
  return text == "bf16" ? Precision::kBf16 : Precision::kF32;
}

Loaded load_model(const std::string& folder, Precision precision) {
  if (!fs::is_directory(folder)) {
    fail(ErrorCode::kInvalidArgument, "--model {}: there is no such folder (models/tiny ships with the source)",
         folder);
  }
  Loaded loaded{folder, WanModel::load(folder, precision), PromptEncoder::load(folder), Codec::load(folder),
                read_sampler(fs::path(folder) / "sampler.json")};
  check_parts(loaded);
  return loaded;
}

std::string shipped_profile(const std::string& model, const TokenGrid& grid) {
  const std::filesystem::path path = std::filesystem::path(model) / "profiles" / (to_string(grid) + ".bin");
  return std::filesystem::exists(path) ? path.string() : "";
}

std::shared_ptr<const Profile> load_profile(const std::string& path, const Loaded& loaded) {
  if (path.empty()) return nullptr;
  const std::string bytes = read_file(path, kMaxProfileBytes);
  auto profile = std::make_shared<const Profile>(parse_profile(std::as_bytes(std::span(bytes)), path).value());
  require_model(*profile, model_hash(loaded.folder), path);
  return profile;
}

std::int64_t predicted_memory(const Loaded& loaded, const VideoRequest& request) {
  const WanConfig& c = loaded.model.config();
  const Plan plan = make_plan(plan_request(loaded, request));
  std::int64_t activations = 0;
  for (const Range& r : plan.tokens) activations += predicted_activation_bytes(c, r.size(), 1, loaded.prompts.slots());
  // Per rank: noise, gathered tokens, latents, the other branch and four past states of UniPC; once: decoded frames
  // (f32) of the sparse and the dense run, the residuals that a policy holds, and the masks kept for the report as bits
  // and as one byte a block, with the ranks beside them where there is a profile.
  const std::int64_t latents = request.grid.tokens() * c.patch_features() * 4;
  const std::int64_t blocks = ceil_div(request.grid.tokens(), std::min(request.policy.block_q, request.policy.block_k));
  const std::int64_t pictures = request.keep_masks ? (request.profile ? 3 : 2) : 0;
  const auto kept = checked_product({c.layers, c.heads, blocks, blocks, pictures});
  require(kept.has_value(), "--grid {}: too many blocks to count their bytes", to_string(request.grid));
  const std::int64_t branches = request.sampler.guidance > 1 ? 2 : 1;
  const bool follow = branches == 2 && !request.policy.follow.starts.empty();  // one output and one difference a layer
  const std::int64_t held = (request.policy.residual ? branches - (follow ? 1 : 0) : 0) + (follow ? 2 : 0);
  const std::int64_t residuals = held * c.layers * request.grid.tokens() * c.heads * c.head_dim * 4;
  const std::int64_t frames = 2 * request.grid.tokens() * c.patch_h * c.patch_w * 16 * 3 * 4;
  return resident_memory() + plan.peak_bytes + activations + 8 * latents * request.ranks + frames + *kept + residuals;
}

VideoResult run_video(const Loaded& loaded, const VideoRequest& request) {
  require(request.sampler.guidance >= 1.0, "--guidance {}: it must be at least 1 (1 switches guidance off)",
          request.sampler.guidance);
  refuse_if_too_large(loaded, request);
  const auto ranks = static_cast<std::size_t>(request.ranks);
  const double start = now_seconds();
  VideoResult result;
  result.stats.resize(ranks);
  result.bytes_per_edge.resize(ranks);
  result.rank_attention_s.resize(ranks);
  std::vector<std::vector<TimelineSpan>> spans(ranks);
  std::vector<std::vector<HeadMask>> masks(ranks);
  std::vector<double> dit(ranks);
  std::vector<float> latents;
  Progress progress(request.label, request.sampler.steps, request.quiet);

  run_ranks(request.ranks, env().timeout_s, [&](Fabric& fabric) {
    const auto r = static_cast<std::size_t>(fabric.rank());
    RankRun run(loaded, request, fabric, start, r == 0 ? &progress : nullptr);
    std::vector<float> all = run.sample(spans[r]);
    dit[r] = run.dit_seconds();
    result.stats[r] = run.engine().stats();
    result.bytes_per_edge[r] = fabric.bytes_sent();
    result.rank_attention_s[r] = result.stats[r].attention_s;
    if (request.keep_masks)
      keep_masks(run.engine(), run.engine().plan().heads[r], loaded.model.config().layers, masks[r]);
    if (r == 0) latents = std::move(all), result.plan = run.engine().plan();
  });
  progress.finish();

  result.video = decode(loaded.codec, loaded.model.config(), request.grid, latents);
  for (std::size_t r = 0; r < ranks; ++r) {
    result.timeline.insert(result.timeline.end(), spans[r].begin(), spans[r].end());
    std::move(masks[r].begin(), masks[r].end(), std::back_inserter(result.masks));
  }
  result.time = {mean(result.stats, &EngineStats::attention_s), mean(result.stats, &EngineStats::select_s),
                 mean(result.stats, &EngineStats::communication_s), *std::max_element(dit.begin(), dit.end()),
                 now_seconds() - start};
  return result;
}

}  // namespace tulle::cli
