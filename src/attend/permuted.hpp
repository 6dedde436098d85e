// Attention over clusters: tokens are permuted per (sample, head), and every query cluster sees whole key clusters.
#pragma once

#include "mask/cluster_mask.hpp"
#include "tulle/attention.hpp"

namespace tulle {

// As attend_cpu (its contract, types and errors), with a ClusterMask in place of args.mask, which must be null.
// Softmax does not depend on the order of keys: keys and values of one head are laid out cluster by cluster, each query
// cluster attends densely to those it keeps, and its rows go back to where they came from (Sparse VideoGen 2, Yang et
// al., 2025). Sums run in that order, so where all is kept the result is that of dense attention within the error rule,
// not bit for bit. A reference path: rows are copied twice. Memory: keys and values of one head once, and those that a
// query cluster keeps twice a thread. The result does not depend on threads, nor a head's on other heads.
// Throws Error(kInvalidArgument) as check() and check_cluster_mask() do, and where the two do not fit.
void attend_clusters(const AttentionArgs& args, const ClusterMask& mask, const Threads& threads);

}  // namespace tulle
