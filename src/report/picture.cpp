// PNG files and frame sheets.
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/file.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kGap = 3;   // pixels between the frames of a sheet
constexpr float kGapShade = 1.0f;  // white
constexpr std::int64_t kLargestSide = 1 << 15;

void append(void* context, void* data, int size) {
  static_cast<std::string*>(context)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

// Copies a frame into the sheet with its corner at (x, y).
void paste(const Video& video, std::int64_t frame, std::int64_t x, std::int64_t y, std::int64_t sheet_width,
           std::vector<float>& sheet) {
  const float* source = video.rgb.data() + frame * video.height * video.width * 3;
  for (std::int64_t row = 0; row < video.height; ++row) {
    std::copy_n(source + row * video.width * 3, video.width * 3, sheet.data() + ((y + row) * sheet_width + x) * 3);
  }
}

// Frames spread evenly over the clip, the first and the last included.
std::int64_t picked_frame(std::int64_t i, std::int64_t count, std::int64_t frames) {
  return count == 1 ? 0 : (i * (frames - 1) + (count - 1) / 2) / (count - 1);
}

}  // namespace

void write_png(const std::filesystem::path& path, std::int64_t height, std::int64_t width, std::span<const float> rgb) {
  require(height >= 1 && width >= 1 && height <= kLargestSide && width <= kLargestSide &&
              rgb.size() == static_cast<std::size_t>(height * width * 3),
          "cannot write {}: a picture of {} x {} pixels does not fit {} values (sides are 1 to {})", path.string(),
          height, width, rgb.size(), kLargestSide);
  std::vector<std::uint8_t> bytes(rgb.size());
  std::transform(rgb.begin(), rgb.end(), bytes.begin(),
                 [](float v) { return static_cast<std::uint8_t>(std::lround(std::clamp(v, 0.0f, 1.0f) * 255.0f)); });
  std::string file;
  const int done = stbi_write_png_to_func(append, &file, static_cast<int>(width), static_cast<int>(height), 3,
                                          bytes.data(), static_cast<int>(width * 3));
  if (done == 0) fail(ErrorCode::kOutOfMemory, "cannot write {}: no memory to compress the picture", path.string());
  write_file_atomic(path, file);
}

void write_frames_sheet(const std::filesystem::path& path, std::span<const Video> videos, int columns) {
  require(!videos.empty() && columns >= 1, "a frame sheet needs at least one clip and one column: {} and {} were given",
          videos.size(), columns);
  std::int64_t width = 0, height = 0;
  for (const Video& v : videos) {
    require(v.frames >= 1 && v.rgb.size() == static_cast<std::size_t>(v.frames * v.height * v.width * 3),
            "a clip of the sheet {} has {} values where its shape asks for {}", path.string(), v.rgb.size(),
            v.frames * v.height * v.width * 3);
    const std::int64_t count = std::min<std::int64_t>(columns, v.frames);
    width = std::max(width, count * (v.width + kGap) - kGap);
    height += v.height + kGap;
  }
  height -= kGap;
  require(width <= kLargestSide && height <= kLargestSide, "the sheet {} would have {} x {} pixels: give fewer columns",
          path.string(), height, width);
  std::vector<float> sheet(static_cast<std::size_t>(width * height * 3), kGapShade);
  std::int64_t y = 0;
  for (const Video& v : videos) {
    const std::int64_t count = std::min<std::int64_t>(columns, v.frames);
    for (std::int64_t i = 0; i < count; ++i) {
      paste(v, picked_frame(i, count, v.frames), i * (v.width + kGap), y, width, sheet);
    }
    y += v.height + kGap;
  }
  write_png(path, height, width, sheet);
}

}  // namespace tulle
