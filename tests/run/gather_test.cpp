#include "run/gather.hpp"

#include <gtest/gtest.h>

#include "tulle/error.hpp"

namespace tulle {
namespace {

Plan plan_of(std::int32_t tokens, std::int64_t ranks) {
  PlanRequest r;
  r.sequence.grid = {1, 1, tokens};
  r.heads = 8;
  r.head_dim = 8;
  r.layers = 1;
  r.ranks = ranks;
  return make_plan(r);
}

TEST(GatherTokens, EveryRankGetsAllTokensInOrder) {
  constexpr std::int64_t kFeatures = 3;
  for (int ranks : {1, 2, 3, 5, 8}) {
    const Plan plan = plan_of(97, ranks);
    run_ranks(ranks, 60, [&](Fabric& f) {
      const Range mine = plan.tokens[static_cast<std::size_t>(f.rank())];
      std::vector<float> local;
      for (std::int64_t i = mine.begin * kFeatures; i < mine.end * kFeatures; ++i)
        local.push_back(static_cast<float>(i));
      const std::vector<float> all = gather_tokens(f, plan, local, kFeatures);
      ASSERT_EQ(all.size(), 97u * kFeatures);
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i));
    });
  }
}

TEST(GatherTokens, RefusesWhatDoesNotFit) {
  const auto fabric = make_self_fabric();
  const std::vector<float> local(96);
  EXPECT_THROW(gather_tokens(*fabric, plan_of(97, 1), local, 1), Error);
  EXPECT_THROW(gather_tokens(*fabric, plan_of(97, 2), local, 1), Error);
  EXPECT_EQ(gather_tokens(*fabric, plan_of(96, 1), local, 1), local);
}

}  // namespace
}  // namespace tulle
