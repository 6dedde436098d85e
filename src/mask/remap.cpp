// Rank maps for another grid, order or block size: by boxes in the video, and by shares of the sequence.
#include <algorithm>
#include <map>
#include <vector>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "tulle/rank_map.hpp"

namespace tulle {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// --- boxes ---

struct Box {
  std::int32_t y0, y1, x0, x1;  // rows [y0, y1), columns [x0, x1) of a frame
  auto operator<=>(const Box&) const = default;
};

// What a block covers in frames [first, last]; frames with one and the same box are put together.
struct Piece {
  std::int32_t block, first, last;
  Box box;
};

Box around(const Box& box, std::int32_t y, std::int32_t x) {
  return {std::min(box.y0, y), std::max(box.y1, y + 1), std::min(box.x0, x), std::max(box.x1, x + 1)};
}

std::map<std::int32_t, Box> boxes_by_frame(const BlockPartition& p, const TokenOrder& order, std::int64_t block) {
  const TokenGrid& g = order.grid;
  std::map<std::int32_t, Box> boxes;
  for (std::int64_t t = p.begin(block); t < p.end(block); ++t) {
    const std::int32_t raster = order.raster_of_memory[index(t)];
    const std::int32_t f = raster / (g.height * g.width), y = raster / g.width % g.height, x = raster % g.width;
    const auto [it, fresh] = boxes.try_emplace(f, Box{y, y + 1, x, x + 1});
    if (!fresh) it->second = around(it->second, y, x);
  }
  return boxes;
}

std::vector<Piece> pieces_of(const BlockPartition& p, const TokenOrder& order) {
  std::vector<Piece> pieces;
  for (std::int64_t b = 0; b < p.count(); ++b) {
    const auto block = static_cast<std::int32_t>(b);
    for (const auto& [frame, box] : boxes_by_frame(p, order, b)) {
      const bool goes_on = !pieces.empty() && pieces.back().block == block && pieces.back().last == frame - 1 &&
                           pieces.back().box == box;
      if (goes_on)
        pieces.back().last = frame;
      else
        pieces.push_back({block, frame, frame, box});
    }
  }
  return pieces;
}

// Open intervals of fractions [a0, a1) / a and [b0, b1) / b.
bool overlap(std::int64_t a0, std::int64_t a1, std::int64_t a, std::int64_t b0, std::int64_t b1, std::int64_t b) {
  return a0 * b < b1 * a && b0 * a < a1 * b;
}

bool overlap(const Box& a, const TokenGrid& ag, const Box& b, const TokenGrid& bg) {
  return overlap(a.y0, a.y1, ag.height, b.y0, b.y1, bg.height) && overlap(a.x0, a.x1, ag.width, b.x0, b.x1, bg.width);
}

// Queries or keys: the pieces on both sides, and for each target piece the source pieces over it (in any frame).
struct Side {
  std::vector<Piece> source, target;  // target sorted by box
  std::vector<std::vector<std::int32_t>> over;
};

std::vector<std::int32_t> pieces_over(const Piece& target, const TokenGrid& target_grid,
                                      const std::vector<Piece>& source, const TokenGrid& source_grid) {
  std::vector<std::int32_t> found;
  for (std::size_t s = 0; s < source.size(); ++s) {
    if (overlap(target.box, target_grid, source[s].box, source_grid)) found.push_back(static_cast<std::int32_t>(s));
  }
  return found;
}

Side make_side(const BlockPartition& from, const TokenOrder& from_order, const BlockPartition& to,
               const TokenOrder& to_order) {
  Side side{pieces_of(from, from_order), pieces_of(to, to_order), {}};
  std::ranges::stable_sort(side.target, {}, &Piece::box);
  for (const Piece& piece : side.target) {
    side.over.push_back(pieces_over(piece, to_order.grid, side.source, from_order.grid));
  }
  return side;
}

// --- ranks of all heads side by side: the heads of a block pair are the innermost loop ---

constexpr std::int64_t kLanes = 16;  // heads are padded to whole vectors

struct HeadsInner {
  std::int64_t q_blocks, k_blocks, stride;
  std::vector<std::uint8_t> ranks;  // [q blocks][k blocks][stride]

