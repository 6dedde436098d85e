// Checker, first stage: which pixels of one frame belong to which coloured object.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tulle::checker {

inline constexpr int kColours = 8;
inline constexpr std::array<const char*, kColours> kColourNames = {"red",  "orange", "yellow", "green",
                                                                   "cyan", "blue",   "purple", "pink"};

// Lengths in clips of this world grow by this factor from 128 x 128 pixels on: (h w / 128^2)^(1/4).
double length_scale(std::int64_t height, std::int64_t width);

struct Box {  // pixels, both ends inclusive
  std::int32_t x0 = 0, y0 = 0, x1 = -1, y1 = -1;
};

// All visible pixels of one object in one frame; parts cut apart by something in front belong together.
struct Region {
  std::int32_t colour = 0;  // index into kColourNames
  std::int64_t area = 0;    // pixels
  double x = 0, y = 0;      // centroid, pixel centres at + 0.5
  Box box;
  bool whole = false;  // touches no other object and not the frame's border
};

struct FrameRegions {
  std::int64_t height = 0, width = 0;
  std::vector<Region> regions;
  std::vector<std::int16_t> owner;  // [height * width]: 0 background, i + 1 for regions[i], -1 other coloured pixels
};

// 0 for background, 1 + colour index for a pixel with the hue of an object. Shades and light do not matter:
// only hue and saturation are looked at. rgb in [0, 1].
std::uint8_t classify_pixel(float r, float g, float b);

// `rgb` is one frame, [height, width, 3].
FrameRegions find_regions(std::span<const float> rgb, std::int64_t height, std::int64_t width);

}  // namespace tulle::checker
