// The checker on drawn clips: what is there must be seen, and what is not there must not.
#include <gtest/gtest.h>

#include <limits>

#include "report/checker_regions.hpp"
#include "scene.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using scene::draw;
using scene::facts;
using scene::Object;
using scene::Scene;

constexpr std::uint32_t kScenes = 12;

Scene still_life() {
  Scene s;
  s.objects.push_back({.colour = 0, .shape = 2, .motion = 4, .texture = 1, .x = 40, .y = 40, .radius = 16});
  s.objects.push_back({.colour = 5, .shape = 0, .motion = 1, .x = 30, .y = 95, .radius = 16, .vx = 3.0, .vy = 0.2});
  return s;
}

bool passes(const Scene& shown, const std::vector<ObjectFacts>& asked) {
  return check_clip(draw(shown, 9, 128, 128), asked).passed();
}

// How many of the scenes pass after `spoil` changed what is shown.
template <class Spoil>
std::uint32_t passed_after(Spoil spoil) {
  std::uint32_t passed = 0;
  for (std::uint32_t seed = 1; seed <= kScenes; ++seed) {
    const Scene right = scene::random_scene(seed, 1 + seed % 3, 9, 128, 128);
    Scene wrong = right;
    spoil(wrong, seed);
    passed += passes(wrong, facts(right));
  }
  return passed;
}

TEST(Checker, SeesEveryColourShapeAndMotion) {
  for (std::size_t i = 0; i < 20; ++i) {
    const double vx = i % 5 == 0 ? -3 : i % 5 == 1 ? 3 : 0, vy = i % 5 == 2 ? -3 : i % 5 == 3 ? 3 : 0;
    Scene s;
    s.objects.push_back({.colour = i % 8,
                         .shape = i % 4,
                         .motion = i % 5,
                         .x = 64 - 4 * vx,
                         .y = 64 - 4 * vy,
                         .radius = 16,
                         .vx = vx,
                         .vy = vy});
    EXPECT_EQ(observe_clip(draw(s, 9, 128, 128)), facts(s)) << "case " << i;
  }
}

TEST(Checker, ListsObjectsByColourName) {
  const std::vector<ObjectFacts> seen = observe_clip(draw(still_life(), 9, 128, 128));
  EXPECT_EQ(seen, (std::vector<ObjectFacts>{{"blue", "circle", "right"}, {"red", "triangle", "still"}}));
}

TEST(Checker, PassesDrawnClips) {
  EXPECT_EQ(passed_after([](Scene&, std::uint32_t) {}), kScenes);
}

TEST(Checker, PassesNoisyClips) {
  EXPECT_EQ(passed_after([](Scene& s, std::uint32_t) { s.noise = 0.03; }), kScenes);
}

TEST(Checker, PassesOtherGeometries) {
  for (const auto& [frames, height, width] : {std::array<int, 3>{13, 160, 192}, {5, 192, 320}}) {
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      const Scene s = scene::random_scene(seed, 3, frames, height, width);
      EXPECT_TRUE(check_clip(draw(s, frames, height, width), facts(s)).passed()) << height << " seed " << seed;
    }
  }
}

TEST(Checker, PassesAnObjectThatRunsBehindAnother) {
  for (std::size_t shape = 0; shape < 4; ++shape) {
    Scene s;
    s.objects.push_back({.colour = 6, .shape = (shape + 1) % 4, .motion = 4, .x = 64, .y = 64, .radius = 16});
    s.objects.push_back({.colour = 3, .shape = shape, .motion = 1, .x = 25, .y = 68, .radius = 20, .vx = 4});
    EXPECT_TRUE(check_clip(draw(s, 13, 128, 128), facts(s)).passed()) << scene::kShapes[shape];
  }
}

TEST(Checker, TakesAZoomOutOfTheMotion) {
  Scene s;  // a still object far from the middle, in a clip that zooms in by 12 %
  Object o{.colour = 1, .shape = 1, .motion = 4, .x = 250, .y = 96, .radius = 22};
  Video clip = draw(s, 9, 192, 320);
  for (int f = 0; f < 9; ++f) {
    const double g = std::pow(1.12, f / 8.0);
    Object now = o;
    now.x = 160 + (o.x - 160) * g, now.y = 96, now.radius = o.radius * g;
    s.objects = {now};
    const Video frame = draw(s, 1, 192, 320);
    std::copy(frame.rgb.begin(), frame.rgb.end(), clip.rgb.begin() + f * 192 * 320 * 3);
  }
  EXPECT_EQ(observe_clip(clip), (std::vector<ObjectFacts>{{"orange", "square", "still"}}));
}

TEST(Checker, CatchesAWrongColour) {
  EXPECT_EQ(passed_after(
                [](Scene& s, std::uint32_t seed) { s.objects[0].colour = (s.objects[0].colour + 1 + seed % 7) % 8; }),
            0u);
}

