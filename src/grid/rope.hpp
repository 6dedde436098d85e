// Rotary position angles of the Wan family (Su et al., "RoFormer", 2021, over three axes).
#pragma once

#include <cstdint>
#include <vector>

#include "tulle/grid.hpp"

namespace tulle {

// cos and sin of shape [tokens, head_dim / 2], row-major. Pair p of a head rotates channels (2p, 2p + 1).
// The first pairs turn with the frame, the next with the row (y), the last with the column (x).
struct RopeTable {
  std::vector<float> cos, sin;
};

// Channels of one head that turn with each axis: h and w get 2 * (head_dim / 6), t gets the rest.
struct RopeSplit {
  std::int64_t t = 0, h = 0, w = 0;
};
RopeSplit rope_split(std::int64_t head_dim);

// Angles of the video tokens at memory positions [begin, end) of `order`: position / 10000^(2i / channels of the
// axis), computed in double, stored as f32. Throws Error(kInvalidArgument) unless head_dim is even and in [2, 4096]
// and 0 <= begin <= end <= tokens. Thread-safe.
RopeTable make_rope(const TokenOrder& order, std::int64_t head_dim, std::int64_t begin, std::int64_t end);

}  // namespace tulle
