// Cluster masks: each head's tokens are grouped by k-means, and pairs of groups are kept by the mass of their
// centroids.
//
// Sparse VideoGen 2 (Yang et al., 2025). For every (sample, head) the video's queries and keys are clustered apart:
// ceil(video tokens / block_q) query clusters, at most kMaxQueryClusters, and ceil(video tokens / block_k) key
// clusters, at most kMaxKeyClusters, so block_q and block_k are what a cluster holds on average. A query cluster keeps
// the fewest key clusters that hold top_p / 1000 of the softmax of its centroid over all key centroids, each weighted
// by its tokens, and at least `floor` / 1000 of the key clusters. Clusters that k-means left without tokens are dropped
// first. Text is one cluster on each side: kept by all as keys, keeping all as queries; it is not clustered and takes
// no share.
#pragma once

#include <vector>

#include "mask/cluster_mask.hpp"
#include "select/interval_cache.hpp"
#include "select/selector.hpp"

namespace tulle {

// Where k-means starts from: of one (sample, head), the centroids that it ended with, those without tokens included.
struct Centroids {
  std::vector<float> q, k;  // [clusters, head_dim]; empty: start from evenly spaced tokens
  bool operator==(const Centroids&) const = default;
};

// Rounds of k-means from evenly spaced tokens, and from centroids of an earlier step. The authors' code does 50 and 2.
constexpr int kFirstRounds = 10, kLaterRounds = 2;

// q and k as for choose_mask. `centroids` holds one entry for each (sample, head) or none; afterwards one for each, for
// the next call. Each head is chosen from its own tokens and centroids alone, with sums in a fixed order: the bits do
// not depend on threads or on which rank holds which heads. O(tokens * clusters * head_dim) a head and round; memory: q
// and k of one head a thread in f32. Throws Error(kInvalidArgument) for shapes that do not fit or a policy of fixed
// blocks, Error(kUnsupported) for f16, Error(kNotFinite) naming step, layer and head.
ClusterMask choose_clusters(const Policy& policy, const SelectCall& call, ConstTensorView q, ConstTensorView k,
                            std::vector<Centroids>& centroids, const Threads& threads);

// Selector for policies whose blocks are clusters: a mask serves the steps of one interval, and k-means of the next
// interval starts from its centroids; both under Selector's rule that nothing passes from one video to another. So what
// is chosen depends on the steps before, as it does in the paper. Not thread-safe.
class ClusterSelector {
 public:
  // Throws Error(kInvalidArgument) as check_policy does.
  explicit ClusterSelector(Policy policy);

  // The mask for this call, or nullptr when the call is dense (q and k are then not read). The pointer is valid until
  // the next choose or reset. Throws as choose_clusters and rule_for do.
  const ClusterMask* choose(const SelectCall& call, ConstTensorView q, ConstTensorView k, const Threads& threads);

  void reset() { cache_.clear(); }  // forgets all masks and centroids

 private:
  struct Remembered {
    ClusterMask mask;
    std::vector<Centroids> centroids;
  };

  Policy policy_;
  IntervalCache<Remembered> cache_;
};

}  // namespace tulle
