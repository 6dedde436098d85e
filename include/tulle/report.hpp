// Report: what a run did, as JSON and as one self-contained HTML page; pictures, videos and quality metrics.
// Thread safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tulle/mask.hpp"
#include "tulle/rank_map.hpp"

namespace tulle {

// RGB video in [0, 1], [frames, height, width, 3] packed.
struct Video {
  std::int64_t frames = 0, height = 0, width = 0;
  std::vector<float> rgb;
};

// Over the whole clip, on pixels clipped to [0, 1], before video coding. Throw Error(kInvalidArgument) unless shapes
// match.
double psnr(const Video& a, const Video& b);  // dB; equal clips give +infinity
double ssim(const Video& a,
            const Video& b);  // Wang et al. 2004: 11x11 Gaussian window (sigma 1.5), mean over luma frames
double relative_l2(std::span<const float> value, std::span<const float> reference);

// Files; each is written under a temporary name first. Throw Error(kIo).
void write_png(const std::filesystem::path& path, std::int64_t height, std::int64_t width, std::span<const float> rgb);
// H.264 in MP4 through libav, in a shared object that is loaded when used. Throws Error(kUnsupported) that says what to
// install when it cannot be loaded.
void write_mp4(const std::filesystem::path& path, const Video& video, int frames_per_second);
// "" when write_mp4 can work here, else the sentence it would throw. Ask before minutes of work.
std::string mp4_problem();
// A sheet of up to `columns` frames of each video, one row a video.
void write_frames_sheet(const std::filesystem::path& path, std::span<const Video> videos, int columns);

// .npy, unsigned bytes [n, frames, height, width, 3] (or without n): how clips travel between tools.
std::vector<Video> read_clips(const std::filesystem::path& path);
void write_clips(const std::filesystem::path& path, std::span<const Video> videos);

// --- pictures of what is kept (PNG) ---
//
// As matrices: query blocks down, key blocks across, kept blocks dark; ranks from dark (small: kept first) to light, by
// the root of the rank. At least 4 pixels a block, fewer only where the picture would have more than 2^24 pixels or a
// side of more than 8192. Without a head: all heads, sample after sample, left to right, then down. All throw
// Error(kInvalidArgument) for a sample, head or block that does not exist and for more blocks than pixels, Error(kIo)
// as write_png.
void write_mask_png(const std::filesystem::path& path, const BlockMask& mask);
void write_mask_png(const std::filesystem::path& path, const BlockMask& mask, std::int64_t b, std::int64_t head);
void write_rank_map_png(const std::filesystem::path& path, const RankMap& map);
void write_rank_map_png(const std::filesystem::path& path, const RankMap& map, std::int64_t head);
// In the video: all frames of the grid, every token in the colour of its key block for one query block, whose own
// tokens are outlined in orange. At least 6 pixels a token within the same bounds. Text is not shown.
void write_mask_video_png(const std::filesystem::path& path, const BlockMask& mask, std::int64_t b, std::int64_t head,
                          std::int64_t query_block);
void write_rank_map_video_png(const std::filesystem::path& path, const RankMap& map, std::int64_t head,
                              std::int64_t query_block);
// The block that holds the token in the middle of the middle frame.
std::int64_t centre_block(const BlockPartition& q, OrderKind order);

// --- the rule-based checker of generated clips (models/tiny's world of moving shapes) ---

struct ObjectFacts {
  std::string colour, shape, motion;  // words of the vocabulary; motion: left, right, up, down, still
  bool operator==(const ObjectFacts&) const = default;
};

// What is seen in a clip: objects sorted by colour name. Uses colours, region moments and tracking; no learned part.
std::vector<ObjectFacts> observe_clip(const Video& video);

struct CheckResult {
  bool count = false, colours = false, shapes = false, motions = false;
  bool passed() const { return count && colours && shapes && motions; }
};
// Compares what was asked for with what is seen.
CheckResult check_clip(const Video& video, std::span<const ObjectFacts> expected);

// --- report.json (schema 1) and report.html ---

struct ReportRoute {
  std::string what, route, why;
};

struct ReportTimes {
  double attention_s = 0, select_s = 0, communication_s = 0, dit_s = 0, total_s = 0;
};

struct MaskPicture {  // one head's mask, for the page
  std::int32_t layer = 0, head = 0;
  std::int64_t rows = 0, columns = 0;
  std::vector<std::uint8_t> kept;  // [rows * columns], 0 or 1
};

// Which blocks the pictures are of; all of one run are of the same.
struct MaskBlocks {
  BlockPartition q, k;
  OrderKind order = OrderKind::kRaster;
};

struct TimelineSpan {  // one thing that happened, for the page's timeline
  std::string name;    // "attention", "select", "communication", "other"
  std::int32_t rank = 0;
  double begin_s = 0, end_s = 0;
};

struct RunReport {
  std::string tulle_version, tulle_commit;
  std::string processor;
  int cores = 0, threads = 0;
  std::string gpu;  // "" when none was used
  std::string model, prompt, policy, parallel, device, precision;
  std::int32_t grid[3] = {0, 0, 0};
  std::int32_t steps = 0, ranks = 1;
  std::uint64_t seed = 0;
  double guidance = 1, shift = 1;
  double density = 1;
  std::vector<double> density_by_step, density_by_layer;
  std::vector<std::vector<double>> density_by_head;  // [layers][heads]
  std::vector<ReportRoute> routes;
  ReportTimes time, dense_time;
  bool compared = false;  // the dense run below exists
  double speedup_attention = 0, speedup_dit = 0, speedup_total = 0, amdahl_ceiling = 0;
  double psnr = 0, ssim = 0, relative_l2 = 0;  // ssim is NaN (null in JSON) for frames with a side under 11 pixels
  std::int64_t bytes_sent = 0, dense_bytes_sent = 0;
  std::vector<std::vector<std::int64_t>> bytes_per_edge;  // [from][to]
  double balance_blocks = 1, balance_time = 1;            // largest over mean, over ranks
  std::int64_t predicted_memory = 0, peak_memory = 0;
  // For the page only.
  std::vector<MaskPicture> masks;
  std::optional<MaskBlocks> blocks;  // of the masks, so that they are shown in the video, too
  std::vector<RankMap> rank_maps;    // [layers], of the same blocks, where a profile was given; shown beside the masks
  std::vector<TimelineSpan> timeline;
};

std::string report_json(const RunReport& report);
// Reads a report back; unknown schema numbers and malformed files give Error(kBadFile).
RunReport parse_report(const std::string& json_text, const std::string& where);
// The page embeds both videos, the frame sheet and the picture data; it needs no network. Of masks and rank maps it
// takes 4 MiB at most, thins them out evenly to that, and says how many it left out. Throws Error(kInvalidArgument) for
// masks and rank maps that do not fit each other.
void write_report_html(const std::filesystem::path& path, const RunReport& report,
                       const std::filesystem::path& video_mp4, const std::filesystem::path& dense_mp4,
                       const std::filesystem::path& frames_png);
// The table that `tulle generate` prints.
std::string report_table(const RunReport& report);

}  // namespace tulle
