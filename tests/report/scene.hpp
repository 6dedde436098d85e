// Draws small clips of the checker's world for its tests: flat shapes with textures over a moving muted background.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tulle/report.hpp"

namespace tulle::scene {

struct Colour {
  const char* name;
  double r, g, b;
};
inline constexpr std::array<Colour, 8> kColours = {{{"red", 0.90, 0.10, 0.10},
                                                    {"orange", 1.00, 0.50, 0.00},
                                                    {"yellow", 0.98, 0.93, 0.10},
                                                    {"green", 0.10, 0.75, 0.15},
                                                    {"cyan", 0.05, 0.85, 0.90},
                                                    {"blue", 0.10, 0.25, 0.95},
                                                    {"purple", 0.54, 0.10, 0.85},
                                                    {"pink", 1.00, 0.30, 0.70}}};
inline constexpr std::array<const char*, 4> kShapes = {"circle", "square", "triangle", "cross"};
inline constexpr std::array<const char*, 5> kMotions = {"left", "right", "up", "down", "still"};

struct Object {
  std::size_t colour = 0, shape = 0, motion = 4;
  int texture = 0;  // 0 plain, 1 striped, 2 checked
  double x = 64, y = 64, radius = 16, vx = 0, vy = 0;
  int from = 0, to = 1 << 20;  // frames in which it is there
  double stretch = 1;          // widens the shape; 1 for a right one
};

struct Scene {
  std::vector<Object> objects;  // the first is in front
  double background = 0.5, pan_x = 1.5, pan_y = -0.7, light_begin = 1, light_end = 1;
  double noise = 0;  // standard deviation
  std::uint32_t seed = 1;
};

inline bool inside(const Object& o, double x, double y) {
  const double dx = (x - o.x) / o.stretch, dy = y - o.y, r = o.radius, ax = std::fabs(dx), ay = std::fabs(dy);
  switch (o.shape) {
    case 0:
      return dx * dx + dy * dy < r * r;
    case 1:
      return std::max(ax, ay) < 0.88 * r;
    case 2:
      return dy < 0.9 * r && ax < (dy + 0.9 * r) / 1.732;
    default:
      return std::max(ax, ay) < 1.05 * r && std::min(ax, ay) < 0.35 * r;
  }
}

// Share of a pixel that the object covers, from 4 x 4 samples.
inline double coverage(const Object& o, int px, int py) {
  const double reach = 1.1 * o.radius * std::max(1.0, o.stretch) + 1;
  if (std::fabs(px + 0.5 - o.x) > reach || std::fabs(py + 0.5 - o.y) > reach) return 0;
  int hits = 0;
  for (int i = 0; i < 16; ++i) hits += inside(o, px + (i % 4 + 0.5) / 4, py + (i / 4 + 0.5) / 4);
  return hits / 16.0;
}

inline double shade(const Object& o, double x, double y) {
  const double k = 2 * M_PI / (0.64 * o.radius), dx = x - o.x, dy = y - o.y;
  if (o.texture == 1) return std::sin(k * dx) > 0 ? 0.6 : 1.0;
  if (o.texture == 2) return std::sin(k * dx) * std::sin(k * dy) > 0 ? 0.6 : 1.0;
  return 1.0;
}

inline Video draw(const Scene& scene, int frames, int height, int width) {
  Video video{frames, height, width, std::vector<float>(static_cast<std::size_t>(frames * height * width * 3))};
  std::mt19937 random(scene.seed);
  std::normal_distribution<double> normal(0, 1);
  float* out = video.rgb.data();
  for (int f = 0; f < frames; ++f) {
    const double t = frames == 1 ? 0 : static_cast<double>(f) / (frames - 1);
    const double light = scene.light_begin + (scene.light_end - scene.light_begin) * t;
    std::vector<Object> now;
    for (Object o : scene.objects) {
      o.x += o.vx * f, o.y += o.vy * f;
      if (f >= o.from && f < o.to) now.push_back(o);
    }
    for (int i = 0; i < height * width; ++i) {
      const int x = i % width, y = i / width;
      const double wave = std::sin(0.25 * (x - scene.pan_x * f) + 0.6 * std::sin(0.2 * (y - scene.pan_y * f)));
      const double grey = scene.background * (1 + 0.15 * wave);
      std::array<double, 3> c = {grey * 1.08, grey, grey * 0.9};
      for (auto o = now.rbegin(); o != now.rend(); ++o) {
        const double a = coverage(*o, x, y), s = shade(*o, x + 0.5, y + 0.5);
        const Colour& paint = kColours[o->colour];
        c = {c[0] + a * (paint.r * s - c[0]), c[1] + a * (paint.g * s - c[1]), c[2] + a * (paint.b * s - c[2])};
      }
      for (double v : c) {
        const double noise = scene.noise > 0 ? scene.noise * normal(random) : 0;
        *out++ = static_cast<float>(std::clamp(light * v + noise, 0.0, 1.0));
      }
    }
  }
  return video;
}

inline std::vector<ObjectFacts> facts(const Scene& scene) {
  std::vector<ObjectFacts> all;
  for (const Object& o : scene.objects) all.push_back({kColours[o.colour].name, kShapes[o.shape], kMotions[o.motion]});
  return all;
}

inline double lengths(int height, int width) { return std::pow(height * width / (128.0 * 128.0), 0.25); }

inline double uniform(std::mt19937& random, double low, double high) {
  return low + (high - low) * (static_cast<double>(random()) / 4294967296.0);
}

inline Object random_object(std::mt19937& random, int height, int width) {
  static constexpr std::array<std::array<double, 2>, 5> kHeading = {{{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {0, 0}}};
  const double scale = lengths(height, width);
  Object o;
  o.colour = random() % 8, o.shape = random() % 4, o.motion = random() % 5, o.texture = static_cast<int>(random() % 3);
  o.radius = scale * std::array<double, 3>{11, 16, 22}[random() % 3];
  const double speed = scale * uniform(random, 2.4, 4.0), drift = uniform(random, -0.1, 0.1);
  o.vx = speed * (kHeading[o.motion][0] + drift * kHeading[o.motion][1]);
  o.vy = speed * (kHeading[o.motion][1] + drift * kHeading[o.motion][0]);
  o.x = uniform(random, 0, width), o.y = uniform(random, 0, height);
  return o;
}

inline bool fits(const Object& o, const std::vector<Object>& others, int frames, int height, int width) {
  for (int f = 0; f < frames; ++f) {
    const double x = o.x + o.vx * f, y = o.y + o.vy * f, reach = 1.1 * o.radius;
    if (x < reach || y < reach || x > width - reach || y > height - reach) return false;
    for (const Object& p : others) {
      if (p.colour == o.colour) return false;
      const double gap = std::hypot(x - p.x - p.vx * f, y - p.y - p.vy * f) - 1.38 * (o.radius + p.radius);
      if (gap < 2) return false;
    }
  }
  return true;
}

// Objects that stay inside the frame and never touch, as many of `count` as find room.
inline Scene random_scene(std::uint32_t seed, std::size_t count, int frames, int height, int width) {
  std::mt19937 random(seed);
  Scene scene;
  scene.seed = seed;
  scene.background = uniform(random, 0.4, 0.75);
  scene.pan_x = uniform(random, -4, 4), scene.pan_y = uniform(random, -4, 4);
  scene.light_begin = uniform(random, 0.75, 1), scene.light_end = uniform(random, 0.75, 1);
  for (int tries = 0; tries < 4000 && scene.objects.size() < count; ++tries) {
    const Object o = random_object(random, height, width);
    if (fits(o, scene.objects, frames, height, width)) scene.objects.push_back(o);
  }
  return scene;
}

}  // namespace tulle::scene
