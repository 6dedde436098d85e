// A small report with every field set, for tests.
#pragma once

#include "tulle/report.hpp"

namespace tulle {

inline RunReport sample_report(bool compared) {
  RunReport r;
  r.tulle_version = "1.2.3", r.tulle_commit = "abcdef012345";
  r.processor = "A processor", r.cores = 8, r.threads = 6;
  r.model = "tiny", r.prompt = "a large red circle moving left over grey waves";
  r.policy = "dfsattn", r.parallel = "ulysses", r.device = "cpu", r.precision = "f32";
  r.grid[0] = 9, r.grid[1] = 16, r.grid[2] = 16;
  r.steps = 4, r.ranks = 2, r.seed = 18446744073709551615u;
  r.guidance = 4, r.shift = 3;
  r.density = 0.25;
  r.density_by_step = {1, 0.5, 0.25, 0.125};
  r.density_by_layer = {0.3, 0.2};
  r.density_by_head = {{0.25, 0.35}, {0.1, 0.3}};
  r.routes = {{"attention", "avx2", "the machine has AVX2 and FMA"}, {"video", "libx264", ""}};
  r.time = {2, 0.5, 0.25, 5, 6};
  if (compared) {
    r.compared = true;
    r.dense_time = {5, 0, 0.5, 8, 8.25};
    r.speedup_attention = 2, r.speedup_dit = 1.6, r.speedup_total = 1.375, r.amdahl_ceiling = 1.88;
    r.psnr = 31.5, r.ssim = 0.95, r.relative_l2 = 0.07;
    r.dense_bytes_sent = 65536;
  }
  r.bytes_sent = 8192;
  r.bytes_per_edge = {{0, 4096}, {4096, 0}};
  r.balance_blocks = 1.05, r.balance_time = 1.1;
  r.predicted_memory = 1000000, r.peak_memory = 900000;
  r.masks = {{1, 3, 2, 5, {1, 0, 0, 0, 0, 0, 1, 0, 1, 0}}};
  r.timeline = {{"attention", 0, 0.0, 0.5}, {"select", 1, 0.5, 0.75}};
  return r;
}

}  // namespace tulle
