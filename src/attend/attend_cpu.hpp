// What attend_cpu needs besides its tensors.
#pragma once

#include <cstddef>

#include "tulle/attention.hpp"

namespace tulle {

// Upper bound, in bytes, of the heap memory that attend_cpu(args, threads) takes while it runs with `threads` threads:
// packed K and V in f32 of as many heads as fit 24 MiB (at least one), one tile per thread, and the list of work.
// Throws as check() does.
std::size_t attention_workspace_bytes(const AttentionArgs& args, int threads);

}  // namespace tulle
