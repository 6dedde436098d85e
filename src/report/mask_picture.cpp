// Pictures of masks and rank maps: as matrices of blocks, and in the frames of the video.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

struct Colour {
  float r, g, b;
};

constexpr Colour kKept = {0.10f, 0.25f, 0.55f}, kDropped = {0.90f, 0.92f, 0.94f}, kPaper = {1, 1, 1},
                 kOutline = {0.95f, 0.30f, 0.05f};
constexpr std::int64_t kGap = 4;  // pixels between tiles
constexpr std::int64_t kLargestSide = 8192, kMostPixels = std::int64_t{1} << 24;
constexpr std::int64_t kBlockPixels = 4, kTokenPixels = 6;  // the least, where the picture is not too large for it
constexpr std::int64_t kTileSide = 320, kFrameRow = 960;    // pixels that small tiles and grids are scaled up to

// From the smallest rank, dark, to the largest, light. Lightness rises all the way, so that it reads without colour.
constexpr std::array<Colour, 5> kRamp = {{{0.06f, 0.03f, 0.24f},
                                          {0.17f, 0.24f, 0.55f},
                                          {0.16f, 0.53f, 0.60f},
                                          {0.52f, 0.78f, 0.55f},
                                          {0.97f, 0.95f, 0.76f}}};

// By the root of the rank: most of what is kept has a small one.
Colour rank_colour(std::uint8_t rank) {
  const float place =
      std::sqrt(static_cast<float>(std::max<int>(rank, 1) - 1) / 254.0f) * static_cast<float>(kRamp.size() - 1);
  const std::size_t at = std::min(static_cast<std::size_t>(place), kRamp.size() - 2);
  const float t = place - static_cast<float>(at);
  const Colour &a = kRamp[at], &b = kRamp[at + 1];
  return {a.r + t * (b.r - a.r), a.g + t * (b.g - a.g), a.b + t * (b.b - a.b)};
}

Colour kept_colour(bool kept) { return kept ? kKept : kDropped; }

class Canvas {
 public:
  Canvas(std::int64_t height, std::int64_t width)
      : height_(height), width_(width), rgb_(static_cast<std::size_t>(height * width * 3)) {
    fill(0, 0, height, width, kPaper);
  }
  void fill(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width, const Colour& c) {
    for (std::int64_t row = y; row < y + height; ++row) {
      float* pixel = rgb_.data() + (row * width_ + x) * 3;
      for (std::int64_t i = 0; i < width; ++i, pixel += 3) pixel[0] = c.r, pixel[1] = c.g, pixel[2] = c.b;
    }
  }
  void write(const std::filesystem::path& path) const { write_png(path, height_, width_, rgb_); }

 private:
  std::int64_t height_, width_;
  std::vector<float> rgb_;
};

// Tiles of equal size, left to right, then down.
struct Sheet {
  std::int64_t rows, columns;  // cells of a tile
  std::int64_t tiles, tiles_across;
  std::int64_t scale = 1;  // pixels a cell

  std::int64_t tiles_down() const { return ceil_div(tiles, tiles_across); }
  std::int64_t width() const { return tiles_across * (columns * scale + kGap) - kGap; }
  std::int64_t height() const { return tiles_down() * (rows * scale + kGap) - kGap; }
  std::int64_t x(std::int64_t tile) const { return tile % tiles_across * (columns * scale + kGap); }
  std::int64_t y(std::int64_t tile) const { return tile / tiles_across * (rows * scale + kGap); }
  bool fits() const { return width() <= kLargestSide && height() <= kLargestSide && width() * height() <= kMostPixels; }
};

// The largest scale up to `wanted` that fits.
void choose_scale(Sheet& sheet, std::int64_t wanted, const std::filesystem::path& path) {
  for (sheet.scale = wanted; sheet.scale > 1 && !sheet.fits();) --sheet.scale;
  require(sheet.fits(),
          "cannot draw {}: {} tiles of {} x {} cells need more than {} pixels; draw one head, or one query",
          path.string(), sheet.tiles, sheet.rows, sheet.columns, kMostPixels);
}

// --- matrices: query blocks down, key blocks across ---