  HeadsInner(std::int64_t q, std::int64_t k, std::int64_t heads)
      : q_blocks(q), k_blocks(k), stride(ceil_div(heads, kLanes) * kLanes), ranks(index(q * k * stride), kNeverRank) {}
  std::uint8_t* at(std::int64_t q, std::int64_t k) { return ranks.data() + (q * k_blocks + k) * stride; }
  const std::uint8_t* at(std::int64_t q, std::int64_t k) const { return ranks.data() + (q * k_blocks + k) * stride; }
};

HeadsInner heads_inside(const RankMap& map) {
  HeadsInner inner(map.q_blocks(), map.k_blocks(), map.heads());
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
      const auto row = map.row(h, q);
      for (std::int64_t k = 0; k < map.k_blocks(); ++k) inner.at(q, k)[h] = row[index(k)];
    }
  }
  return inner;
}

void heads_outside(const HeadsInner& inner, RankMap& map) {
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
      const auto row = map.row(h, q);
      for (std::int64_t k = 0; k < map.k_blocks(); ++k) row[index(k)] = inner.at(q, k)[h];
    }
  }
}

void lower(std::uint8_t* __restrict into, const std::uint8_t* __restrict ranks, std::int64_t stride) {
  for (std::int64_t begin = 0; begin < stride; begin += kLanes) {
    for (std::int64_t i = begin; i < begin + kLanes; ++i) into[i] = std::min(into[i], ranks[i]);
  }
}

// What the source rows over one query box keep: for each source key piece and frame distance the smallest rank.
class Reach {
 public:
  Reach(const Side& k, const TokenGrid& source, std::int64_t stride)
      : longest_(source.frames - 1),
        distances_(2 * source.frames - 1),
        stride_(stride),
        ranks_(k.source.size() * index(distances_ * stride)) {}

  void clear() { std::ranges::fill(ranks_, kNeverRank); }
  std::uint8_t* at(std::size_t piece, std::int64_t distance) {
    return ranks_.data() + (static_cast<std::int64_t>(piece) * distances_ + distance + longest_) * stride_;
  }
  const std::uint8_t* at(std::size_t piece, std::int64_t distance) const {
    return ranks_.data() + (static_cast<std::int64_t>(piece) * distances_ + distance + longest_) * stride_;
  }
  std::int64_t clamped(std::int64_t distance) const { return std::clamp(distance, -longest_, longest_); }
  std::int64_t stride() const { return stride_; }

 private:
  std::int64_t longest_, distances_, stride_;
  std::vector<std::uint8_t> ranks_;  // [source key pieces][distances][stride]
};

void add_source_row(Reach& reach, const Piece& q, const Side& k, const HeadsInner& source) {
  for (std::size_t j = 0; j < k.source.size(); ++j) {
    const Piece& key = k.source[j];
    const std::uint8_t* ranks = source.at(q.block, key.block);
    for (std::int64_t d = key.first - q.last; d <= key.last - q.first; ++d)
      lower(reach.at(j, d), ranks, reach.stride());
  }
}

void find_reach(Reach& reach, const std::vector<std::int32_t>& rows, const Side& q, const Side& k,
                const HeadsInner& source) {
  reach.clear();
  for (const std::int32_t s : rows) add_source_row(reach, q.source[index(s)], k, source);
}

// The pair (q, key) takes the smallest rank over the key's box at the distances that the pair spans.
void lower_pair(std::uint8_t* into, const Reach& reach, const Piece& q, const Piece& key,
                const std::vector<std::int32_t>& over) {
  const std::int64_t nearest = reach.clamped(key.first - q.last), farthest = reach.clamped(key.last - q.first);
  for (const std::int32_t s : over) {
    for (std::int64_t d = nearest; d <= farthest; ++d) lower(into, reach.at(index(s), d), reach.stride());
  }
}

void lower_all_pairs(HeadsInner& target, const Side& q, const Side& k, const HeadsInner& source,
                     const TokenGrid& source_grid) {
  Reach reach(k, source_grid, source.stride);
  for (std::size_t i = 0; i < q.target.size(); ++i) {
    const Piece& query = q.target[i];
    if (i == 0 || q.target[i - 1].box != query.box) find_reach(reach, q.over[i], q, k, source);
    for (std::size_t j = 0; j < k.target.size(); ++j) {
      lower_pair(target.at(query.block, k.target[j].block), reach, query, k.target[j], k.over[j]);
    }
  }
}

