#include "report/checker_regions.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tulle::checker {
namespace {

struct Palette {
  float hue;         // degrees
  float saturation;  // least saturation of a pixel: half way between the colour and the muted backgrounds (0.28)
};

constexpr std::array<Palette, kColours> kPalette = {{{0.0f, 0.52f},
                                                     {30.0f, 0.55f},
                                                     {57.0f, 0.52f},
                                                     {125.0f, 0.50f},
                                                     {183.0f, 0.52f},
                                                     {229.0f, 0.52f},
                                                     {275.0f, 0.50f},
                                                     {326.0f, 0.44f}}};
constexpr float kHueReach = 36.0f;      // a hue further than this from every colour is no colour of this world
constexpr float kLeastValue = 0.2f;     // darker pixels have no reliable hue
constexpr double kLeastArea = 45.0;     // pixels at 128 x 128: a quarter of the smallest object
constexpr double kLeastCore = 12.0;     // of these, pixels whose eight neighbours are of the same colour
constexpr double kLeastFragment = 8.0;  // smaller specks are noise and own nothing
constexpr std::int64_t kNear = 3;       // pixels over which parts count as touching

float hue_of(float r, float g, float b, float high, float chroma) {
  float h = 0;
  if (high == r)
    h = (g - b) / chroma;
  else if (high == g)
    h = (b - r) / chroma + 2;
  else
    h = (r - g) / chroma + 4;
  return h < 0 ? 60 * h + 360 : 60 * h;
}

float hue_distance(float a, float b) {
  const float d = std::fabs(a - b);
  return std::min(d, 360 - d);
}

// [1 2 1] / 4 along both axes: takes the noise off dark pixels, whose hue it would turn.
std::vector<float> smooth(std::span<const float> rgb, std::int64_t height, std::int64_t width) {
  std::vector<float> across(rgb.size()), out(rgb.size());
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t left = std::max<std::int64_t>(x - 1, 0), right = std::min(x + 1, width - 1);
      for (std::int64_t c = 0; c < 3; ++c) {
        const auto at = [&](std::int64_t column) { return rgb[(y * width + column) * 3 + c]; };
        across[(y * width + x) * 3 + c] = 0.25f * at(left) + 0.5f * at(x) + 0.25f * at(right);
      }
    }
  }
  const std::int64_t row = width * 3;
  for (std::int64_t y = 0; y < height; ++y) {
    const float* above = across.data() + std::max<std::int64_t>(y - 1, 0) * row;
    const float* here = across.data() + y * row;
    const float* below = across.data() + std::min(y + 1, height - 1) * row;
    for (std::int64_t i = 0; i < row; ++i) out[y * row + i] = 0.25f * above[i] + 0.5f * here[i] + 0.25f * below[i];
  }
  return out;
}

std::vector<std::uint8_t> classify(std::span<const float> rgb, std::int64_t height, std::int64_t width) {
  const std::vector<float> s = smooth(rgb, height, width);
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(height * width));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = classify_pixel(s[3 * i], s[3 * i + 1], s[3 * i + 2]);
  return labels;
}

struct Part {  // a 4-connected set of pixels of one label
  std::uint8_t label = 0;
  std::int64_t area = 0, core = 0;
};

struct Parts {
  std::vector<Part> list;
  std::vector<std::int32_t> of_pixel;  // -1 where there is none
};

Parts connect(const std::vector<std::uint8_t>& labels, std::int64_t height, std::int64_t width) {
  Parts parts;
  parts.of_pixel.assign(labels.size(), -1);
  std::vector<std::int64_t> stack;
  const auto visit = [&](std::int64_t pixel, std::int32_t id, std::uint8_t label) {
    if (labels[pixel] != label || parts.of_pixel[pixel] >= 0) return;
    parts.of_pixel[pixel] = id;
    stack.push_back(pixel);
  };
  for (std::int64_t seed = 0; seed < height * width; ++seed) {
    if (labels[seed] == 0 || parts.of_pixel[seed] >= 0) continue;
    const auto id = static_cast<std::int32_t>(parts.list.size());
    Part part{labels[seed], 0, 0};
    visit(seed, id, part.label);
    while (!stack.empty()) {
      const std::int64_t p = stack.back(), x = p % width;
      stack.pop_back();
      ++part.area;
      if (x > 0) visit(p - 1, id, part.label);
      if (x + 1 < width) visit(p + 1, id, part.label);
      if (p >= width) visit(p - width, id, part.label);
      if (p + width < height * width) visit(p + width, id, part.label);
    }
    parts.list.push_back(part);
  }
  return parts;
}

