#include "report/page_pictures.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"

namespace tulle::page {
namespace {

constexpr std::int64_t kRankSide = 128;                      // cells of a rank map's picture, down and across
constexpr std::int64_t kMostTokens = std::int64_t{1} << 18;  // of a video whose blocks are shown in it
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 16;  // their numbers have two bytes

// Row by row, first block in the highest bit: eight blocks a byte.
std::string packed_bits(const MaskPicture& m) {
  std::string bytes((m.kept.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < m.kept.size(); ++i) {
    if (m.kept[i] != 0) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 128 >> (i % 8));
  }
  return bytes;
}

// Blocks a cell, down and across.
std::int64_t fold_of(const RankMap& map) {
  return std::max<std::int64_t>(1, ceil_div(std::max(map.q_blocks(), map.k_blocks()), kRankSide));
}

std::size_t cells_of(const RankMap& map) {
  const std::int64_t fold = fold_of(map);
  return static_cast<std::size_t>(ceil_div(map.q_blocks(), fold) * ceil_div(map.k_blocks(), fold));
}

// The smallest rank of each cell of `fold` x `fold` blocks: what is kept anywhere in it is seen.
std::string folded_ranks(const RankMap& map, std::int64_t head) {
  const std::int64_t fold = fold_of(map), columns = ceil_div(map.k_blocks(), fold);
  std::string cells(cells_of(map), static_cast<char>(kNeverRank));
  for (std::int64_t q = 0; q < map.q_blocks(); ++q) {
    const auto row = map.row(head, q);
    for (std::int64_t k = 0; k < map.k_blocks(); ++k) {
      char& cell = cells[static_cast<std::size_t>(q / fold * columns + k / fold)];
      cell = static_cast<char>(std::min(static_cast<std::uint8_t>(cell), row[static_cast<std::size_t>(k)]));
    }
  }
  return cells;
}

// The map of the mask's layer, or null.
const RankMap* map_of(const RunReport& r, const MaskPicture& m) {
  return m.layer >= 0 && m.layer < std::ssize(r.rank_maps) ? &r.rank_maps[static_cast<std::size_t>(m.layer)] : nullptr;
}

void check(const RunReport& r, const MaskPicture& m) {
  require(m.rows >= 1 && m.columns >= 1 && m.kept.size() == static_cast<std::size_t>(m.rows * m.columns),
          "the picture of layer {}, head {} has {} values for {} x {} blocks", m.layer, m.head, m.kept.size(), m.rows,
          m.columns);
  require(!r.blocks || (r.blocks->q.count() == m.rows && r.blocks->k.count() == m.columns),
          "the picture of layer {}, head {} has {} x {} blocks, which are not the report's", m.layer, m.head, m.rows,
          m.columns);
  const RankMap* map = map_of(r, m);
  require(map == nullptr || (r.blocks && map->q_blocks() == r.blocks->q.video_blocks() &&
                             map->k_blocks() == r.blocks->k.video_blocks() && m.head >= 0 && m.head < map->heads()),
          "the rank map of layer {} does not fit the mask of head {} and the report's blocks", m.layer, m.head);
}

std::size_t size_of_picture(const RunReport& r, const MaskPicture& m) {
  const RankMap* map = map_of(r, m);
  return m.kept.size() / 8 + (map == nullptr ? 0 : cells_of(*map));
}

OrderedJson picture(const RunReport& r, const MaskPicture& m) {
  OrderedJson json = {
      {"layer", m.layer}, {"head", m.head}, {"rows", m.rows}, {"columns", m.columns}, {"bits", base64(packed_bits(m))}};
  if (const RankMap* map = map_of(r, m)) {
    json["fold"] = fold_of(*map);
    json["ranks"] = base64(folded_ranks(*map, m.head));
  }
  return json;
}

// The number of each token's block among the blocks of video, in raster order, two bytes each, the low one first.
std::string video_blocks(const BlockPartition& p, const TokenOrder& order) {
  std::string bytes;
  for (const std::int32_t memory : order.memory_of_raster) {
    const std::int64_t block = memory / p.block;
    bytes += static_cast<char>(block & 0xff);
    bytes += static_cast<char>(block >> 8);
  }
  return bytes;
}

OrderedJson blocks(const RunReport& r) {
  if (!r.blocks) return nullptr;
  const BlockPartition &q = r.blocks->q, &k = r.blocks->k;
  OrderedJson json = {{"q", q.video_blocks()},
                      {"k", k.video_blocks()},
                      {"q_first", q.first_video_block()},
                      {"k_first", k.first_video_block()},
                      {"centre", centre_block(q, r.blocks->order) - q.first_video_block()},
                      {"q_of", ""},
                      {"k_of", ""}};
  if (q.sequence.grid.tokens() > kMostTokens || std::max(q.count(), k.count()) > kMostBlocks) return json;
  const TokenOrder order = make_order(r.blocks->order, q.sequence.grid);
  json["q_of"] = base64(video_blocks(q, order));
  json["k_of"] = base64(video_blocks(k, order));
  return json;
}

}  // namespace

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

OrderedJson pictures(const RunReport& r, std::size_t largest) {
  std::size_t all = 0;
  for (const MaskPicture& m : r.masks) {
    check(r, m);
    all += size_of_picture(r, m);
  }
  const std::size_t count = r.masks.size(),
                    fit = all <= largest ? count : std::max<std::size_t>(1, count * largest / all);
  OrderedJson shown = OrderedJson::array();
  for (std::size_t i = 0; i < fit; ++i) shown.push_back(picture(r, r.masks[i * count / fit]));
  return {{"masks", std::move(shown)}, {"masks_left_out", count - fit}, {"blocks", blocks(r)}};
}

}  // namespace tulle::page
