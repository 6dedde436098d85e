// Cluster masks: what is kept against the masses of the clusters' means in double precision, and what may not matter.
#include "select/permuted.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "select_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::noise;
using testing_data::Tokens;
using testing_data::waves;

const Threads& one_thread() {
  static const Threads threads(1);
  return threads;
}

Policy cluster_policy(std::int32_t block_q = 16, std::int32_t block_k = 8) {
  Policy p = load_policy("svg2");
  p.block_q = block_q, p.block_k = block_k;
  p.sub_block = 1;
  return p;
}

SelectCall call_of(const Policy& p, const Sequence& s, std::int32_t step = 5) {
  return {step, 30, 1, Branch::kConditional, {s, p.block_q}};
}

struct Inputs {
  Tokens q, k;
};

Inputs inputs_of(const Sequence& s, std::uint32_t seed, std::int64_t batch = 1, std::int64_t heads = 2) {
  const std::array<std::int64_t, 4> shape = {batch, s.tokens(), heads, 8};
  const TokenOrder order = make_order(OrderKind::kHilbert, s.grid);
  return {waves(order, s, shape, seed, 1.5f, 0.5f, seed + 1), waves(order, s, shape, seed, 1.5f, 0.5f, seed + 2)};
}

ClusterMask fresh(const Policy& p, const SelectCall& call, const Inputs& in, const Threads& threads = one_thread()) {
  std::vector<Centroids> centroids;
  return choose_clusters(p, call, in.q.view(), in.k.view(), centroids, threads);
}

std::vector<double> mean_of(const Tokens& x, std::int64_t b, std::int64_t head, std::span<const std::int32_t> tokens) {
  const std::int64_t d = x.shape[3];
  std::vector<double> mean(static_cast<std::size_t>(d));
  for (const std::int32_t t : tokens) {
    const float* row = x.view().row<float>(b, t, head);
    for (std::int64_t c = 0; c < d; ++c)
      mean[static_cast<std::size_t>(c)] += row[c] / static_cast<double>(tokens.size());
  }
  return mean;
}

// Softmax of a query cluster's mean over the means of the video's key clusters, each weighted by its tokens.
std::vector<double> masses(const Inputs& in, const ClusterMap& map, std::int64_t b, std::int64_t head, std::int64_t i,
                           std::int64_t video_clusters) {
  const std::vector<double> q = mean_of(in.q, b, head, map.q.cluster(i));
  std::vector<double> mass;
  double sum = 0;
  for (std::int64_t j = 0; j < video_clusters; ++j) {
    const std::vector<double> k = mean_of(in.k, b, head, map.k.cluster(j));
    double logit = 0;
    for (std::size_t c = 0; c < q.size(); ++c) logit += q[c] * k[c] / std::sqrt(static_cast<double>(q.size()));
    sum += mass.emplace_back(std::exp(logit) * static_cast<double>(map.k.size(j)));
  }
  for (double& m : mass) m /= sum;
  return mass;
}

// What is kept has the largest masses, holds top_p, is no fewer than the floor, and could not lose its last one.
void expect_fewest(const Policy& p, std::span<const std::uint8_t> kept, const std::vector<double>& mass) {
  constexpr double kSlack = 1e-5;
  double held = 0, least_kept = 2, most_dropped = 0;
  std::size_t count = 0;
  for (std::size_t j = 0; j < mass.size(); ++j) {
    if (kept[j] == 0) {
      most_dropped = std::max(most_dropped, mass[j]);
      continue;
    }
    ++count;
    held += mass[j];
    least_kept = std::min(least_kept, mass[j]);
  }
  const auto floor = std::max<std::size_t>(1, (mass.size() * static_cast<std::size_t>(p.floor) + 500) / 1000);
  EXPECT_GE(least_kept, most_dropped - kSlack);
  EXPECT_GE(held, p.top_p / 1000.0 - kSlack);
  EXPECT_GE(count, floor);
  EXPECT_TRUE(count == floor || held - least_kept < p.top_p / 1000.0 + kSlack) << held << " and " << least_kept;
}