using CellColour = std::function<Colour(std::int64_t tile, std::int64_t q_block, std::int64_t k_block)>;

void draw_matrices(const std::filesystem::path& path, std::int64_t tiles, std::int64_t q_blocks, std::int64_t k_blocks,
                   const CellColour& colour) {
  require(q_blocks >= 1 && k_blocks >= 1, "cannot draw {}: there are no blocks", path.string());
  const auto across = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(tiles))));
  Sheet sheet{q_blocks, k_blocks, tiles, across};
  choose_scale(sheet, std::max(kBlockPixels, kTileSide / std::max(q_blocks, k_blocks)), path);
  Canvas canvas(sheet.height(), sheet.width());
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    for (std::int64_t q = 0; q < q_blocks; ++q) {
      for (std::int64_t k = 0; k < k_blocks; ++k) {
        canvas.fill(sheet.y(tile) + q * sheet.scale, sheet.x(tile) + k * sheet.scale, sheet.scale, sheet.scale,
                    colour(tile, q, k));
      }
    }
  }
  canvas.write(path);
}

void check_head(const std::filesystem::path& path, std::int64_t head, std::int64_t heads) {
  require(head >= 0 && head < heads, "cannot draw {}: there is no head {}, only 0 to {}", path.string(), head,
          heads - 1);
}

void check_sample(const std::filesystem::path& path, std::int64_t b, std::int64_t batch) {
  require(b >= 0 && b < batch, "cannot draw {}: there is no sample {}, only 0 to {}", path.string(), b, batch - 1);
}

// --- in the video ---

// Which block each token of the grid belongs to, in raster order.
std::vector<std::int64_t> block_of_raster(const BlockPartition& p, const TokenOrder& order) {
  std::vector<std::int64_t> blocks(order.memory_of_raster.size());
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    blocks[r] = p.block_of(p.sequence.video_begin() + order.memory_of_raster[r]);
  }
  return blocks;
}

Sheet frames_of(const TokenGrid& g, const std::filesystem::path& path) {
  Sheet best{g.height, g.width, g.frames, 1};
  const auto side = [](const Sheet& s) { return std::max(s.width() * 5, s.height() * 8); };  // about 8 to 5
  for (Sheet s = best; s.tiles_across <= s.tiles; ++s.tiles_across) {
    if (side(s) < side(best)) best = s;
  }
  choose_scale(best, std::max(kTokenPixels, kFrameRow / (best.tiles_across * g.width)), path);
  return best;
}

// One query block's view: its own tokens outlined, every token in the colour of its key block.
struct View {
  const BlockPartition &q, &k;
  OrderKind order;
  std::int64_t query;
  std::function<Colour(std::int64_t k_block)> tint;
};

void check_view(const std::filesystem::path& path, const View& v) {
  require(v.q.sequence.grid == v.k.sequence.grid, "cannot draw {}: queries of {} and keys of {} are not in one video",
          path.string(), to_string(v.q.sequence.grid), to_string(v.k.sequence.grid));
  require(v.query >= 0 && v.query < v.q.count() && !v.q.is_text(v.query),
          "cannot draw {}: query block {} is not one of the {} blocks of video", path.string(), v.query,
          v.q.video_blocks());
}

class VideoPicture {
 public:
  VideoPicture(const std::filesystem::path& path, const View& view)
      : view_(view),
        grid_(view.q.sequence.grid),
        sheet_(frames_of(grid_, path)),
        canvas_(sheet_.height(), sheet_.width()) {
    const TokenOrder order = make_order(view.order, grid_);
    queries_ = block_of_raster(view.q, order), keys_ = block_of_raster(view.k, order);
  }

  void draw() {
    for (std::int64_t f = 0; f < grid_.frames; ++f) {
      for (std::int64_t y = 0; y < grid_.height; ++y) {
        for (std::int64_t x = 0; x < grid_.width; ++x) draw_token(f, y, x);
      }
    }
  }
  void write(const std::filesystem::path& path) const { canvas_.write(path); }

