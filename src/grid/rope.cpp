#include "grid/rope.hpp"

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr double kTheta = 10000.0;

// [extent, channels / 2] of one axis.
RopeTable axis_table(std::int64_t extent, std::int64_t channels) {
  const std::int64_t pairs = channels / 2;
  RopeTable table;
  table.cos.reserve(static_cast<std::size_t>(extent * pairs));
  table.sin.reserve(static_cast<std::size_t>(extent * pairs));
  for (std::int64_t position = 0; position < extent; ++position) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double turns = std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(channels));
      const double angle = static_cast<double>(position) * turns;
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

struct Axis {
  RopeTable table;
  std::int64_t pairs;

  void append_row(std::int64_t position, RopeTable& out) const {
    const std::int64_t at = position * pairs;
    out.cos.insert(out.cos.end(), table.cos.begin() + at, table.cos.begin() + at + pairs);
    out.sin.insert(out.sin.end(), table.sin.begin() + at, table.sin.begin() + at + pairs);
  }
};

Axis make_axis(std::int64_t extent, std::int64_t channels) { return {axis_table(extent, channels), channels / 2}; }

}  // namespace

RopeSplit rope_split(std::int64_t head_dim) {
  const std::int64_t side = 2 * (head_dim / 6);
  return {head_dim - 2 * side, side, side};
}

RopeTable make_rope(const TokenOrder& order, std::int64_t head_dim, std::int64_t begin, std::int64_t end) {
  require(head_dim >= 2 && head_dim <= 4096 && head_dim % 2 == 0,
          "RoPE needs an even head_dim in [2, 4096], not {}; pass the model's channels per head", head_dim);
  const TokenGrid& g = order.grid;
  require(0 <= begin && begin <= end && end <= g.tokens(),
          "RoPE tokens [{}, {}) lie outside grid {}; pass a range in it", begin, end, to_string(g));
  const RopeSplit split = rope_split(head_dim);
  const Axis t = make_axis(g.frames, split.t), h = make_axis(g.height, split.h), w = make_axis(g.width, split.w);
  RopeTable out;
  out.cos.reserve(static_cast<std::size_t>((end - begin) * head_dim / 2));
  out.sin.reserve(out.cos.capacity());
  for (std::int64_t m = begin; m < end; ++m) {
    const std::int32_t raster = order.raster_of_memory[static_cast<std::size_t>(m)];
    t.append_row(raster / g.width / g.height, out);
    h.append_row(raster / g.width % g.height, out);
    w.append_row(raster % g.width, out);
  }
  return out;
}

}  // namespace tulle
