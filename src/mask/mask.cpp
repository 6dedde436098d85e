#include "tulle/mask.hpp"

#include <algorithm>
#include <functional>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kMaxWords = std::int64_t{1} << 34;  // 64 GiB: beyond any mask, and far from overflow

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t word_count(std::int64_t batch, std::int64_t heads, std::int64_t q_blocks, std::int64_t words_per_row) {
  const auto words = checked_product({batch, heads, q_blocks, words_per_row});
  require(
      batch >= 1 && heads >= 1 && words && *words <= kMaxWords,
      "a mask of {} samples, {} heads and {} query blocks is not possible; all must be >= 1 and the whole at most {} "
      "words",
      batch, heads, q_blocks, kMaxWords);
  return *words;
}

void require_same_geometry(const BlockMask& a, const BlockMask& b) {
  require(a.same_geometry(b),
          "masks of different geometry cannot be combined ({} samples x {} heads x {} x {} blocks with {} x {} x {} x "
          "{}, or other tokens, blocks or order); make both for one call",
          a.batch(), a.heads(), a.q_blocks(), a.k_blocks(), b.batch(), b.heads(), b.q_blocks(), b.k_blocks());
}

// Key tokens of a row. All blocks are full but the last one of each part, so count bits and take off what those miss.
class RowTokens {
 public:
  explicit RowTokens(const BlockPartition& k) : block_(k.block) {
    const std::int64_t first_part = k.sequence.placement == TextPlacement::kPrefix ? k.text_blocks() : k.video_blocks();
    for (std::int64_t last : {first_part - 1, k.count() - 1}) {
      if (last >= 0 && (ragged_.empty() || ragged_.back().block != last))
        ragged_.push_back({last, block_ - k.size(last)});
    }
  }

  std::int64_t operator()(std::span<const std::uint32_t> row) const {
    std::int64_t tokens = count_blocks(row) * block_;
    for (const Ragged& r : ragged_) {
      if (row[index(r.block / 32)] >> (r.block % 32) & 1u) tokens -= r.missing;
    }
    return tokens;
  }

 private:
  struct Ragged {
    std::int64_t block, missing;
  };
  std::int64_t block_;
  std::vector<Ragged> ragged_;
};

}  // namespace

BlockMask::BlockMask(std::int64_t batch, std::int64_t heads, const BlockPartition& q, const BlockPartition& k,
                     OrderKind order)
    : batch_(batch), heads_(heads), q_(q), k_(k), order_(order) {
  check_partition(q);
  check_partition(k);
  words_ = ceil_div(k.count(), 32);
  bits_.assign(index(word_count(batch, heads, q.count(), words_)), 0u);
}

std::span<const std::uint32_t> BlockMask::row(std::int64_t b, std::int64_t head, std::int64_t q_block) const {
  const std::int64_t at = ((b * heads_ + head) * q_blocks() + q_block) * words_;
  return {bits_.data() + at, index(words_)};
}

std::span<std::uint32_t> BlockMask::row(std::int64_t b, std::int64_t head, std::int64_t q_block) {
  const std::int64_t at = ((b * heads_ + head) * q_blocks() + q_block) * words_;
  return {bits_.data() + at, index(words_)};
}

bool BlockMask::test(std::int64_t b, std::int64_t head, std::int64_t q_block, std::int64_t k_block) const {
  return row(b, head, q_block)[index(k_block / 32)] >> (k_block % 32) & 1u;
}

void BlockMask::set(std::int64_t b, std::int64_t head, std::int64_t q_block, std::int64_t k_block, bool value) {
  std::uint32_t& word = row(b, head, q_block)[index(k_block / 32)];
  const std::uint32_t bit = 1u << (k_block % 32);
  word = value ? word | bit : word & ~bit;
}

void BlockMask::fill(bool value) {
  std::fill(bits_.begin(), bits_.end(), value ? ~0u : 0u);
  const std::int64_t used = k_blocks() % 32;
  if (!value || used == 0) return;
  const std::uint32_t last = (1u << used) - 1;
  for (std::size_t w = index(words_) - 1; w < bits_.size(); w += index(words_)) bits_[w] = last;
}

bool BlockMask::same_geometry(const BlockMask& o) const {
  return batch_ == o.batch_ && heads_ == o.heads_ && q_ == o.q_ && k_ == o.k_ && order_ == o.order_;
}

std::int64_t count_blocks(std::span<const std::uint32_t> row) {
  std::int64_t count = 0;
  for (std::uint32_t word : row) count += std::popcount(word);
  return count;
}

std::int64_t count_blocks(const BlockMask& mask) { return count_blocks(mask.words()); }

std::int64_t kept_pairs(const BlockMask& mask, std::int64_t b, std::int64_t head) {
  const RowTokens key_tokens(mask.k());
  std::int64_t pairs = 0;
  for (std::int64_t q = 0; q < mask.q_blocks(); ++q) pairs += mask.q().size(q) * key_tokens(mask.row(b, head, q));
  return pairs;
}

std::int64_t kept_pairs(const BlockMask& mask) {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < mask.batch(); ++b) {
    for (std::int64_t h = 0; h < mask.heads(); ++h) pairs += kept_pairs(mask, b, h);
  }
  return pairs;
}

double density(const BlockMask& mask) {
  const double maps = static_cast<double>(mask.batch()) * static_cast<double>(mask.heads());
  const double all = maps * static_cast<double>(mask.q().tokens()) * static_cast<double>(mask.k().tokens());
  return all > 0 ? static_cast<double>(kept_pairs(mask)) / all : 0.0;
}

void unite(BlockMask& into, const BlockMask& other) {
  require_same_geometry(into, other);
  std::ranges::transform(into.words(), other.words(), into.words().begin(), std::bit_or<>{});
}

void intersect(BlockMask& into, const BlockMask& other) {
  require_same_geometry(into, other);
  std::ranges::transform(into.words(), other.words(), into.words().begin(), std::bit_and<>{});
}

BlockMask complement(const BlockMask& mask) {
  BlockMask rest = mask;
  rest.fill(true);
  std::ranges::transform(rest.words(), mask.words(), rest.words().begin(), std::bit_xor{});
  return rest;
}

BlockMask slice_heads(const BlockMask& mask, std::int64_t begin, std::int64_t end) {
  require(0 <= begin && begin < end && end <= mask.heads(),
          "heads [{}, {}) are no part of a mask of {} heads; slice within", begin, end, mask.heads());
  BlockMask part(mask.batch(), end - begin, mask.q(), mask.k(), mask.order());
  for (std::int64_t b = 0; b < mask.batch(); ++b) {
    for (std::int64_t h = begin; h < end; ++h) {
      for (std::int64_t q = 0; q < mask.q_blocks(); ++q) {
        std::ranges::copy(mask.row(b, h, q), part.row(b, h - begin, q).begin());
      }
    }
  }
  return part;
}

}  // namespace tulle