void count_cores(Parts& parts, std::int64_t height, std::int64_t width) {
  for (std::int64_t y = 1; y + 1 < height; ++y) {
    for (std::int64_t x = 1; x + 1 < width; ++x) {
      const std::int32_t id = parts.of_pixel[y * width + x];
      if (id < 0) continue;
      bool core = true;
      for (std::int64_t dy = -1; dy <= 1; ++dy) {
        const std::int32_t* row = &parts.of_pixel[(y + dy) * width + x];
        core = core && row[-1] == id && row[0] == id && row[1] == id;
      }
      parts.list[id].core += core;
    }
  }
}

// Pairs of parts that come within kNear pixels of each other; symmetric [n][n].
std::vector<std::vector<bool>> touching(const Parts& parts, std::int64_t height, std::int64_t width) {
  const std::size_t n = parts.list.size();
  std::vector<std::vector<bool>> near(n, std::vector<bool>(n, false));
  const auto mark_around = [&](std::int64_t x, std::int64_t y, std::int32_t id) {
    for (std::int64_t v = std::max<std::int64_t>(y - kNear, 0); v <= std::min(y + kNear, height - 1); ++v) {
      for (std::int64_t u = std::max<std::int64_t>(x - kNear, 0); u <= std::min(x + kNear, width - 1); ++u) {
        const std::int32_t other = parts.of_pixel[v * width + u];
        if (other >= 0 && other != id) near[id][other] = near[other][id] = true;
      }
    }
  };
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t p = y * width + x;
      const std::int32_t id = parts.of_pixel[p];
      if (id < 0) continue;
      const bool inner = x > 0 && x + 1 < width && y > 0 && y + 1 < height && parts.of_pixel[p - 1] == id &&
                         parts.of_pixel[p + 1] == id && parts.of_pixel[p - width] == id &&
                         parts.of_pixel[p + width] == id;
      if (!inner) mark_around(x, y, id);
    }
  }
  return near;
}

// Drops the parts that `keep` refuses, and renumbers.
template <class Keep>
void filter(Parts& parts, Keep keep) {
  std::vector<std::int32_t> renamed(parts.list.size(), -1);
  std::vector<Part> kept;
  for (std::size_t i = 0; i < parts.list.size(); ++i) {
    if (!keep(parts.list[i])) continue;
    renamed[i] = static_cast<std::int32_t>(kept.size());
    kept.push_back(parts.list[i]);
  }
  for (std::int32_t& id : parts.of_pixel) id = id < 0 ? -1 : renamed[id];
  parts.list = std::move(kept);
}

std::size_t root(std::vector<std::size_t>& parent, std::size_t i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

// Parts of one colour belong to one object when they touch, or when both touch the same part of another colour that
// is large enough to stand in front of them.
std::vector<std::size_t> group(const Parts& parts, const std::vector<std::vector<bool>>& near, double least_area) {
  const std::size_t n = parts.list.size();
  std::vector<std::size_t> parent(n);
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto bridged = [&](std::size_t a, std::size_t b) {
    for (std::size_t c = 0; c < n; ++c) {
      const bool in_front =
          parts.list[c].label != parts.list[a].label && static_cast<double>(parts.list[c].area) >= least_area;
      if (in_front && near[a][c] && near[b][c]) return true;
    }
    return false;
  };
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      if (parts.list[a].label != parts.list[b].label) continue;
      if (near[a][b] || bridged(a, b)) parent[root(parent, a)] = root(parent, b);
    }
  }
  for (std::size_t i = 0; i < n; ++i) parent[i] = root(parent, i);
  return parent;
}

