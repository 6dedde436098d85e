// Which blocks matter: one bit per (batch, head, query block, key block).
//
// Rows are padded to whole 32-bit words; padding bits are 0. Bit j of word w is key block 32 * w + j.
// A mask carries the geometry it was made for, and every consumer checks it. An empty row means O = 0, LSE = -inf.
// Thread safety: concurrent reads are safe; writes to different words are safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tulle/error.hpp"
#include "tulle/grid.hpp"

namespace tulle {

class BlockMask {
 public:
  BlockMask() = default;
  // All bits 0. `q` and `k` partition the query and key tokens. Throws Error(kInvalidArgument) on a bad geometry.
  BlockMask(std::int64_t batch, std::int64_t heads, const BlockPartition& q, const BlockPartition& k, OrderKind order);

  std::int64_t batch() const { return batch_; }
  std::int64_t heads() const { return heads_; }
  std::int64_t q_blocks() const { return q_.count(); }
  std::int64_t k_blocks() const { return k_.count(); }
  std::int64_t words_per_row() const { return words_; }
  const BlockPartition& q() const { return q_; }
  const BlockPartition& k() const { return k_; }
  OrderKind order() const { return order_; }

  // words_per_row() words of one row.
  std::span<std::uint32_t> row(std::int64_t b, std::int64_t head, std::int64_t q_block);
  std::span<const std::uint32_t> row(std::int64_t b, std::int64_t head, std::int64_t q_block) const;
  std::span<const std::uint32_t> words() const { return bits_; }
  std::span<std::uint32_t> words() { return bits_; }

  bool test(std::int64_t b, std::int64_t head, std::int64_t q_block, std::int64_t k_block) const;
  void set(std::int64_t b, std::int64_t head, std::int64_t q_block, std::int64_t k_block, bool value = true);
  void fill(bool value);

  bool same_geometry(const BlockMask& other) const;
  bool operator==(const BlockMask&) const = default;

 private:
  std::int64_t batch_ = 0, heads_ = 0, words_ = 0;
  BlockPartition q_, k_;
  OrderKind order_ = OrderKind::kRaster;
  std::vector<std::uint32_t> bits_;
};

// Calls body(k_block) for each set bit of a row, in increasing order.
template <class Body>
void for_each_block(std::span<const std::uint32_t> row, Body&& body) {
  for (std::size_t w = 0; w < row.size(); ++w) {
    for (std::uint32_t word = row[w]; word != 0; word &= word - 1) {
      body(static_cast<std::int64_t>(w) * 32 + std::countr_zero(word));
    }
  }
}

std::int64_t count_blocks(std::span<const std::uint32_t> row);
std::int64_t count_blocks(const BlockMask& mask);

// Kept query x key token pairs of one head, or of the whole mask. Ragged blocks count their real tokens.
std::int64_t kept_pairs(const BlockMask& mask, std::int64_t b, std::int64_t head);
std::int64_t kept_pairs(const BlockMask& mask);

// Kept pairs over all pairs, in [0, 1].
double density(const BlockMask& mask);

// Bitwise, in place. Throws Error(kInvalidArgument) unless both have the same geometry.
void unite(BlockMask& into, const BlockMask& other);
void intersect(BlockMask& into, const BlockMask& other);

// The blocks that are not kept, of the same geometry.
BlockMask complement(const BlockMask& mask);

// Heads [begin, end) of a mask as a mask of their own.
BlockMask slice_heads(const BlockMask& mask, std::int64_t begin, std::int64_t end);

// Binary form with a magic word, version, geometry and XXH3 checksum (docs/formats/mask.md).
std::string serialize(const BlockMask& mask);

// Reads what serialize wrote. `where` (a path or a description) begins every error, which has code kBadFile.
// Nothing is allocated before the stated sizes are known to agree with the number of bytes at hand.
Expected<BlockMask> parse_mask(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tulle
