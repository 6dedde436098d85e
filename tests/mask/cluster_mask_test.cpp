// Clusters of tokens and what they keep, against pairs counted one by one.
#include "mask/cluster_mask.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tulle/error.hpp"

namespace tulle {
namespace {

std::vector<std::int32_t> any_groups(std::int64_t tokens, std::int32_t count) {
  return *rc::gen::container<std::vector<std::int32_t>>(static_cast<std::size_t>(tokens), rc::gen::inRange(0, count));
}

ClusterMap any_map(std::int64_t q_tokens, std::int64_t k_tokens) {
  const std::int32_t q_count = *rc::gen::inRange(1, 9), k_count = *rc::gen::inRange(1, 9);
  ClusterMap map{sort_into_clusters(any_groups(q_tokens, q_count), q_count, 0),
                 sort_into_clusters(any_groups(k_tokens, k_count), k_count, 0),
                 {}};
  map.kept = *rc::gen::container<std::vector<std::uint8_t>>(static_cast<std::size_t>(q_count * k_count),
                                                            rc::gen::inRange<std::uint8_t>(0, 2));
  return map;
}

RC_GTEST_PROP(ClusterMask, SortingKeepsEveryTokenInItsGroup, ()) {
  const std::int32_t count = *rc::gen::inRange(1, 9), first = *rc::gen::inRange(0, 100);
  const std::vector<std::int32_t> groups = any_groups(*rc::gen::inRange(0, 60), count);
  const TokenClusters c = sort_into_clusters(groups, count, first);
  RC_ASSERT(c.count() == count);
  RC_ASSERT(c.tokens.size() == groups.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto members = c.cluster(i);
    RC_ASSERT(std::is_sorted(members.begin(), members.end()));
    for (const std::int32_t t : members) RC_ASSERT(groups[static_cast<std::size_t>(t - first)] == i);
  }
}

RC_GTEST_PROP(ClusterMask, PairsAreCountedByTokens, ()) {
  const std::int64_t q_tokens = *rc::gen::inRange(1, 40), k_tokens = *rc::gen::inRange(1, 40);
  ClusterMask mask{1, 2, q_tokens, k_tokens, {any_map(q_tokens, k_tokens), any_map(q_tokens, k_tokens)}};
  check_cluster_mask(mask);
  std::int64_t all = 0;
  for (const ClusterMap& map : mask.maps) {
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < map.q.count(); ++i)
      for (std::int64_t j = 0; j < map.k.count(); ++j)
        for ([[maybe_unused]] const std::int32_t q : map.q.cluster(i))
          for ([[maybe_unused]] const std::int32_t k : map.k.cluster(j))
            pairs += map.row(i)[static_cast<std::size_t>(j)];
    RC_ASSERT(kept_pairs(map) == pairs);
    all += pairs;
  }
  RC_ASSERT(density(mask) == static_cast<double>(all) / static_cast<double>(2 * q_tokens * k_tokens));
}

ClusterMask good_mask() {
  const TokenClusters c = sort_into_clusters(std::vector<std::int32_t>{0, 1, 1, 0, 3}, 4, 0);
  return {1, 1, 5, 5, {{c, c, std::vector<std::uint8_t>(16, 1)}}};
}

TEST(ClusterMask, RefusesWhatDoesNotFit) {
  EXPECT_NO_THROW(check_cluster_mask(good_mask()));
  const auto refused = [](auto&& spoil) {
    ClusterMask mask = good_mask();
    spoil(mask);
    EXPECT_THROW(check_cluster_mask(mask), Error);
  };
  refused([](ClusterMask& m) { m.heads = 2; });
  refused([](ClusterMask& m) { m.q_tokens = 6; });
  refused([](ClusterMask& m) { m.k_tokens = 4; });
  refused([](ClusterMask& m) { m.maps[0].kept.pop_back(); });
  refused([](ClusterMask& m) { m.maps[0].q.tokens[0] = m.maps[0].q.tokens[1]; });
  refused([](ClusterMask& m) { m.maps[0].k.tokens[0] = -1; });
  refused([](ClusterMask& m) { m.maps[0].k.tokens[0] = 5; });
  refused([](ClusterMask& m) { m.maps[0].k.begin[1] = 5; });  // behind the next one's
  refused([](ClusterMask& m) { m.maps[0].k.begin.back() = 4; });
  refused([](ClusterMask& m) { m.maps[0].k.begin.clear(); });
  refused([](ClusterMask& m) { m.maps[0].k.begin[0] = 1; });
}

TEST(ClusterMask, NothingIsAllOfNothing) { EXPECT_EQ(density({0, 0, 0, 0, {}}), 1.0); }

}  // namespace
}  // namespace tulle