void add_pixel(Region& region, std::int64_t x, std::int64_t y) {
  const auto px = static_cast<std::int32_t>(x), py = static_cast<std::int32_t>(y);
  if (region.area == 0) region.box = {px, py, px, py};
  region.box = {std::min(region.box.x0, px), std::min(region.box.y0, py), std::max(region.box.x1, px),
                std::max(region.box.y1, py)};
  ++region.area;
  region.x += static_cast<double>(x) + 0.5;
  region.y += static_cast<double>(y) + 0.5;
}

bool inside_frame(const Box& box, std::int64_t height, std::int64_t width) {
  return box.x0 > 0 && box.y0 > 0 && box.x1 + 1 < width && box.y1 + 1 < height;
}

}  // namespace

double length_scale(std::int64_t height, std::int64_t width) {
  return std::pow(static_cast<double>(height) * static_cast<double>(width) / (128.0 * 128.0), 0.25);
}

std::uint8_t classify_pixel(float r, float g, float b) {
  const float high = std::max({r, g, b}), low = std::min({r, g, b}), chroma = high - low;
  if (!(high > kLeastValue) || !(chroma > 0)) return 0;
  const float hue = hue_of(r, g, b, high, chroma);
  const auto nearer = [&](const Palette& a, const Palette& c) {
    return hue_distance(hue, a.hue) < hue_distance(hue, c.hue);
  };
  const auto best = std::min_element(kPalette.begin(), kPalette.end(), nearer);
  if (hue_distance(hue, best->hue) > kHueReach || chroma < best->saturation * high) return 0;
  return static_cast<std::uint8_t>(best - kPalette.begin() + 1);
}

FrameRegions find_regions(std::span<const float> rgb, std::int64_t height, std::int64_t width) {
  const double area_scale = std::pow(length_scale(height, width), 2);
  const std::vector<std::uint8_t> labels = classify(rgb, height, width);
  Parts parts = connect(labels, height, width);
  filter(parts, [&](const Part& p) { return static_cast<double>(p.area) >= kLeastFragment * area_scale; });
  count_cores(parts, height, width);
  // Thin rims, where two colours blend into a third, have no core.
  filter(parts, [](const Part& p) { return p.core > 0; });
  const auto near = touching(parts, height, width);
  const double least_area = kLeastArea * area_scale;
  const std::vector<std::size_t> group_of = group(parts, near, least_area);

  std::vector<std::int64_t> area(parts.list.size()), core(parts.list.size());
  for (std::size_t i = 0; i < parts.list.size(); ++i) {
    area[group_of[i]] += parts.list[i].area;
    core[group_of[i]] += parts.list[i].core;
  }
  FrameRegions frame{height, width, {}, std::vector<std::int16_t>(labels.size(), 0)};
  std::vector<std::int16_t> region_of(parts.list.size(), -1);
  for (std::size_t i = 0; i < parts.list.size(); ++i) {
    const bool large =
        static_cast<double>(area[i]) >= least_area && static_cast<double>(core[i]) >= kLeastCore * area_scale;
    if (group_of[i] != i || !large || frame.regions.size() >= 1000) continue;
    Region region;
    region.colour = parts.list[i].label - 1;
    region.whole = true;
    frame.regions.push_back(region);
    region_of[i] = static_cast<std::int16_t>(frame.regions.size());
  }
  for (std::size_t i = 0; i < parts.list.size(); ++i) region_of[i] = region_of[group_of[i]];
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::int32_t id = parts.of_pixel[i];
    frame.owner[i] = id >= 0 ? region_of[id] : static_cast<std::int16_t>(labels[i] != 0 ? -1 : 0);
    if (frame.owner[i] > 0) {
      add_pixel(frame.regions[frame.owner[i] - 1], static_cast<std::int64_t>(i) % width,
                static_cast<std::int64_t>(i) / width);
    }
  }
  for (std::size_t a = 0; a < parts.list.size(); ++a) {
    for (std::size_t b = 0; b < parts.list.size(); ++b) {
      if (region_of[a] > 0 && region_of[b] > 0 && region_of[a] != region_of[b] && near[a][b]) {
        frame.regions[region_of[a] - 1].whole = false;
      }
    }
  }
  for (Region& region : frame.regions) {
    region.x /= static_cast<double>(region.area);
    region.y /= static_cast<double>(region.area);
    region.whole = region.whole && inside_frame(region.box, height, width);
  }
  return frame;
}

}  // namespace tulle::checker