 private:
  std::size_t raster(std::int64_t f, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>((f * grid_.height + y) * grid_.width + x);
  }
  bool asks(std::int64_t f, std::int64_t y, std::int64_t x) const {
    return y >= 0 && y < grid_.height && x >= 0 && x < grid_.width && queries_[raster(f, y, x)] == view_.query;
  }
  void draw_token(std::int64_t f, std::int64_t y, std::int64_t x) {
    const std::int64_t s = sheet_.scale, top = sheet_.y(f) + y * s, left = sheet_.x(f) + x * s;
    canvas_.fill(top, left, s, s, view_.tint(keys_[raster(f, y, x)]));
    if (!asks(f, y, x)) return;
    const std::int64_t line = std::max<std::int64_t>(2, s / 4);
    if (!asks(f, y - 1, x)) canvas_.fill(top, left, line, s, kOutline);
    if (!asks(f, y + 1, x)) canvas_.fill(top + s - line, left, line, s, kOutline);
    if (!asks(f, y, x - 1)) canvas_.fill(top, left, s, line, kOutline);
    if (!asks(f, y, x + 1)) canvas_.fill(top, left + s - line, s, line, kOutline);
  }

  const View& view_;
  TokenGrid grid_;
  Sheet sheet_;
  Canvas canvas_;
  std::vector<std::int64_t> queries_, keys_;
};

void draw_video(const std::filesystem::path& path, const View& view) {
  check_view(path, view);
  VideoPicture picture(path, view);
  picture.draw();
  picture.write(path);
}

}  // namespace

void write_mask_png(const std::filesystem::path& path, const BlockMask& mask, std::int64_t b, std::int64_t head) {
  check_sample(path, b, mask.batch());
  check_head(path, head, mask.heads());
  draw_matrices(path, 1, mask.q_blocks(), mask.k_blocks(),
                [&](std::int64_t, std::int64_t q, std::int64_t k) { return kept_colour(mask.test(b, head, q, k)); });
}

void write_mask_png(const std::filesystem::path& path, const BlockMask& mask) {
  draw_matrices(path, mask.batch() * mask.heads(), mask.q_blocks(), mask.k_blocks(),
                [&](std::int64_t tile, std::int64_t q, std::int64_t k) {
                  return kept_colour(mask.test(tile / mask.heads(), tile % mask.heads(), q, k));
                });
}

void write_rank_map_png(const std::filesystem::path& path, const RankMap& map, std::int64_t head) {
  check_head(path, head, map.heads());
  draw_matrices(path, 1, map.q_blocks(), map.k_blocks(), [&](std::int64_t, std::int64_t q, std::int64_t k) {
    return rank_colour(map.row(head, q)[static_cast<std::size_t>(k)]);
  });
}

void write_rank_map_png(const std::filesystem::path& path, const RankMap& map) {
  draw_matrices(path, map.heads(), map.q_blocks(), map.k_blocks(),
                [&](std::int64_t head, std::int64_t q, std::int64_t k) {
                  return rank_colour(map.row(head, q)[static_cast<std::size_t>(k)]);
                });
}

void write_mask_video_png(const std::filesystem::path& path, const BlockMask& mask, std::int64_t b, std::int64_t head,
                          std::int64_t query_block) {
  check_sample(path, b, mask.batch());
  check_head(path, head, mask.heads());
  draw_video(path, {mask.q(), mask.k(), mask.order(), query_block,
                    [&](std::int64_t k) { return kept_colour(mask.test(b, head, query_block, k)); }});
}

void write_rank_map_video_png(const std::filesystem::path& path, const RankMap& map, std::int64_t head,
                              std::int64_t query_block) {
  check_head(path, head, map.heads());
  draw_video(path, {map.q(), map.k(), map.order(), query_block, [&](std::int64_t k) {
                      return rank_colour(map.row(head, query_block)[static_cast<std::size_t>(k)]);
                    }});
}

std::int64_t centre_block(const BlockPartition& q, OrderKind order) {
  check_partition(q);
  const TokenGrid& g = q.sequence.grid;
  const std::int64_t raster = (std::int64_t{g.frames / 2} * g.height + g.height / 2) * g.width + g.width / 2;
  return q.block_of(q.sequence.video_begin() + make_order(order, g).memory_of_raster[static_cast<std::size_t>(raster)]);
}

}  // namespace tulle
