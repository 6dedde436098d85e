#include "select/permuted.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.hpp"
#include "base/half.hpp"
#include "select/chooser.hpp"
#include "select/clusters.hpp"

namespace tulle {
namespace {

void check_call(const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k,
                std::size_t centroids) {
  check_partition(call.partition);
  require(policy.blocks == BlockShape::kClusters,
          "policy \"{}\" has fixed blocks and no clusters; use choose_mask, or set blocks to \"clusters\"",
          policy.name);
  require(call.partition.block == policy.block_q,
          "the call is cut into blocks of {} tokens but policy \"{}\" into {}; make the partition from the policy",
          call.partition.block, policy.name, policy.block_q);
  require(q.shape == k.shape && q.tokens() == call.partition.tokens(),
          "q [{}, {}, {}, {}] and k [{}, {}, {}, {}] must be equal and of the {} tokens of the sequence", q.shape[0],
          q.shape[1], q.shape[2], q.shape[3], k.shape[0], k.shape[1], k.shape[2], k.shape[3], call.partition.tokens());
  require(centroids == 0 || static_cast<std::int64_t>(centroids) == q.batch() * q.heads(),
          "centroids of {} heads were given for {} samples of {} heads; give one for each, or none", centroids,
          q.batch(), q.heads());
  if (q.dtype == DType::kF16 || k.dtype == DType::kF16) {
    fail(ErrorCode::kUnsupported, "choose_clusters: q is {} and k is {}; give f32 or bf16", to_string(q.dtype),
         to_string(k.dtype));
  }
}

template <class T>
std::vector<float> rows_as(ConstTensorView x, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end) {
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>((end - begin) * x.head_dim()));
  for (std::int64_t t = begin; t < end; ++t) {
    const T* row = x.template row<T>(b, t, head);
    for (std::int64_t c = 0; c < x.head_dim(); ++c) rows.push_back(to_f32(row[c]));
  }
  return rows;
}

// The video's tokens of one head, [tokens, head_dim] in f32.
std::vector<float> video_rows(ConstTensorView x, const Sequence& s, std::int64_t b, std::int64_t head) {
  if (x.dtype == DType::kBf16) return rows_as<Bf16>(x, b, head, s.video_begin(), s.video_end());
  return rows_as<float>(x, b, head, s.video_begin(), s.video_end());
}

void require_finite(std::span<const float> values, const SelectCall& call, std::int64_t head) {
  if (std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) return;
  fail(ErrorCode::kNotFinite,
       "q or k holds NaN, infinity or numbers too large at step {}, layer {}, head {}; check the model's weights and "
       "inputs",
       call.step, call.layer, call.first_head + head);
}

// Clusters of rows [n, head_dim]; starts from `memory` where there is one, and leaves there what it ended with.
Clusters cluster_rows(std::span<const float> rows, std::int64_t head_dim, std::int64_t count,
                      std::vector<float>& memory) {
  const bool fresh = memory.empty();
  require(fresh || std::ssize(memory) == count * head_dim,
          "k-means was given {} numbers to start from where {} centroids of {} are needed; they are of another shape",
          memory.size(), count, head_dim);
  Clusters c = start_clusters(rows, head_dim, count);
  if (!fresh) c.centroids = std::move(memory);
  refine_clusters(rows, head_dim, fresh ? kFirstRounds : kLaterRounds, c);
  memory = c.centroids;
  return c;
}

void drop_empty(Clusters& c, std::int64_t head_dim) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(c.count));
  Clusters kept;
  for (std::int64_t i = 0; i < c.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    index[at] = static_cast<std::int32_t>(kept.count);
    if (c.tokens[at] == 0) continue;
    const auto first = c.centroids.begin() + i * head_dim;
    kept.centroids.insert(kept.centroids.end(), first, first + head_dim);
    kept.tokens.push_back(c.tokens[at]);
    ++kept.count;
  }
  for (std::int32_t group : c.of_token) kept.of_token.push_back(index[static_cast<std::size_t>(group)]);
  c = std::move(kept);
}

// The video's clusters as tokens of the sequence, and behind them one of the text, where there is text.
TokenClusters with_text(const Clusters& c, const Sequence& s) {
  TokenClusters out = sort_into_clusters(c.of_token, c.count, s.video_begin());
  if (s.text_tokens == 0) return out;
  for (std::int64_t t = 0; t < s.tokens(); ++t) {
    if (t < s.video_begin() || t >= s.video_end()) out.tokens.push_back(static_cast<std::int32_t>(t));
  }
  out.begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
  return out;
}

