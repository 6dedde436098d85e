#include "cli/run_report.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/system.hpp"
#include "tulle/profile.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {
namespace {

constexpr std::int64_t kSsimWindow = 11;  // smaller frames have no SSIM

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

// The rank maps that belong to the masks: the profile's, for this grid, order and block size.
void fill_blocks(RunReport& r, const VideoRequest& request, const VideoResult& run) {
  if (run.masks.empty()) return;
  const BlockMask& mask = run.masks.front().mask;
  r.blocks = {mask.q(), mask.k(), mask.order()};
  if (request.profile == nullptr) return;
  Sequence video;
  video.grid = request.grid;
  r.rank_maps = adapt(*request.profile, {video, mask.q().block}, {video, mask.k().block}, mask.order()).ranks;
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
  r.ssim = std::min(run.video.height, run.video.width) >= kSsimWindow ? ssim(run.video, dense.video)
                                                                      : std::numeric_limits<double>::quiet_NaN();
  r.relative_l2 = relative_l2(run.video.rgb, dense.video.rgb);
}

}  // namespace

double overall_density(const std::vector<EngineStats>& stats) {
  double kept = 0, all = 0;
  for (const EngineStats& s : stats) kept += total(s.kept_by_step), all += total(s.all_by_step);
  return all > 0 ? kept / all : 1.0;
}

RunReport make_report(const Loaded& loaded, const VideoRequest& request, const VideoResult& run,
                      const VideoResult* dense) {
  RunReport r;
  fill_machine(r, request);
  r.model = std::filesystem::path(loaded.folder).lexically_normal().filename().string();
  r.prompt = request.prompt;
  r.policy = request.policy.name;
  r.precision = loaded.model.precision() == Precision::kBf16 ? "bf16" : "f32";
  r.grid[0] = request.grid.frames, r.grid[1] = request.grid.height, r.grid[2] = request.grid.width;
  r.steps = request.sampler.steps;
  r.ranks = request.ranks;
  r.seed = request.seed;
  r.guidance = request.sampler.guidance;
  r.shift = request.sampler.shift;
  r.peak_memory = peak_memory();
  fill_run(r, loaded, run);
  fill_blocks(r, request, run);
  if (dense != nullptr) fill_comparison(r, run, *dense);
  return r;
}

}  // namespace tulle::cli