void expect_well_chosen(const Policy& p, const Sequence& s, const Inputs& in) {
  const ClusterMask mask = fresh(p, call_of(p, s), in);
  check_cluster_mask(mask);
  for (std::int64_t b = 0; b < mask.batch; ++b) {
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      const ClusterMap& map = mask.map(b, h);
      const std::int64_t text = s.text_tokens > 0, q_count = map.q.count() - text, k_count = map.k.count() - text;
      EXPECT_LE(q_count, (s.grid.tokens() + p.block_q - 1) / p.block_q);
      EXPECT_LE(k_count, (s.grid.tokens() + p.block_k - 1) / p.block_k);
      for (std::int64_t i = 0; i < q_count; ++i) {
        EXPECT_GT(map.q.size(i), 0);
        expect_fewest(p, map.row(i).first(static_cast<std::size_t>(k_count)), masses(in, map, b, h, i, k_count));
        EXPECT_TRUE(text == 0 || map.row(i).back() == 1);
      }
      if (!text) continue;
      EXPECT_EQ(std::ranges::count(map.row(q_count), 1), map.k.count());
      EXPECT_EQ(map.q.size(q_count), s.text_tokens);
      EXPECT_EQ(map.k.size(k_count), s.text_tokens);
      for (const std::int32_t t : map.k.cluster(k_count)) EXPECT_TRUE(t < s.video_begin() || t >= s.video_end());
    }
  }
}

TEST(ChooseClusters, KeepsTheFewestThatHoldTheShare) {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    for (const std::int32_t top_p : {300, 900}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", top_p " + std::to_string(top_p));
      Policy p = cluster_policy();
      p.top_p = top_p;
      expect_well_chosen(p, {{3, 7, 11}, 0, TextPlacement::kSuffix}, inputs_of({{3, 7, 11}, 0, {}}, seed));
    }
  }
}

TEST(ChooseClusters, KeepsTextOfEverySample) {
  for (const TextPlacement placement : {TextPlacement::kPrefix, TextPlacement::kSuffix}) {
    const Sequence s{{2, 5, 9}, 13, placement};
    expect_well_chosen(cluster_policy(), s, inputs_of(s, 4, 2, 3));
  }
}

TEST(ChooseClusters, KeepsTheFloor) {
  Policy p = cluster_policy();
  p.top_p = 1, p.floor = 500;
  const Sequence s{{3, 7, 11}, 0, TextPlacement::kSuffix};
  expect_well_chosen(p, s, inputs_of(s, 5));
}

TEST(ChooseClusters, OneTokenIsOneCluster) {
  const Sequence s{{1, 1, 1}, 0, TextPlacement::kSuffix};
  const Policy p = load_policy("svg2");
  const ClusterMask mask = fresh(p, call_of(p, s), inputs_of(s, 1, 2, 1));
  check_cluster_mask(mask);
  EXPECT_EQ(density(mask), 1.0);
  EXPECT_EQ(mask.maps[0].q.count(), 1);
}

TEST(ChooseClusters, ClustersThatLoseTheirTokensAreDropped) {
  const Sequence s{{1, 10, 10}, 0, TextPlacement::kSuffix};
  Inputs in = inputs_of(s, 1, 1, 1);
  std::ranges::fill(in.q.values, 0.5f);  // all centroids are the same: the first takes every token
  for (std::size_t t = 0; t < 100; ++t)
    std::fill_n(in.k.values.begin() + static_cast<std::ptrdiff_t>(8 * t), 8, t < 40);
  const ClusterMask mask = fresh(cluster_policy(), call_of(cluster_policy(), s), in);
  check_cluster_mask(mask);
  EXPECT_EQ(mask.maps[0].q.count(), 1);
  ASSERT_EQ(mask.maps[0].k.count(), 2);
  EXPECT_EQ(mask.maps[0].k.size(0), 40);
  EXPECT_EQ(mask.maps[0].k.size(1), 60);
}

// Tokens of eight kinds, scattered over the picture: that is what clusters find and blocks of memory cannot.
TEST(ChooseClusters, FindsKindsOfTokensWhereverTheyStand) {
  const Sequence s{{4, 8, 8}, 0, TextPlacement::kSuffix};
  Inputs in{noise({1, 256, 1, 8}, 1, 0.05f), noise({1, 256, 1, 8}, 2, 0.05f)};
  const auto kind_of = [](std::int64_t t) { return (t * 7 + t / 8) % 8; };
  for (std::int64_t t = 0; t < 256; ++t) {
    in.q.values[static_cast<std::size_t>(8 * t + kind_of(t))] += 6;
    in.k.values[static_cast<std::size_t>(8 * t + kind_of(t))] += 6;
  }
  Policy p = cluster_policy(8, 8);
  p.floor = 0;
  const ClusterMask mask = fresh(p, call_of(p, s), in);
  const ClusterMap& map = mask.maps[0];
  for (std::int64_t i = 0; i < map.q.count(); ++i) {
    const std::int64_t kind = kind_of(map.q.cluster(i)[0]);
    for (const std::int32_t t : map.q.cluster(i)) EXPECT_EQ(kind_of(t), kind);
    for (std::int64_t j = 0; j < map.k.count(); ++j) {
      if (map.row(i)[static_cast<std::size_t>(j)] == 0) continue;
      for (const std::int32_t t : map.k.cluster(j)) EXPECT_EQ(kind_of(t), kind);
    }
  }
  EXPECT_NEAR(density(mask), 1.0 / 8, 0.02);
}

