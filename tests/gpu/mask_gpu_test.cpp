// Mask kernels on the GPU give the CPU's bits and counts.
#include <gtest/gtest.h>

#include <random>

#include "mask/mask_ops.hpp"
#include "tests/gpu/device_array.hpp"
#include "tulle/mask.hpp"

namespace tulle {
namespace {

BlockMask random_mask(std::int64_t batch, std::int64_t heads, const TokenGrid& grid, unsigned seed, double density) {
  const BlockPartition blocks{{grid, 77, TextPlacement::kSuffix}, 64};
  BlockMask mask(batch, heads, blocks, blocks, OrderKind::kHilbert);
  std::mt19937 random(seed);
  std::bernoulli_distribution keep(density);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < mask.q_blocks(); ++i) {
        for (std::int64_t j = 0; j < mask.k_blocks(); ++j) mask.set(b, h, i, j, keep(random));
      }
    }
  }
  return mask;
}

std::vector<std::uint32_t> words_of(const BlockMask& mask) { return {mask.words().begin(), mask.words().end()}; }

struct Geometry {
  std::int64_t batch, heads;
  TokenGrid grid;
};

class MaskGpu : public testing::TestWithParam<Geometry> {};

TEST_P(MaskGpu, CombinesAsTheCpuDoes) {
  const auto [batch, heads, grid] = GetParam();
  for (MaskCombine op : {MaskCombine::kUnite, MaskCombine::kIntersect}) {
    BlockMask a = random_mask(batch, heads, grid, 1, 0.3);
    const BlockMask b = random_mask(batch, heads, grid, 2, 0.6);
    DeviceArray<std::uint32_t> device_a(words_of(a)), device_b(words_of(b));
    combine_masks_cuda(op, device_a.data(), device_b.data(), static_cast<std::int64_t>(device_a.size()), nullptr);
    op == MaskCombine::kUnite ? unite(a, b) : intersect(a, b);
    EXPECT_EQ(device_a.to_host(), words_of(a));
  }
}

TEST_P(MaskGpu, CountsAsTheCpuDoes) {
  const auto [batch, heads, grid] = GetParam();
  for (double kept : {0.0, 0.1, 1.0}) {
    const BlockMask mask = random_mask(batch, heads, grid, 3, kept);
    const std::int64_t rows = batch * heads * mask.q_blocks();
    DeviceArray<std::uint32_t> words(words_of(mask));
    DeviceArray<std::int32_t> counts(std::vector<std::int32_t>(static_cast<std::size_t>(rows), -1));  // poisoned
    count_rows_cuda(words.data(), rows, mask.words_per_row(), counts.data(), nullptr);
    const std::vector<std::int32_t> host = counts.to_host();
    std::size_t r = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < mask.q_blocks(); ++i, ++r) EXPECT_EQ(host[r], count_blocks(mask.row(b, h, i)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, MaskGpu,
                         testing::Values(Geometry{1, 1, {1, 1, 1}}, Geometry{1, 6, {13, 20, 24}},
                                         Geometry{2, 3, {5, 7, 11}}, Geometry{1, 12, {21, 30, 52}}));

}  // namespace
}  // namespace tulle