std::uint64_t seed_of(const SelectCall& call, std::int64_t head, std::int64_t cluster) {
  const auto layer = static_cast<std::uint64_t>(call.layer);
  const auto model_head = static_cast<std::uint64_t>(call.first_head + head);
  return mix(mix(mix(0, layer), model_head), static_cast<std::uint64_t>(cluster));
}

ClusterMap choose_map(const Policy& policy, const SelectCall& call, std::int64_t head, std::int64_t head_dim,
                      const Clusters& q, const Clusters& k) {
  const std::vector<float> mass = centroid_mass(q, k, head_dim);
  require_finite(mass, call, head);
  const Sequence& s = call.partition.sequence;
  ClusterMap map{with_text(q, s), with_text(k, s), {}};
  map.kept.assign(static_cast<std::size_t>(map.q.count() * map.k.count()), 1);  // what text keeps and is kept by
  const auto width = static_cast<std::size_t>(k.count), stride = static_cast<std::size_t>(map.k.count());
  for (std::int64_t i = 0; i < q.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ChooseRow row;
    row.scores = std::span(mass).subspan(at * width, width);
    row.seed = seed_of(call, head, i);
    row.top_p = policy.top_p;
    row.floor = policy.floor;
    const auto kept = std::span(map.kept).subspan(at * stride, width);
    std::ranges::fill(kept, std::uint8_t{0});
    choose_top_p(row, kept);
  }
  return map;
}

}  // namespace

ClusterMask choose_clusters(const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k,
                            std::vector<Centroids>& centroids, const Threads& threads) {
  check_call(policy, call, q, k, centroids.size());
  const Sequence& s = call.partition.sequence;
  const std::int64_t maps = q.batch() * q.heads(), tokens = s.grid.tokens(), d = q.head_dim();
  const std::int64_t q_count = cluster_count(tokens, policy.block_q, kMaxQueryClusters);
  const std::int64_t k_count = cluster_count(tokens, policy.block_k, kMaxKeyClusters);
  std::vector<Centroids> next = centroids;
  next.resize(static_cast<std::size_t>(maps));
  std::vector<Clusters> sides(static_cast<std::size_t>(2 * maps));  // [maps][queries, keys]
  threads.parallel_for(2 * maps, [&](std::int64_t i) {
    const std::int64_t b = i / 2 / q.heads(), head = i / 2 % q.heads();
    const bool keys = i % 2 == 1;
    const std::vector<float> rows = video_rows(keys ? k : q, s, b, head);
    require_finite(rows, call, head);
    Centroids& memory = next[static_cast<std::size_t>(i / 2)];
    Clusters& side = sides[static_cast<std::size_t>(i)];
    side = cluster_rows(rows, d, keys ? k_count : q_count, keys ? memory.k : memory.q);
    drop_empty(side, d);
  });

  ClusterMask mask{q.batch(), q.heads(), q.tokens(), k.tokens(), std::vector<ClusterMap>(next.size())};
  threads.parallel_for(maps, [&](std::int64_t m) {
    const auto at = static_cast<std::size_t>(m);
    mask.maps[at] = choose_map(policy, call, m % q.heads(), d, sides[2 * at], sides[2 * at + 1]);
  });
  centroids = std::move(next);
  return mask;
}

ClusterSelector::ClusterSelector(Policy policy) : policy_(std::move(policy)) { check_policy(policy_); }

const ClusterMask* ClusterSelector::choose(const SelectCall& call, ConstTensorView q, ConstTensorView k,
                                           const Threads& threads) {
  const StepRule rule = rule_for(policy_, call.step, call.steps, call.layer);
  if (rule.dense) return nullptr;
  const CacheKey key{call.steps, call.layer, call.branch, call.partition, q.batch(), q.heads(), call.first_head};
  const auto found = cache_.earlier(key, call.step);
  if (found != nullptr && found->interval_id == rule.interval_id) {
    check_call(policy_, call, q, k, 0);
    found->last_step = call.step;
    return &found->value.mask;
  }
  Remembered fresh;
  if (found != nullptr) fresh.centroids = found->value.centroids;
  fresh.mask = choose_clusters(policy_, call, q, k, fresh.centroids, threads);
  return &cache_.put(key, rule.interval_id, call.step, std::move(fresh))->mask;
}

}  // namespace tulle