TEST(ChooseClusters, TopPOf1000KeepsAll) {
  const Sequence s{{3, 5, 7}, 9, TextPlacement::kPrefix};
  Policy p = cluster_policy();
  p.top_p = 1000, p.floor = 0;
  EXPECT_EQ(density(fresh(p, call_of(p, s), inputs_of(s, 1))), 1.0);
}

TEST(ChooseClusters, ThreadsAndOtherHeadsDoNotMatter) {
  const Sequence s{{3, 7, 11}, 13, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  const Inputs in = inputs_of(s, 3, 2, 5);
  const ClusterMask whole = fresh(p, call_of(p, s), in);
  EXPECT_EQ(fresh(p, call_of(p, s), in, Threads(3)), whole);
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}}) {
    SelectCall call = call_of(p, s);
    call.first_head = begin;
    std::vector<Centroids> centroids;
    const ClusterMask part =
        choose_clusters(p, call, in.q.heads(begin, end), in.k.heads(begin, end), centroids, one_thread());
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = begin; h < end; ++h) EXPECT_EQ(part.map(b, h - begin), whole.map(b, h));
    }
  }
}

TEST(ChooseClusters, Bf16IsReadAsItsNumbers) {
  const Sequence s{{3, 5, 7}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  Inputs in = inputs_of(s, 7);
  std::vector<Bf16> q16, k16;
  for (float& x : in.q.values) x = to_f32(q16.emplace_back(from_f32<Bf16>(x)));
  for (float& x : in.k.values) x = to_f32(k16.emplace_back(from_f32<Bf16>(x)));
  std::vector<Centroids> centroids;
  EXPECT_EQ(choose_clusters(p, call_of(p, s), view_of(std::as_const(q16).data(), in.q.shape),
                            view_of(std::as_const(k16).data(), in.k.shape), centroids, one_thread()),
            fresh(p, call_of(p, s), in));
}

TEST(ChooseClusters, RefusesWhatItCannotUse) {
  const Sequence s{{3, 5, 7}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  const Inputs in = inputs_of(s, 1);
  std::vector<Centroids> none, two(2), three(3);
  const auto refuse = [&](const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k,
                          std::vector<Centroids>& centroids) {
    EXPECT_THROW(choose_clusters(policy, call, q, k, centroids, one_thread()), Error);
  };
  refuse(load_policy("topp"), call_of(load_policy("topp"), s), in.q.view(), in.k.view(), none);
  refuse(p, call_of(p, {{3, 5, 8}, 0, {}}), in.q.view(), in.k.view(), none);
  refuse(p, call_of(p, s), in.q.heads(0, 1), in.k.view(), none);
  refuse(p, call_of(p, s), in.q.view(), in.k.view(), three);
  two[0].q.assign(9, 0.0f);
  refuse(p, call_of(p, s), in.q.view(), in.k.view(), two);
  ConstTensorView half = in.q.view();
  half.dtype = DType::kF16;
  refuse(p, call_of(p, s), half, half, none);
  EXPECT_THROW(choose_mask(p, call_of(p, s), 100, in.q.view(), in.k.view(), one_thread()), Error);
}

TEST(ChooseClusters, NamesWhereNumbersAreNotFinite) {
  const Sequence s{{3, 5, 7}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
    Inputs in = inputs_of(s, 1);
    for (std::size_t i = 8; i < 16; ++i) in.q.values[i] = in.k.values[i] = bad;  // head 1 of the first token
    SelectCall call = call_of(p, s);
    call.first_head = 4;
    try {
      fresh(p, call, in);
      ADD_FAILURE() << bad << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
      EXPECT_NE(std::string(e.what()).find("step 5, layer 1, head 5"), std::string::npos) << e.what();
    }
  }
}

// A video whose tokens drift from step to step.
Inputs at_step(const Sequence& s, std::uint32_t video, int step) {
  Inputs in = inputs_of(s, video), later = inputs_of(s, video + 100);
  for (std::size_t i = 0; i < in.q.values.size(); ++i) {
    in.q.values[i] += 0.05f * static_cast<float>(step) * later.q.values[i];
    in.k.values[i] += 0.05f * static_cast<float>(step) * later.k.values[i];
  }
  return in;
}

TEST(ClusterSelector, ALaterIntervalStartsFromTheCentroidsOfTheEarlier) {
  const Sequence s{{3, 7, 11}, 0, TextPlacement::kSuffix};
  Policy p = cluster_policy();
  p.schedule.interval = 4;
  ClusterSelector selector(p);
  std::vector<Centroids> centroids;
  ClusterMask expected;
  for (int step = 0; step < 30; ++step) {
    const Inputs in = at_step(s, 1, step);
    const ClusterMask* mask = selector.choose(call_of(p, s, step), in.q.view(), in.k.view(), one_thread());
    ASSERT_EQ(mask == nullptr, step < 3);
    if (mask == nullptr) continue;
    if ((step - 3) % 4 == 0)
      expected = choose_clusters(p, call_of(p, s, step), in.q.view(), in.k.view(), centroids, one_thread());
    EXPECT_EQ(*mask, expected) << step;
  }
  // The start mattered: from evenly spaced tokens other clusters come out.
  const Inputs in = at_step(s, 1, 27);
  EXPECT_NE(fresh(p, call_of(p, s, 27), in), expected);
}

TEST(ClusterSelector, NothingPassesToAnotherVideo) {
  const Sequence s{{3, 7, 11}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  for (const int stop : {4, 11, 30}) {
    ClusterSelector selector(p), untouched(p);
    for (int step = 0; step < stop; ++step) {
      const Inputs in = at_step(s, 1, step);
      selector.choose(call_of(p, s, step), in.q.view(), in.k.view(), one_thread());
    }
    for (int step = 0; step < 6; ++step) {
      const Inputs in = at_step(s, 2, step);
      const ClusterMask* a = selector.choose(call_of(p, s, step), in.q.view(), in.k.view(), one_thread());
      const ClusterMask* b = untouched.choose(call_of(p, s, step), in.q.view(), in.k.view(), one_thread());
      ASSERT_EQ(a == nullptr, b == nullptr);
      EXPECT_TRUE(a == nullptr || *a == *b) << "stopped at " << stop << ", step " << step;
    }
  }
}

TEST(ClusterSelector, ResetForgets) {
  const Sequence s{{3, 7, 11}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  const Inputs first = at_step(s, 1, 4), second = at_step(s, 2, 5);
  ClusterSelector selector(p);
  selector.choose(call_of(p, s, 4), first.q.view(), first.k.view(), one_thread());
  selector.reset();
  EXPECT_EQ(*selector.choose(call_of(p, s, 5), second.q.view(), second.k.view(), one_thread()),
            fresh(p, call_of(p, s, 5), second));
}

TEST(ClusterSelector, BranchesAndLayersAreApart) {
  const Sequence s{{3, 7, 11}, 0, TextPlacement::kSuffix};
  const Policy p = cluster_policy();
  const Inputs first = at_step(s, 1, 4), second = at_step(s, 2, 5);
  SelectCall other_branch = call_of(p, s, 5), other_layer = call_of(p, s, 5);
  other_branch.branch = Branch::kUnconditional;
  other_layer.layer = 2;
  ClusterSelector selector(p);
  selector.choose(call_of(p, s, 4), first.q.view(), first.k.view(), one_thread());
  for (const SelectCall& call : {other_branch, other_layer}) {
    EXPECT_EQ(*selector.choose(call, second.q.view(), second.k.view(), one_thread()), fresh(p, call, second));
  }
}

TEST(ClusterSelector, DenseCallsReadNothing) {
  ClusterSelector selector(load_policy("svg2"));
  EXPECT_EQ(selector.choose({0, 30, 0, Branch::kConditional, {}}, {}, {}, one_thread()), nullptr);
}

TEST(ClusterPolicy, IsThePresetOfThePaper) {
  const Policy p = load_policy("svg2");
  EXPECT_EQ(p.blocks, BlockShape::kClusters);
  EXPECT_EQ(p.top_p, 900);
  EXPECT_EQ(p.floor, 100);
}

TEST(ClusterPolicy, RefusesWhatClustersCannotTake) {
  for (const char* change :
       {R"("scorer": "pooled_softmax")", R"("chooser": "top_k")", R"("tail": 32)", R"("envelope": 300)",
        R"("budget": "fast", "density": 300)", R"("blocks": "cluster")", R"("blocks": 1)", R"("block_k": 0)"}) {
    const std::string text = std::string(R"({"preset": "svg2", )") + change + "}";
    EXPECT_THROW(parse_policy(text, "p.json"), Error) << text;
  }
  EXPECT_EQ(parse_policy(R"({"preset": "svg2", "block_k": 16, "top_p": 800})", "p.json").block_k, 16);
  EXPECT_EQ(parse_policy(R"({"preset": "svg2", "blocks": "fixed"})", "p.json").blocks, BlockShape::kFixed);
}

}  // namespace
}  // namespace tulle
