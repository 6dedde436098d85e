#include "tulle/rank_map.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 36;  // 64 GiB a layer: beyond any map, and far from overflow
constexpr std::int64_t kLevels = 255;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void check_geometry(const BlockPartition& q, const BlockPartition& k) {
  check_partition(q);
  check_partition(k);
  require(q.sequence.grid == k.sequence.grid && q.sequence.text_tokens == 0 && k.sequence.text_tokens == 0,
          "a rank map needs queries and keys of one grid without text, not {} with {} and {} with {} text tokens",
          to_string(q.sequence.grid), q.sequence.text_tokens, to_string(k.sequence.grid), k.sequence.text_tokens);
}

std::int64_t byte_count(std::int64_t heads, std::int64_t q_blocks, std::int64_t k_blocks) {
  const auto bytes = checked_product({heads, q_blocks, k_blocks});
  require(
      heads >= 1 && bytes && *bytes <= kMaxBytes,
      "a rank map of {} heads, {} query and {} key blocks is not possible; heads must be >= 1 and the whole at most "
      "{} bytes",
      heads, q_blocks, k_blocks, kMaxBytes);
  return *bytes;
}

// Only the last key block can be ragged; this is what it lacks.
std::int64_t missing_tokens(const BlockPartition& k) { return k.block - k.size(k.count() - 1); }

double all_pairs(const RankMap& map) {
  return static_cast<double>(map.q().tokens()) * static_cast<double>(map.k().tokens());
}

void pack_row(std::span<const std::uint8_t> ranks, std::uint8_t level, std::span<std::uint32_t> words) {
  for (std::size_t k = 0; k < ranks.size(); ++k) words[k / 32] |= std::uint32_t{ranks[k] <= level} << (k % 32);
}

}  // namespace

RankMap::RankMap(std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order)
    : heads_(heads), q_(q), k_(k), order_(order) {
  check_geometry(q, k);
  ranks_.assign(index(byte_count(heads, q.count(), k.count())), kNeverRank);
}

std::span<std::uint8_t> RankMap::row(std::int64_t head, std::int64_t q_block) {
  return {ranks_.data() + (head * q_blocks() + q_block) * k_blocks(), index(k_blocks())};
}

std::span<const std::uint8_t> RankMap::row(std::int64_t head, std::int64_t q_block) const {
  return {ranks_.data() + (head * q_blocks() + q_block) * k_blocks(), index(k_blocks())};
}

bool RankMap::same_geometry(const RankMap& o) const {
  return heads_ == o.heads_ && q_ == o.q_ && k_ == o.k_ && order_ == o.order_;
}

std::uint8_t rank_level(std::int32_t permille) {
  require(permille >= 1 && permille <= 1000, "density {} permille must be in [1, 1000]", permille);
  return static_cast<std::uint8_t>(ceil_div(kLevels * permille, 1000));
}

std::uint8_t rank_of_place(std::int64_t place, std::int64_t blocks) {
  require(0 <= place && place < blocks && blocks <= kMaxTokens, "place {} of {} blocks must be in [0, blocks)", place,
          blocks);
  return static_cast<std::uint8_t>(ceil_div(kLevels * (place + 1), blocks));
}

void unite(RankMap& into, const RankMap& other) {
  require(into.same_geometry(other),
          "rank maps of different geometry cannot be united ({} heads x {} x {} blocks with {} x {} x {}, or another "
          "grid, block or order); remap one first",
          into.heads(), into.q_blocks(), into.k_blocks(), other.heads(), other.q_blocks(), other.k_blocks());
  std::ranges::transform(into.bytes(), other.bytes(), into.bytes().begin(),
                         [](std::uint8_t a, std::uint8_t b) { return std::min(a, b); });
}

double density_at(const RankMap& map, std::int64_t head, std::uint8_t level) {
  const std::int64_t missing = missing_tokens(map.k());
  std::int64_t pairs = 0;
  for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
    const auto row = map.row(head, q);
    const std::int64_t blocks = std::ranges::count_if(row, [level](std::uint8_t rank) { return rank <= level; });
    pairs += map.q().size(q) * (blocks * map.k().block - (row.back() <= level ? missing : 0));
  }
  return static_cast<double>(pairs) / all_pairs(map);
}

double density_at(const RankMap& map, std::uint8_t level) {
  double sum = 0;
  for (std::int64_t h = 0; h < map.heads(); ++h) sum += density_at(map, h, level);
  return sum / static_cast<double>(map.heads());
}

std::array<double, 256> density_by_level(const RankMap& map, std::int64_t head) {
  const std::int64_t missing = missing_tokens(map.k());
  std::array<std::int64_t, 256> pairs{};  // of the blocks that have exactly this rank
  for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
    const auto row = map.row(head, q);
    const std::int64_t full = map.q().size(q) * map.k().block;
    for (const std::uint8_t rank : row) pairs[rank] += full;
    pairs[row.back()] -= map.q().size(q) * missing;
  }
  std::array<double, 256> density{};
  std::int64_t kept = 0;
  for (std::size_t level = 0; level < density.size(); ++level) {
    kept += pairs[level];
    density[level] = static_cast<double>(kept) / all_pairs(map);
  }
  return density;
}

BlockMask mask_at(const RankMap& map, std::span<const std::uint8_t> levels) {
  require(levels.size() == index(map.heads()), "{} levels were given for a rank map of {} heads; give one a head",
          levels.size(), map.heads());
  BlockMask mask(1, map.heads(), map.q(), map.k(), map.order());
  for (std::int64_t h = 0; h < map.heads(); ++h) {
    for (std::int64_t q = 0; q < map.q_blocks(); ++q) pack_row(map.row(h, q), levels[index(h)], mask.row(0, h, q));
  }
  return mask;
}

}  // namespace tulle
