// Our forward pass against diffusers' WanTransformer3DModel, on random weights.
#include <gtest/gtest.h>

#include <algorithm>

#include "dit/fixtures.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

struct Case {
  std::string model, cases, key;
};

TokenGrid grid_of(const std::string& key) { return parse_grid(key.substr(0, key.find('.'))); }
std::int64_t batch_of(const std::string& key) { return std::stoll(key.substr(key.find('.') + 1)); }

std::vector<Case> all_cases() {
  std::vector<Case> all;
  const std::pair<const char*, const char*> models[] = {{"wan_narrow_diffusers", "narrow"},
                                                        {"wan_narrow_official", "narrow"},
                                                        {"wan_odd_official", "odd"},
                                                        {"wan_deep_diffusers", "deep"}};
  for (const auto& [model, cases] : models) {
    for (const char* key : {"2x4x8.1", "2x4x8.2", "3x5x7.1", "3x5x7.2"}) {
      all.push_back({model, std::string("wan_") + cases + ".cases.safetensors", key});
    }
  }
  return all;
}

// The whole model call: patchify in `order`, forward on one rank, unpatchify.
std::vector<float> run(const WanModel& model, const Fixture& f, const std::string& key, OrderKind order, int width) {
  const WanConfig& c = model.config();
  const TokenGrid grid = grid_of(key);
  const std::int64_t batch = batch_of(key);
  const Threads threads(width);
  const auto fabric = make_self_fabric();
  Policy policy;
  policy.order = order;
  Engine engine({policy, {grid}, c.heads, c.head_dim, c.layers, batch}, *fabric, threads);

  const auto latents = f.read<float>(key + ".latents");
  const std::size_t sample = latents.size() / static_cast<std::size_t>(batch);
  const auto in_size = static_cast<std::size_t>(grid.tokens() * c.patch_features());
  const auto out_size = static_cast<std::size_t>(grid.tokens() * c.out_features());
  std::vector<float> tokens(in_size * batch), velocity(out_size * batch), output(velocity.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    patchify(std::span(latents).subspan(b * sample, sample), c, engine.order(), engine.local_tokens(),
             std::span(tokens).subspan(b * in_size, in_size));
  }
  const auto times = f.read<float>(key + ".timesteps"), text = f.read<float>(key + ".text");
  WanModel::Input input{tokens, times, text, batch, f.tensor(key + ".text").shape[1], 0, 1, Branch::kConditional};
  const auto workspace = model.make_workspace();
  model.forward(input, engine, threads, *workspace, velocity, /*check_finite=*/true);
  // A second pass reuses the workspace and the keys of the text, and must not see leftovers.
  const std::vector<float> first = velocity;
  std::fill(velocity.begin(), velocity.end(), 0.f);
  model.forward(input, engine, threads, *workspace, velocity);
  EXPECT_EQ(first, velocity);
  for (std::int64_t b = 0; b < batch; ++b) {
    unpatchify(std::span(velocity).subspan(b * out_size, out_size), c, engine.order(), engine.local_tokens(),
               std::span(output).subspan(b * out_size, out_size));
  }
  return output;
}

class WanParity : public testing::TestWithParam<Case> {};

TEST_P(WanParity, ErrorIsAtMostTwiceThatOfDiffusers) {
  const Fixture f(GetParam().cases);
  const std::string& key = GetParam().key;
  const WanModel model = WanModel::load(fixture(GetParam().model), Precision::kF32);
  const auto want = f.read<double>(key + ".output");
  const double theirs = std::stod(f.metadata().at(key));
  for (const OrderKind order : {OrderKind::kRaster, OrderKind::kHilbert}) {
    const auto got = run(model, f, key, order, 2);
    const double ours = relative_l2(got, want);
    RecordProperty(std::string("relative_l2_") + to_string(order), std::to_string(ours * 1e6) + "e-6");
    EXPECT_LE(ours, 2 * theirs + 1e-6) << to_string(order) << ": diffusers' own f32 error is " << theirs;
    EXPECT_EQ(got, run(model, f, key, order, 1)) << "the number of threads must not matter";
  }
}

TEST_P(WanParity, Bf16IsNear) {
  const Fixture f(GetParam().cases);
  const std::string& key = GetParam().key;
  const WanModel model = WanModel::load(fixture(GetParam().model), Precision::kBf16);
  const auto got = run(model, f, key, OrderKind::kRaster, 2);
  const double error = relative_l2(got, f.read<double>(key + ".output"));
  EXPECT_LT(error, 0.03);
  EXPECT_GT(error, 1e-4);  // it is not the f32 path
}

INSTANTIATE_TEST_SUITE_P(Diffusers, WanParity, testing::ValuesIn(all_cases()), [](const auto& info) {
  std::string name = info.param.model + "_" + info.param.key;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace tulle
