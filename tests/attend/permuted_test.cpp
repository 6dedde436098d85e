// Attention over clusters against fp64 attention that knows, token by token, which pairs are kept.
#include "attend/permuted.hpp"

#include <gtest/gtest.h>

#include <random>

#include "compare.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using cases::AttentionCase;
using cases::Layout;
using cases::make_problem;
using cases::Problem;

const Threads& two_threads() {
  static const Threads threads(2);
  return threads;
}

TokenClusters random_clusters(std::int64_t tokens, std::int32_t count, std::mt19937& random) {
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(tokens));
  // Few tokens in most, many in some, and with as many clusters as tokens a third of them empty.
  std::geometric_distribution<std::int32_t> group(2.0 / (count + 1));
  for (std::int32_t& g : group_of) g = std::min(group(random), count - 1);
  return sort_into_clusters(group_of, count, 0);
}

ClusterMask random_mask(const AttentionCase& c, double kept, std::int32_t q_count, std::int32_t k_count,
                        std::uint32_t seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution keep(kept);
  ClusterMask mask{c.batch, c.heads, c.nq(), c.nk(), {}};
  for (std::int64_t i = 0; i < c.batch * c.heads; ++i) {
    ClusterMap map{random_clusters(c.nq(), q_count, random), random_clusters(c.nk(), k_count, random), {}};
    for (std::int32_t n = 0; n < q_count * k_count; ++n) map.kept.push_back(keep(random));
    mask.maps.push_back(std::move(map));
  }
  return mask;
}

// The same pairs as blocks of one token.
std::unique_ptr<BlockMask> by_tokens(const AttentionCase& c, const ClusterMask& mask) {
  auto out = std::make_unique<BlockMask>(c.batch, c.heads, BlockPartition{cases::sequence_of(c.q_video, c), 1},
                                         BlockPartition{cases::sequence_of(c.k_video, c), 1}, OrderKind::kRaster);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const ClusterMap& map = mask.map(b, h);
      for (std::int64_t i = 0; i < map.q.count(); ++i)
        for (std::int64_t j = 0; j < map.k.count(); ++j)
          for (const std::int32_t q : map.q.cluster(i))
            for (const std::int32_t k : map.k.cluster(j)) out->set(b, h, q, k, map.row(i)[static_cast<std::size_t>(j)]);
    }
  return out;
}

void run(Problem& p, const ClusterMask& mask, const Threads& threads) {
  AttentionArgs args = p.args();
  args.mask = nullptr;
  attend_clusters(args, mask, threads);
}

void expect_rule(Problem& p) {
  const cases::Exact truth = cases::exact(p);
  const cases::Distance plain = cases::distance_of_plain(p, truth), ours = cases::distance_of_kernel(p, truth);
  EXPECT_LE(ours.relative(), 2 * plain.relative() + 1e-5) << p.c.name;
  EXPECT_LE(ours.largest, 2 * plain.largest + 1e-5) << p.c.name;
  cases::expect_lse(p.lse, truth.lse);
}

std::vector<AttentionCase> shapes() {
  return {{.name = "ragged", .heads = 3, .q_video = 131, .k_video = 197},
          {.name = "one_query", .dim = 128, .q_video = 1, .k_video = 77},
          {.name = "one_key", .q_video = 33, .k_video = 1},
          {.name = "d8", .heads = 2, .dim = 8, .q_video = 65, .k_video = 66},
          {.name = "d256_scale", .dim = 256, .q_video = 40, .k_video = 70, .scale = 0.2f},
          {.name = "negative_scale", .q_video = 40, .k_video = 70, .scale = -0.3f},
          {.name = "bf16_gaps",
           .batch = 2,
           .heads = 2,
           .q_video = 90,
           .k_video = 75,
           .dtype = DType::kBf16,
           .layout = Layout::kGaps},
          {.name = "heads_first", .batch = 2, .heads = 3, .q_video = 70, .k_video = 70, .layout = Layout::kHeadsFirst},
          {.name = "text", .batch = 2, .heads = 2, .q_video = 60, .k_video = 60, .text = 21, .hidden = {5, 21}},
          {.name = "text_before",
           .heads = 2,
           .q_video = 60,
           .k_video = 60,
           .text = 21,
           .placement = TextPlacement::kPrefix,
           .hidden = {20}}};
}

