#include <gtest/gtest.h>

#include <cmath>

#include "dit/fixtures.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

struct WholeRun {
  std::string key;
  SamplerOptions options;
};

// "unipc.30.3.velocities" -> kind, steps, shift
std::vector<WholeRun> runs(const Fixture& f) {
  std::vector<WholeRun> all;
  for (const std::string& name : f.names()) {
    const auto end = name.rfind(".velocities");
    if (end == std::string::npos) continue;
    const std::string key = name.substr(0, end);
    const auto a = key.find('.'), b = key.find('.', a + 1);
    SamplerOptions o;
    o.kind = key.substr(0, a);
    o.steps = std::stoi(key.substr(a + 1, b - a - 1));
    o.shift = std::stod(key.substr(b + 1));
    all.push_back({key, o});
  }
  return all;
}

TEST(Sampler, AgreesWithDiffusersOverWholeRuns) {
  const Fixture f("samplers.safetensors");
  ASSERT_EQ(runs(f).size(), 12u);
  for (const WholeRun& run : runs(f)) {
    Sampler sampler(run.options);
    const auto sigmas = f.read<float>(run.key + ".sigmas"), times = f.read<float>(run.key + ".timesteps");
    const auto velocities = f.read<float>(run.key + ".velocities"), latents = f.read<float>(run.key + ".latents");
    const std::size_t n = latents.size() / (run.options.steps + 1);
    std::vector<float> x(latents.begin(), latents.begin() + n);
    for (std::int32_t step = 0; step < sampler.steps(); ++step) {
      EXPECT_NEAR(sampler.sigma(step), sigmas[step], 1e-7) << run.key;
      EXPECT_NEAR(sampler.timestep(step), times[step], 1e-3) << run.key;
      sampler.advance(step, std::span(velocities).subspan(step * n, n), x);
      const std::vector<float> want(latents.begin() + (step + 1) * n, latents.begin() + (step + 2) * n);
      EXPECT_LT(relative_l2(x, want), 1e-5) << run.key << " after step " << step;
    }
    EXPECT_EQ(sampler.sigma(sampler.steps()), 0);
  }
}

// With the true velocity of a straight path every sampler must arrive at its end.
TEST(Sampler, FollowsAStraightPathExactly) {
  for (const char* kind : {"euler", "unipc"}) {
    for (const std::int32_t steps : {1, 2, 3, 10}) {
      Sampler sampler({kind, steps, 3.0, 1.0});
      std::vector<float> x{0.5f, -2.f, 1.f};
      const std::vector<float> clean{1.f, 0.f, -1.f}, noise = x, velocity{-0.5f, -2.f, 2.f};
      for (std::int32_t s = 0; s < steps; ++s) sampler.advance(s, velocity, x);
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], clean[i], 2e-5) << kind << " " << steps;
    }
  }
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Sampler({"euler", 0, 3, 1}), Error);
  EXPECT_THROW(Sampler({"euler", -1, 3, 1}), Error);
  EXPECT_THROW(Sampler({"heun", 4, 3, 1}), Error);
  EXPECT_THROW(Sampler({"euler", 4, 0, 1}), Error);
  EXPECT_THROW(Sampler({"euler", 4, std::nan(""), 1}), Error);
  Sampler sampler({"unipc", 4, 3, 1});
  std::vector<float> x(3), v(3), two(2);
  EXPECT_THROW(sampler.advance(1, v, x), Error);
  EXPECT_THROW(sampler.advance(0, two, x), Error);
  sampler.advance(0, v, x);
  EXPECT_THROW(sampler.advance(0, v, x), Error);
  EXPECT_THROW(sampler.advance(1, two, two), Error);
  EXPECT_THROW(sampler.timestep(4), Error);
  try {
    Sampler({"euler", 0, 3, 1});
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "0 steps make no video; at least one is needed");
  }
}

TEST(Guidance, MovesAwayFromTheUnconditional) {
  std::vector<float> cond{1, 2}, uncond{0, 4};
  apply_guidance(cond, uncond, 3);
  EXPECT_EQ(cond, (std::vector<float>{3, -2}));
  EXPECT_THROW(apply_guidance(cond, std::vector<float>(1), 1), Error);
}

}  // namespace
}  // namespace tulle
