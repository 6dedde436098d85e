#include "mask/cluster_mask.hpp"

#include "base/fail.hpp"

namespace tulle {
namespace {

void check_clusters(const TokenClusters& c, std::int64_t tokens, const char* side) {
  require(!c.begin.empty() && c.begin.front() == 0 && c.begin.back() == std::ssize(c.tokens),
          "cluster mask: the {} clusters do not run from 0 to their {} tokens; begin needs one entry a cluster and one "
          "more",
          side, c.tokens.size());
  for (std::int64_t i = 0; i < c.count(); ++i) {
    require(c.size(i) >= 0, "cluster mask: {} cluster {} has {} tokens; begin must not fall", side, i, c.size(i));
  }
  require(std::ssize(c.tokens) == tokens, "cluster mask: the {} clusters hold {} tokens of {}; put each in one", side,
          c.tokens.size(), tokens);
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(tokens));
  for (const std::int32_t t : c.tokens) {
    require(t >= 0 && t < tokens, "cluster mask: {} token {} is outside [0, {})", side, t, tokens);
    require(seen[static_cast<std::size_t>(t)]++ == 0, "cluster mask: {} token {} is there twice", side, t);
  }
}

}  // namespace

TokenClusters sort_into_clusters(std::span<const std::int32_t> group_of, std::int64_t count, std::int64_t first) {
  TokenClusters out;
  out.begin.assign(static_cast<std::size_t>(count) + 1, 0);
  for (const std::int32_t group : group_of) ++out.begin[static_cast<std::size_t>(group) + 1];
  for (std::size_t i = 1; i < out.begin.size(); ++i) out.begin[i] += out.begin[i - 1];
  std::vector<std::int32_t> next(out.begin.begin(), out.begin.end() - 1);
  out.tokens.resize(group_of.size());
  for (std::size_t t = 0; t < group_of.size(); ++t) {
    const auto place = static_cast<std::size_t>(next[static_cast<std::size_t>(group_of[t])]++);
    out.tokens[place] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(t));
  }
  return out;
}

void check_cluster_mask(const ClusterMask& mask) {
  require(mask.batch >= 0 && mask.heads >= 0 && std::ssize(mask.maps) == mask.batch * mask.heads,
          "cluster mask: {} maps for {} samples of {} heads; give one for each", mask.maps.size(), mask.batch,
          mask.heads);
  for (const ClusterMap& map : mask.maps) {
    check_clusters(map.q, mask.q_tokens, "query");
    check_clusters(map.k, mask.k_tokens, "key");
    require(std::ssize(map.kept) == map.q.count() * map.k.count(),
            "cluster mask: {} pairs are marked, but there are {} query and {} key clusters", map.kept.size(),
            map.q.count(), map.k.count());
  }
}

std::int64_t kept_pairs(const ClusterMap& map) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < map.q.count(); ++i) {
    const auto row = map.row(i);
    std::int64_t keys = 0;
    for (std::int64_t j = 0; j < map.k.count(); ++j) keys += row[static_cast<std::size_t>(j)] != 0 ? map.k.size(j) : 0;
    pairs += keys * map.q.size(i);
  }
  return pairs;
}

double density(const ClusterMask& mask) {
  double kept = 0;
  for (const ClusterMap& map : mask.maps) kept += static_cast<double>(kept_pairs(map));
  const double all =
      static_cast<double>(mask.q_tokens) * static_cast<double>(mask.k_tokens) * static_cast<double>(mask.maps.size());
  return all > 0 ? kept / all : 1.0;
}

}  // namespace tulle