TEST(AttendClusters, IsAttentionOverTheKeptPairs) {
  for (const AttentionCase& c : shapes()) {
    for (const double kept : {0.0, 0.3, 1.0}) {
      for (const std::uint32_t seed : {1u, 2u}) {
        SCOPED_TRACE(c.name + ", kept " + std::to_string(kept));
        Problem p = make_problem(c, seed);
        const ClusterMask mask = random_mask(c, kept, 7, 12, seed);
        p.mask = by_tokens(c, mask);
        run(p, mask, two_threads());
        expect_rule(p);
      }
    }
  }
}

TEST(AttendClusters, TakesMoreClustersThanTokens) {
  const AttentionCase c{.name = "many clusters", .heads = 2, .q_video = 25, .k_video = 31};
  Problem p = make_problem(c);
  const ClusterMask mask = random_mask(c, 0.5, 40, 60, 3);
  p.mask = by_tokens(c, mask);
  run(p, mask, two_threads());
  expect_rule(p);
}

TEST(AttendClusters, WithoutClustersOfKeysThereIsNothingToSee) {
  const AttentionCase c{.name = "no keys", .heads = 1, .q_video = 9, .k_video = 0};
  Problem p = make_problem(c);
  const ClusterMask mask{1, 1, 9, 0, {{sort_into_clusters(std::vector<std::int32_t>(9, 0), 1, 0), {}, {}}}};
  run(p, mask, two_threads());
  expect_rule(p);
}

// Where one cluster in the order of memory holds all, the same sums run in the same order: bit for bit dense.
TEST(AttendClusters, OneClusterIsDenseBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const AttentionCase c{.name = "one", .batch = 2, .heads = 3, .q_video = 131, .k_video = 97, .dtype = dtype};
    Problem p = make_problem(c), dense = make_problem(c);
    run(p, random_mask(c, 1.0, 1, 1, 1), two_threads());
    attend_cpu(dense.args(), two_threads());
    EXPECT_TRUE(p.out.bytes == dense.out.bytes);
    EXPECT_EQ(p.lse, dense.lse);
  }
}

TEST(AttendClusters, AnyNumberOfThreadsGivesTheSameBits) {
  const AttentionCase c{.name = "threads", .batch = 2, .heads = 3, .q_video = 300, .k_video = 333};
  const ClusterMask mask = random_mask(c, 0.4, 9, 17, 5);
  Problem one = make_problem(c);
  run(one, mask, Threads(1));
  for (const int width : {2, 3, 5}) {
    Problem many = make_problem(c);
    run(many, mask, Threads(width));
    EXPECT_TRUE(many.out.bytes == one.out.bytes) << width;
    EXPECT_EQ(many.lse, one.lse) << width;
  }
}

TEST(AttendClusters, WorksWithoutLse) {
  const AttentionCase c{.name = "no lse", .heads = 2, .q_video = 50, .k_video = 50};
  const ClusterMask mask = random_mask(c, 0.5, 4, 6, 1);
  Problem with = make_problem(c), without = make_problem(c);
  run(with, mask, two_threads());
  AttentionArgs args = without.args();
  args.lse = nullptr;
  attend_clusters(args, mask, two_threads());
  EXPECT_TRUE(with.out.bytes == without.out.bytes);
}

TEST(AttendClusters, RefusesWhatDoesNotFit) {
  const AttentionCase c{.name = "bad", .heads = 2, .q_video = 50, .k_video = 40};
  const auto refused = [&](auto&& spoil) {
    Problem p = make_problem(c);
    ClusterMask mask = random_mask(c, 0.5, 4, 6, 1);
    AttentionArgs args = p.args();
    spoil(args, mask);
    EXPECT_THROW(attend_clusters(args, mask, two_threads()), Error);
  };
  const BlockMask blocks(1, 2, {cases::sequence_of(50, c), 8}, {cases::sequence_of(40, c), 8}, OrderKind::kRaster);
  refused([&](AttentionArgs& a, ClusterMask&) { a.mask = &blocks; });
  refused([](AttentionArgs&, ClusterMask& m) { m.q_tokens = 49; });
  refused([](AttentionArgs&, ClusterMask& m) { m.k_tokens = 50; });
  refused([](AttentionArgs&, ClusterMask& m) { m.heads = 1, m.maps.pop_back(); });
  refused([](AttentionArgs&, ClusterMask& m) { m.maps[1].q.tokens[3] = 50; });
  refused([](AttentionArgs&, ClusterMask& m) { m.maps[1].kept.clear(); });
  refused([](AttentionArgs& a, ClusterMask&) { a.v.shape[1] = 39; });
}

}  // namespace
}  // namespace tulle