// --- no row is lost ---

// The smallest rank of each row: [q blocks][stride].
HeadsInner row_minima(const HeadsInner& map) {
  HeadsInner least(map.q_blocks, 1, map.stride);
  for (std::int64_t q = 0; q < map.q_blocks; ++q) {
    for (std::int64_t k = 0; k < map.k_blocks; ++k) lower(least.at(q, 0), map.at(q, k), map.stride);
  }
  return least;
}

void keep_rows(RankMap& map, const Side& q, const HeadsInner& source_least) {
  HeadsInner asked(map.q_blocks(), 1, source_least.stride);
  for (std::size_t i = 0; i < q.target.size(); ++i) {
    std::uint8_t* into = asked.at(q.target[i].block, 0);
    for (const std::int32_t s : q.over[i]) lower(into, source_least.at(q.source[index(s)].block, 0), asked.stride);
  }
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t b = 0; b < map.q_blocks(); ++b) {
      const auto least = std::ranges::min_element(map.row(h, b));
      *least = std::min(*least, asked.at(b, 0)[h]);
    }
  }
}

// --- shares of the sequence ---

struct Range {
  std::int64_t begin, end;
};

// For each target block the source blocks that it takes from. In units of 1 / (frames * source area * target area) of
// the sequence, where all three lengths are whole.
std::vector<Range> shares(const BlockPartition& from, const BlockPartition& to) {
  const TokenGrid &a = from.sequence.grid, &b = to.sequence.grid;
  const std::int64_t from_area = std::int64_t{a.height} * a.width, to_area = std::int64_t{b.height} * b.width;
  const std::int64_t row = from_area * to_area / std::min(a.height, b.height);
  std::vector<Range> ranges;
  std::int64_t begin = 0, end = 0;  // neither ever goes back
  for (std::int64_t t = 0; t < to.count(); ++t) {
    while (from.end(begin) * to_area + row <= to.begin(t) * from_area) ++begin;
    while (end < from.count() && from.begin(end) * to_area - row < to.end(t) * from_area) ++end;
    ranges.push_back({begin, end});
  }
  return ranges;
}

void scale_row(const RankMap& map, std::int64_t head, const Range& rows, std::span<const Range> columns,
               std::span<std::uint8_t> into) {
  std::vector<std::uint8_t> least(index(map.k_blocks()), kNeverRank);
  for (std::int64_t q = rows.begin; q < rows.end; ++q) {
    const auto row = map.row(head, q);
    for (std::size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], row[k]);
  }
  for (std::size_t k = 0; k < into.size(); ++k) {
    into[k] = *std::min_element(least.begin() + columns[k].begin, least.begin() + columns[k].end);
  }
}

void check_scaled(const RankMap& map, const BlockPartition& q) {
  const std::int32_t from = map.q().sequence.grid.frames, to = q.sequence.grid.frames;
  require(
      map.order() == OrderKind::kRaster && from == to,
      "shares of the sequence say where a block went only in raster order with the same number of frames, not in {} "
      "order from {} to {} frames; use remap()",
      to_string(map.order()), from, to);
}

}  // namespace

RankMap remap(const RankMap& map, const BlockPartition& q, const BlockPartition& k, OrderKind order) {
  RankMap out(map.heads(), q, k, order);
  const TokenOrder from = make_order(map.order(), map.q().sequence.grid), to = make_order(order, q.sequence.grid);
  const Side queries = make_side(map.q(), from, q, to), keys = make_side(map.k(), from, k, to);
  const HeadsInner source = heads_inside(map);
  HeadsInner target(q.count(), k.count(), map.heads());
  lower_all_pairs(target, queries, keys, source, from.grid);
  heads_outside(target, out);
  keep_rows(out, queries, row_minima(source));
  return out;
}

RankMap remap_scaled(const RankMap& map, const BlockPartition& q, const BlockPartition& k) {
  RankMap out(map.heads(), q, k, OrderKind::kRaster);
  check_scaled(map, q);
  const std::vector<Range> rows = shares(map.q(), q), columns = shares(map.k(), k);
  for (std::int64_t h = 0; h < out.heads(); ++h) {
    for (std::int64_t b = 0; b < out.q_blocks(); ++b) scale_row(map, h, rows[index(b)], columns, out.row(h, b));
  }
  return out;
}

}  // namespace tulle
