// Several ranks must predict what one rank predicts, and text given anew must be seen.
#include <gtest/gtest.h>

#include <mutex>

#include "dit/fixtures.hpp"
#include "run/gather.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

struct Setting {
  const char* model;
  std::string policy;
  std::int64_t batch;
  TokenGrid grid;
};

// Velocity of all tokens in memory order after two steps on both branches, from `ranks` ranks.
std::vector<float> predict(const WanModel& model, const Setting& s, int ranks) {
  const WanConfig& c = model.config();
  std::vector<float> text(s.batch * 5 * c.text_dim), whole;
  fill_noise(3, 0, text);
  std::mutex mutex;
  run_ranks(ranks, 60, [&](Fabric& fabric) {
    const Threads threads(1);
    Policy policy = load_policy(s.policy);
    policy.block_q = policy.block_k = 16;
    policy.sub_block = 4;
    Engine engine({policy, {s.grid}, c.heads, c.head_dim, c.layers, s.batch}, fabric, threads);
    const Range mine = engine.local_tokens();
    std::vector<float> all(s.batch * s.grid.tokens() * c.patch_features());
    fill_noise(4, 0, all);
    std::vector<float> latents, velocity(s.batch * mine.size() * c.out_features()), kept;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto row = all.begin() + b * s.grid.tokens() * c.patch_features();
      latents.insert(latents.end(), row + mine.begin * c.patch_features(), row + mine.end * c.patch_features());
    }
    const std::vector<float> time(s.batch, 640.f);
    const auto workspace = model.make_workspace();
    for (std::int32_t step = 2; step < 4; ++step) {
      for (const Branch branch : {Branch::kConditional, Branch::kUnconditional}) {
        model.forward({latents, time, text, s.batch, 5, step, 4, branch}, engine, threads, *workspace, velocity, true);
      }
    }
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto sample =
          std::span(velocity).subspan(b * mine.size() * c.out_features(), mine.size() * c.out_features());
      const auto gathered = gather_tokens(fabric, engine.plan(), sample, c.out_features());
      kept.insert(kept.end(), gathered.begin(), gathered.end());
    }
    const std::lock_guard lock(mutex);
    if (whole.empty())
      whole = kept;
    else
      EXPECT_EQ(whole, kept) << "ranks gathered different results";
  });
  return whole;
}

TEST(WanRanks, PredictBitForBitWhatOneRankPredicts) {
  const Setting settings[] = {{"wan_odd_official", "dense", 1, {3, 5, 7}},
                              {"wan_odd_official", "dfsattn", 1, {5, 9, 7}},
                              {"wan_narrow_diffusers", "dfsattn", 2, {4, 6, 8}}};
  for (const Setting& s : settings) {
    const WanModel model = WanModel::load(fixture(s.model), Precision::kF32);
    const auto one = predict(model, s, 1);
    EXPECT_EQ(static_cast<std::int64_t>(one.size()), s.batch * s.grid.tokens() * model.config().out_features());
    for (int ranks = 2; ranks <= model.config().heads; ++ranks) {
      EXPECT_EQ(predict(model, s, ranks), one) << s.model << " " << s.policy << " on " << ranks << " ranks";
    }
  }
}

TEST(WanRanks, SparseIsNotDense) {
  const WanModel model = WanModel::load(fixture("wan_odd_official"), Precision::kF32);
  EXPECT_NE(predict(model, {"", "dense", 1, {5, 9, 7}}, 1), predict(model, {"", "dfsattn", 1, {5, 9, 7}}, 1));
}

TEST(WanText, AChangeOfTextIsSeenAndBranchesAreKeptApart) {
  const WanModel model = WanModel::load(fixture("wan_odd_official"), Precision::kF32);
  const WanConfig& c = model.config();
  const Threads threads(1);
  const auto fabric = make_self_fabric();
  Policy policy;
  Engine engine({policy, {{2, 3, 4}}, c.heads, c.head_dim, c.layers, 1}, *fabric, threads);
  std::vector<float> latents(24 * c.patch_features()), red(4 * c.text_dim), blue(4 * c.text_dim);
  fill_noise(1, 0, latents);
  fill_noise(2, 0, red);
  fill_noise(3, 0, blue);
  const std::vector<float> time{300};
  const auto kept = model.make_workspace();
  const auto predict = [&](WanModel::Workspace& w, const std::vector<float>& text, Branch branch) {
    std::vector<float> velocity(24 * c.out_features());
    model.forward({latents, time, text, 1, 4, 0, 1, branch}, engine, threads, w, velocity);
    return velocity;
  };
  const auto fresh = [&](const std::vector<float>& text) {
    return predict(*model.make_workspace(), text, Branch::kConditional);
  };
  const auto with_red = fresh(red), with_blue = fresh(blue);
  EXPECT_NE(with_red, with_blue);
  EXPECT_EQ(predict(*kept, red, Branch::kConditional), with_red);
  EXPECT_EQ(predict(*kept, blue, Branch::kUnconditional), with_blue);
  EXPECT_EQ(predict(*kept, red, Branch::kConditional), with_red);
  EXPECT_EQ(predict(*kept, blue, Branch::kConditional), with_blue);
  EXPECT_EQ(predict(*kept, red, Branch::kUnconditional), with_red);
}

}  // namespace
}  // namespace tulle