TEST(Checker, CatchesAWrongShape) {
  EXPECT_EQ(
      passed_after([](Scene& s, std::uint32_t seed) { s.objects[0].shape = (s.objects[0].shape + 1 + seed % 3) % 4; }),
      0u);
}

TEST(Checker, CatchesAnOppositeDirection) {
  EXPECT_EQ(passed_after([](Scene& s, std::uint32_t) {
              Object& o = s.objects[0];
              if (o.motion == 4) {
                o.vx = o.x > 64 ? -3 : 3;
              } else {
                o.x += 8 * o.vx, o.y += 8 * o.vy;
                o.vx = -o.vx, o.vy = -o.vy;
              }
            }),
            0u);
}

TEST(Checker, CatchesAMissingObject) {
  EXPECT_EQ(passed_after([](Scene& s, std::uint32_t) { s.objects.erase(s.objects.begin()); }), 0u);
}

TEST(Checker, CatchesAnExtraObject) {
  EXPECT_EQ(passed_after([](Scene& s, std::uint32_t seed) {
              const std::size_t before = s.objects.size();
              std::mt19937 random(seed + 100);
              while (s.objects.size() == before) {
                const Object o = scene::random_object(random, 128, 128);
                if (scene::fits(o, s.objects, 9, 128, 128)) s.objects.push_back(o);
              }
            }),
            0u);
}

TEST(Checker, CatchesASecondObjectOfTheSameColour) {
  const Scene right = still_life();
  Scene wrong = right;
  wrong.objects.push_back({.colour = 0, .shape = 2, .motion = 4, .x = 95, .y = 40, .radius = 16});
  EXPECT_FALSE(passes(wrong, facts(right)));
  EXPECT_EQ(observe_clip(draw(wrong, 9, 128, 128)).size(), 3u);
}

TEST(Checker, CatchesAnObjectThatVanishes) {
  const Scene right = still_life();
  Scene wrong = right;
  wrong.objects[0].to = 4;  // there in four of nine frames
  EXPECT_FALSE(passes(wrong, facts(right)));
  wrong.objects[0].to = 6;
  EXPECT_TRUE(passes(wrong, facts(right)));
}

TEST(Checker, CatchesAStretchedShape) {
  const Scene right = still_life();
  for (std::size_t shape = 0; shape < 4; ++shape) {
    Scene wrong = right;
    wrong.objects[0].shape = shape;
    const std::vector<ObjectFacts> asked = facts(wrong);
    EXPECT_TRUE(passes(wrong, asked)) << scene::kShapes[shape];
    wrong.objects[0].stretch = 1.6;
    EXPECT_FALSE(passes(wrong, asked)) << scene::kShapes[shape];
  }
}

TEST(Checker, SeesNothingOnBackgroundsAndNoise) {
  Scene noise;
  EXPECT_TRUE(observe_clip(draw(noise, 9, 128, 128)).empty());
  noise.noise = 0.08;
  EXPECT_TRUE(observe_clip(draw(noise, 9, 128, 128)).empty());
  Video nan{2, 16, 16, std::vector<float>(2 * 16 * 16 * 3, std::numeric_limits<float>::quiet_NaN())};
  EXPECT_TRUE(observe_clip(nan).empty());
}

TEST(Checker, ReportsEachAttribute) {
  const Video clip = draw(still_life(), 9, 128, 128);
  std::vector<ObjectFacts> asked = facts(still_life());
  asked[0].shape = "square";
  const CheckResult shape = check_clip(clip, asked);
  EXPECT_TRUE(shape.count && shape.colours && shape.motions);
  EXPECT_FALSE(shape.shapes || shape.passed());
  asked = facts(still_life());
  asked[1].motion = "still";
  const CheckResult motion = check_clip(clip, asked);
  EXPECT_TRUE(motion.count && motion.colours && motion.shapes);
  EXPECT_FALSE(motion.motions || motion.passed());
}

TEST(Checker, RefusesAClipWhoseShapeDoesNotFit) {
  EXPECT_THROW(observe_clip(Video{2, 4, 4, std::vector<float>(5)}), Error);
  EXPECT_THROW(observe_clip(Video{}), Error);
}

TEST(Checker, ClassifiesShadesAndLightAlike) {
  for (std::size_t c = 0; c < scene::kColours.size(); ++c) {
    for (const double gain : {1.0, 0.75, 0.6, 0.45}) {
      const scene::Colour& p = scene::kColours[c];
      EXPECT_EQ(checker::classify_pixel(static_cast<float>(gain * p.r), static_cast<float>(gain * p.g),
                                        static_cast<float>(gain * p.b)),
                c + 1)
          << p.name << " " << gain;
    }
  }
  EXPECT_EQ(checker::classify_pixel(0.78f, 0.72f, 0.60f), 0);  // beige
  EXPECT_EQ(checker::classify_pixel(0.50f, 0.42f, 0.36f), 0);  // brown
  EXPECT_EQ(checker::classify_pixel(0, 0, 0), 0);
}

}  // namespace
}  // namespace tulle
