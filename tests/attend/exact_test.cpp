// What holds bit for bit: threads, repeats, full masks, equal key sets, untouched memory.
#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "compare.hpp"

namespace tulle::cases {
namespace {

std::uint64_t hash_of(const Problem& p) {
  return hash_span(std::span<const std::byte>(p.out.bytes), hash_span(std::span<const float>(p.lse)));
}

std::uint64_t run(Problem& p, int width = 2) {
  std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xff});
  attend_cpu(p.args(), Threads(width));
  return hash_of(p);
}

const AttentionCase kCase{.name = "case",
                          .batch = 2,
                          .heads = 3,
                          .dim = 40,
                          .q_video = 260,
                          .k_video = 270,
                          .text = 77,
                          .density = 0.4,
                          .hidden = {5, 77}};

TEST(Bits, DoNotDependOnThreads) {
  for (const double density : {-1.0, 0.3}) {
    AttentionCase c = kCase;
    c.density = density;
    Problem p = make_problem(c);
    const std::uint64_t one = run(p, 1);
    for (const int width : {2, 3, 8}) EXPECT_EQ(run(p, width), one) << width;
  }
}

TEST(Bits, FiftyRepeatsAreIdentical) {
  Problem p = make_problem(kCase);
  const std::uint64_t first = run(p);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(run(p), first) << i;
}

TEST(Bits, AFullMaskIsDenseWhateverTheBlocks) {
  for (const auto placement : {TextPlacement::kPrefix, TextPlacement::kSuffix}) {
    for (const std::int64_t text : {0, 1, 77, 396}) {
      AttentionCase c = kCase;
      c.placement = placement;
      c.text = text;
      c.density = -1;
      c.hidden = {text / 2, text};
      Problem p = make_problem(c);
      const std::uint64_t dense = run(p);
      for (const std::int32_t block : {1, 5, 16, 64, 100, 1000}) {
        p.mask = make_mask(c, block, block);
        p.mask->fill(true);
        EXPECT_EQ(run(p), dense) << "block " << block << " text " << text;
      }
    }
  }
}

TEST(Bits, EqualKeySetsInOtherBlocksGiveEqualRows) {
  AttentionCase c = kCase;
  c.text = 0;
  c.hidden = {};
  c.block_q = c.block_k = 60;
  Problem p = make_problem(c);
  const std::uint64_t coarse = run(p);
  auto fine = make_mask(c, 12, 4);
  for (std::int64_t n = 0; n < c.heads * fine->q_blocks() * fine->k_blocks(); ++n) {
    const std::int64_t j = n % fine->k_blocks(), i = n / fine->k_blocks() % fine->q_blocks(),
                       h = n / (fine->k_blocks() * fine->q_blocks());
    fine->set(0, h, i, j, p.mask->test(0, h, i / 5, j / 15));
  }
  p.mask = std::move(fine);
  EXPECT_EQ(run(p), coarse);
}

TEST(Bits, ARowDoesNotDependOnTheOtherRows) {
  AttentionCase c = kCase;
  c.density = -1;
  c.batch = 1;
  c.hidden = {};
  Problem p = make_problem(c);
  run(p);
  const Problem& whole = p;
  for (const std::int64_t row : {0, 5, 95, 96, 259}) {
    Problem one = make_problem(c);
    one.q.view.data = static_cast<float*>(one.q.view.data) + row * one.q.view.stride[1];
    one.q.view.shape[1] = one.out.view.shape[1] = 1;
    attend_cpu(one.args(), Threads(1));
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < c.dim; ++i) {
        ASSERT_EQ(get(one.out.view, 0, 0, h, i), get(whole.out.view, 0, row, h, i)) << row << " " << h << " " << i;
      }
    }
  }
}

// Writes all of out and nothing beside it: gaps between heads keep their bytes.
TEST(Memory, EveryOutputIsWrittenAndGapsAreNot) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    AttentionCase c = kCase;
    c.layout = Layout::kGaps;
    c.dtype = dtype;
    Problem p = make_problem(c);
    run(p);
    std::vector<bool> owned(p.out.bytes.size(), false);
    for_each_element(p.out.view.shape, [&](auto b, auto t, auto h, auto i) {
      ASSERT_FALSE(std::isnan(get(p.out.view, b, t, h, i)));
      const auto& s = p.out.view.stride;
      const std::size_t at = static_cast<std::size_t>(b * s[0] + t * s[1] + h * s[2] + i) * size_of(dtype);
      for (std::size_t k = 0; k < size_of(dtype); ++k) owned[at + k] = true;
    });
    for (std::size_t i = 0; i < owned.size(); ++i) ASSERT_TRUE(owned[i] || p.out.bytes[i] == std::byte{0xff}) << i;
    for (const float x : p.lse) ASSERT_FALSE(std::isnan(x));
  }
}

// Padded text is often uninitialised memory: whatever stands there must not be read into a result.
TEST(Memory, HiddenAndDroppedKeysMayHoldNaN) {
  for (const auto placement : {TextPlacement::kPrefix, TextPlacement::kSuffix}) {
    AttentionCase c = kCase;
    c.placement = placement;
    Problem p = make_problem(c);
    const std::uint64_t clean = run(p);
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = p.hidden[b].first; t < p.hidden[b].second; ++t) {
        for (std::int64_t h = 0; h < c.heads; ++h) {
          std::fill_n(p.k.view.row<float>(b, t, h), c.dim, std::nanf(""));
          std::fill_n(p.v.view.row<float>(b, t, h), c.dim, std::nanf(""));
        }
      }
    }
    EXPECT_EQ(run(p), clean);
  }
}

TEST(Memory, NaNInASeenKeyReachesTheResult) {
  AttentionCase c{.name = "nan", .q_video = 70, .k_video = 130};
  Problem p = make_problem(c);
  p.k.view.row<float>(0, 100, 0)[3] = std::nanf("");
  run(p);
  for (std::int64_t t = 0; t < c.q_video; ++t) ASSERT_TRUE(std::isnan(get(p.out.view, 0, t, 0, 0))) << t;
}

TEST(EmptyRows, AreZeroWithLseMinusInfinityBesideFullOnes) {
  AttentionCase c = kCase;
  c.text = 0;
  c.hidden = {};
  Problem p = make_problem(c);
  p.mask->fill(true);
  for (std::int64_t j = 0; j < p.mask->k_blocks(); ++j) p.mask->set(0, 1, 2, j, false);
  run(p);
  for (std::int64_t t = 0; t < c.q_video; ++t) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const bool empty = h == 1 && p.mask->q().block_of(t) == 2;
      ASSERT_EQ(std::isinf(p.lse[lse_index(p.out.view.shape, 1, h, t)]), empty);
      ASSERT_EQ(get(p.out.view, 1, t, h, 0) == 0.0f, empty);
    }
  }
}

}  // namespace
}  // namespace tulle::cases
