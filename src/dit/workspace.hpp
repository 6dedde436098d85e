// Reused buffers of one rank: sized at the first forward, and again when shapes change.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "dit/wan_weights.hpp"
#include "grid/rope.hpp"
#include "tulle/model.hpp"

namespace tulle {

// Activations are rows: row b * tokens + i is token i of sample b.
struct WanShape {
  std::int64_t batch = 0, tokens = 0, text_tokens = 0;
  std::int64_t rows() const { return batch * tokens; }
  bool operator==(const WanShape&) const = default;
};

// Keys and values of cross-attention for every layer. They depend on the text alone, so that all steps share them.
struct TextKeys {
  std::uint64_t text_hash = 0;
  std::vector<Buffer<std::byte>> layers;  // [batch * text_tokens, 2 * hidden]: key, value
};

class WanModel::Workspace {
 public:
  explicit Workspace(const WanWeights& weights) : owner(&weights) {}

  const WanWeights* owner;  // the model it was made for
  WanShape shape;
  Buffer<float> x;                          // [rows, hidden]: the residual stream
  Buffer<float> update;                     // [rows, hidden]: what a sub-layer adds to it; then the head's input
  Buffer<std::byte> narrow;                 // [rows, hidden] activations
  Buffer<std::byte> wide;                   // [rows, max(3 hidden, ffn_dim)] activations
  Buffer<float> time;                       // [batch, freq_dim + 8 hidden], see embed_time
  std::array<Buffer<float>, 2> modulation;  // [batch, 6, hidden] of this layer and the next; scales hold 1 + scale
  std::array<TextKeys, 2> text;             // by branch

  RopeTable rope;
  std::optional<std::pair<OrderKind, TokenGrid>> rope_order;
  Range rope_range;
};

// Makes buffers of `shape`; keeps them when it is the same. Throws Error(kOutOfMemory).
void fit(WanModel::Workspace& workspace, const WanShape& shape);

}  // namespace tulle
