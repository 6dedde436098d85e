#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/foreign_bytes.hpp"
#include "tulle/mask.hpp"

namespace tulle {
namespace {

using testing_data::seal;

constexpr std::size_t kHeaderBytes = 104;
constexpr std::size_t kWordCountOffset = 96;

Expected<BlockMask> parse(const std::string& bytes) { return parse_mask(std::as_bytes(std::span(bytes)), "test.mask"); }

void write_u64(std::string& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

BlockMask sample(std::uint32_t seed, TextPlacement placement = TextPlacement::kSuffix) {
  const BlockPartition p{{{3, 5, 7}, 9, placement}, 4};
  BlockMask mask(2, 3, p, p, OrderKind::kHilbert);
  std::mt19937 random(seed);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 3; ++h)
      for (std::int64_t q = 0; q < mask.q_blocks(); ++q) mask.set(b, h, q, random() % mask.k_blocks());
  return mask;
}

RC_GTEST_PROP(MaskFile, RoundTrips, ()) {
  const BlockMask mask =
      sample(*rc::gen::arbitrary<std::uint32_t>(), *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix));
  const auto back = parse(serialize(mask));
  RC_ASSERT(back.has_value());
  RC_ASSERT(back.value() == mask);
}

TEST(MaskFile, StartsAsDocumented) {
  const std::string bytes = serialize(sample(1));
  EXPECT_EQ(bytes.substr(0, 8), "TULLEMSK");
  EXPECT_EQ(bytes[8], 1);
  EXPECT_EQ(bytes.size(), kHeaderBytes + 4 * sample(1).words().size() + kChecksumBytes);
}

TEST(MaskFile, RefusesAnEmptyMask) { EXPECT_THROW(serialize(BlockMask{}), Error); }

TEST(MaskFile, RefusesEveryTruncation) {
  const std::string whole = serialize(sample(2));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string cut = whole.substr(0, n);
    ASSERT_FALSE(parse(cut).has_value()) << n;
    seal(cut);
    ASSERT_FALSE(parse(cut).has_value()) << n;
  }
}

TEST(MaskFile, EveryFlippedBitIsNoticed) {
  const std::string whole = serialize(sample(3));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(parse(bytes).has_value()) << bit;
  }
}

TEST(MaskFile, RefusesHostileSizesBeforeItAllocates) {
  for (std::size_t offset : {std::size_t{16}, std::size_t{24}, kWordCountOffset}) {
    for (std::uint64_t value : {~0ull, 1ull << 62, 1ull << 40, 1ull << 32, 0ull}) {
      std::string bytes = serialize(sample(4));
      write_u64(bytes, offset, value);
      seal(bytes);
      const auto result = parse(bytes);
      ASSERT_FALSE(result.has_value()) << offset << " " << value;
      EXPECT_EQ(result.error().code(), ErrorCode::kBadFile);
      EXPECT_EQ(std::string(result.error().what()).rfind("test.mask: ", 0), 0u) << result.error().what();
    }
  }
}

TEST(MaskFile, RefusesPaddingBits) {
  const BlockMask mask = sample(5);
  ASSERT_NE(mask.k_blocks() % 32, 0);
  std::string bytes = serialize(mask);
  bytes[bytes.size() - kChecksumBytes - 1] = static_cast<char>(0x80);  // top bit of the last word
  seal(bytes);
  EXPECT_FALSE(parse(bytes).has_value());
}

// What is accepted must be exactly what serialize would write; everything else is an error, never a crash.
TEST(MaskFile, SurvivesMutation) {
  const std::string whole = serialize(sample(6));
  std::mt19937 random(20261130);
  int accepted = 0;
  for (int i = 0; i < 120000; ++i) {
    std::string bytes = testing_data::mutated(whole, kHeaderBytes, random);
    if (i % 4 != 0) seal(bytes);
    const auto result = parse(bytes);
    if (!result.has_value()) continue;
    ++accepted;
    ASSERT_EQ(serialize(result.value()), bytes);
  }
  EXPECT_GT(accepted, 100);  // otherwise the mutations never reach the payload
}

}  // namespace
}  // namespace tulle
