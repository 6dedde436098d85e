#include "attend/permuted.hpp"

#include <cstring>
#include <vector>

#include "attend/shape.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

void check_fit(const AttentionArgs& args, const ClusterMask& mask) {
  require(args.mask == nullptr, "attend_clusters: a block mask was given as well; give one or the other");
  require(mask.batch == args.q.batch() && mask.heads == args.q.heads() && mask.q_tokens == args.q.tokens() &&
              mask.k_tokens == args.k.tokens(),
          "attend_clusters: the mask is for {} samples, {} heads, {} queries and {} keys, the tensors have {}, {}, {} "
          "and {}; make the mask for this call",
          mask.batch, mask.heads, mask.q_tokens, mask.k_tokens, args.q.batch(), args.q.heads(), args.q.tokens(),
          args.k.tokens());
}

// Rows of one head, one behind the other: a tensor [1, rows, 1, head_dim] of its own.
class Rows {
 public:
  Rows(const ConstTensorView& like, std::int64_t rows)
      : bytes_(static_cast<std::size_t>(rows * like.head_dim()) * size_of(like.dtype)),
        row_bytes_(static_cast<std::size_t>(like.head_dim()) * size_of(like.dtype)),
        view_{bytes_.data(), like.dtype, {1, rows, 1, like.head_dim()}, packed_strides({1, rows, 1, like.head_dim()})} {
  }

  TensorView view() const { return view_; }
  std::byte* row(std::int64_t i) { return bytes_.data() + static_cast<std::size_t>(i) * row_bytes_; }
  const std::byte* row(std::int64_t i) const { return bytes_.data() + static_cast<std::size_t>(i) * row_bytes_; }
  std::size_t row_bytes() const { return row_bytes_; }

  void copy(std::int64_t to, const Rows& from, std::int64_t begin, std::int64_t count) {
    if (count > 0) std::memcpy(row(to), from.row(begin), static_cast<std::size_t>(count) * row_bytes_);
  }

 private:
  Buffer<std::byte> bytes_;
  std::size_t row_bytes_;
  TensorView view_;
};

std::int64_t row_offset(const ConstTensorView& x, std::int64_t b, std::int64_t token, std::int64_t head) {
  return (b * x.stride[0] + token * x.stride[1] + head * x.stride[2]) * static_cast<std::int64_t>(size_of(x.dtype));
}

void gather(const ConstTensorView& x, std::int64_t b, std::int64_t head, std::span<const std::int32_t> tokens,
            std::int64_t to, Rows& rows) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(x.data) + row_offset(x, b, tokens[i], head);
    std::memcpy(rows.row(to + static_cast<std::int64_t>(i)), from, rows.row_bytes());
  }
}

void scatter(const Rows& rows, std::int64_t b, std::int64_t head, std::span<const std::int32_t> tokens,
             const TensorView& x) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto* to = static_cast<std::byte*>(x.data) + row_offset(x, b, tokens[i], head);
    std::memcpy(to, rows.row(static_cast<std::int64_t>(i)), rows.row_bytes());
  }
}

// The clusters without the keys that sample b does not see; some may be left empty.
TokenClusters seen_clusters(const AttentionArgs& args, const TokenClusters& all, std::int64_t b) {
  if (args.hidden_keys.empty()) return all;
  const auto [first, second] = args.hidden_keys[static_cast<std::size_t>(b)];
  TokenClusters seen;
  for (std::int64_t i = 0; i < all.count(); ++i) {
    for (const std::int32_t t : all.cluster(i)) {
      if (t < first || t >= second) seen.tokens.push_back(t);
    }
    seen.begin.push_back(static_cast<std::int32_t>(seen.tokens.size()));
  }
  return seen;
}

// One (sample, head) with its keys and values laid out cluster by cluster.
struct Head {
  const AttentionArgs& args;
  const ClusterMap& map;
  std::int64_t b, head;
  TokenClusters seen;
  Rows k, v;

  Head(const AttentionArgs& a, const ClusterMask& mask, std::int64_t pair)
      : args(a),
        map(mask.maps[static_cast<std::size_t>(pair)]),
        b(pair / mask.heads),
        head(pair % mask.heads),
        seen(seen_clusters(a, map.k, b)),
        k(a.k, std::ssize(seen.tokens)),
        v(a.v, std::ssize(seen.tokens)) {}

  void lay_out(const Threads& threads) {
    constexpr std::int64_t kRowsATime = 256;
    threads.parallel_ranges(std::ssize(seen.tokens), kRowsATime, [&](std::int64_t begin, std::int64_t end) {
      const auto tokens =
          std::span(seen.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      gather(args.k, b, head, tokens, begin, k);
      gather(args.v, b, head, tokens, begin, v);
    });
  }

  std::int64_t keys_of(std::int64_t q_cluster) const {
    const auto row = map.row(q_cluster);
    std::int64_t keys = 0;
    for (std::int64_t j = 0; j < seen.count(); ++j) keys += row[static_cast<std::size_t>(j)] != 0 ? seen.size(j) : 0;
    return keys;
  }

  void keep(std::int64_t q_cluster, Rows& kept_k, Rows& kept_v) const {
    const auto row = map.row(q_cluster);
    std::int64_t to = 0;
    for (std::int64_t j = 0; j < seen.count(); ++j) {
      if (row[static_cast<std::size_t>(j)] == 0) continue;
      const std::int64_t begin = seen.begin[static_cast<std::size_t>(j)], count = seen.size(j);
      kept_k.copy(to, k, begin, count);
      kept_v.copy(to, v, begin, count);
      to += count;
    }
  }

  void attend(std::int64_t q_cluster, const Threads& threads) const {
    const auto queries = map.q.cluster(q_cluster);
    if (queries.empty()) return;
    const std::int64_t keys = keys_of(q_cluster);
    Rows q(args.q, std::ssize(queries)), out(args.out, std::ssize(queries)), kept_k(args.k, keys), kept_v(args.v, keys);
    std::vector<float> lse(args.lse != nullptr ? queries.size() : 0);
    gather(args.q, b, head, queries, 0, q);
    keep(q_cluster, kept_k, kept_v);
    AttentionArgs part;
    part.q = q.view(), part.k = kept_k.view(), part.v = kept_v.view(), part.out = out.view();
    part.scale = args.scale;
    part.lse = args.lse != nullptr ? lse.data() : nullptr;
    attend_cpu(part, threads);
    scatter(out, b, head, queries, args.out);
    for (std::size_t i = 0; i < lse.size(); ++i) args.lse[lse_index(args.q.shape, b, head, queries[i])] = lse[i];
  }
};

}  // namespace

void attend_clusters(const AttentionArgs& args, const ClusterMask& mask, const Threads& threads) {
  check(args);
  check_fit(args, mask);
  check_cluster_mask(mask);
  for (std::int64_t pair = 0; pair < mask.batch * mask.heads; ++pair) {
    Head head(args, mask, pair);
    head.lay_out(threads);
    threads.parallel_for(head.map.q.count(), [&](std::int64_t i) { head.attend(i, threads); });
  }
}

}  // namespace tulle
