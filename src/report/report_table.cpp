// The table that `tulle generate` prints.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.hpp"
#include "base/progress.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

using Row = std::array<std::string, 4>;  // what, this run, dense run, ratio

std::string times(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : ""; }

std::string seconds(double s) { return fmt::format("{:.3f} s", s); }

Row time_row(const char* what, const RunReport& r, double ReportTimes::*field, double speedup) {
  return {what, seconds(r.time.*field), r.compared ? seconds(r.dense_time.*field) : "",
          r.compared ? times(speedup) : ""};
}

std::vector<Row> rows_of(const RunReport& r) {
  std::vector<Row> rows;
  rows.push_back({"", r.policy, r.compared ? "dense" : "", r.compared ? "speed-up" : ""});
  rows.push_back({"density", fmt::format("{:.4f}", r.density), r.compared ? "1.0000" : "", ""});
  rows.push_back(time_row("attention", r, &ReportTimes::attention_s, r.speedup_attention));
  rows.push_back(time_row("selection", r, &ReportTimes::select_s, 0));
  rows.push_back(time_row("communication", r, &ReportTimes::communication_s, 0));
  rows.push_back(time_row("DiT", r, &ReportTimes::dit_s, r.speedup_dit));
  rows.push_back(time_row("total", r, &ReportTimes::total_s, r.speedup_total));
  if (r.compared) {
    rows.push_back({"Amdahl ceiling", "", "", times(r.amdahl_ceiling)});
    rows.push_back({"PSNR", std::isinf(r.psnr) ? "equal" : fmt::format("{:.2f} dB", r.psnr), "", ""});
    rows.push_back({"SSIM", std::isfinite(r.ssim) ? fmt::format("{:.4f}", r.ssim) : "frames too small", "", ""});
    rows.push_back({"relative L2", fmt::format("{:.4f}", r.relative_l2), "", ""});
  }
  if (r.ranks > 1) {
    rows.push_back({"between ranks", human_bytes(static_cast<double>(r.bytes_sent)),
                    r.compared ? human_bytes(static_cast<double>(r.dense_bytes_sent)) : "", ""});
    rows.push_back(
        {"balance (max/mean)", fmt::format("{:.3f} blocks, {:.3f} time", r.balance_blocks, r.balance_time), "", ""});
  }
  rows.push_back({"peak memory", human_bytes(static_cast<double>(r.peak_memory)), "", ""});
  return rows;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string report_table(const RunReport& r) {
  const std::vector<Row> rows = rows_of(r);
  std::array<std::size_t, 4> width{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string text = fmt::format("{}, {}x{}x{} tokens, {} steps, {}, {} rank{}\n", r.model, r.grid[0], r.grid[1],
                                 r.grid[2], r.steps, r.device, r.ranks, r.ranks == 1 ? "" : "s");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    text += without_trailing_blanks(fmt::format("{:<{}}  {:>{}}  {:>{}}  {:>{}}", row[0], width[0], row[1], width[1],
                                                row[2], width[2], row[3], width[3]));
    if (i + 1 < rows.size()) text += '\n';
  }
  return text;
}

}  // namespace tulle
