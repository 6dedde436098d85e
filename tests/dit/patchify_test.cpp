#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tulle/model.hpp"

namespace tulle {
namespace {

WanConfig config(std::int64_t channels, std::int64_t pt, std::int64_t ph, std::int64_t pw) {
  WanConfig c;
  c.in_channels = c.out_channels = channels;
  c.patch_t = pt, c.patch_h = ph, c.patch_w = pw;
  return c;
}

// The definition, one value at a time.
TEST(Patchify, TakesFeaturesAsChannelFrameRowColumn) {
  const WanConfig c = config(3, 2, 1, 2);
  const TokenGrid grid{2, 3, 5};
  const TokenOrder order = make_order(OrderKind::kHilbert, grid);
  const std::int64_t frames = 4, height = 3, width = 10;
  std::vector<float> latents(3 * frames * height * width), tokens(grid.tokens() * c.patch_features());
  std::iota(latents.begin(), latents.end(), 0.f);
  patchify(latents, c, order, {0, grid.tokens()}, tokens);
  for (std::int64_t i = 0; i < grid.tokens(); ++i) {
    const std::int64_t raster = order.raster_of_memory[i], f = raster / 15, y = raster / 5 % 3, x = raster % 5;
    for (std::int64_t j = 0; j < 12; ++j) {
      const std::int64_t ch = j / 4, dt = j / 2 % 2, dx = j % 2;
      EXPECT_EQ(tokens[i * 12 + j], latents[((ch * frames + 2 * f + dt) * height + y) * width + 2 * x + dx]);
    }
  }
}

TEST(Patchify, PartsOfRanksMakeTheWhole) {
  const WanConfig c = config(4, 1, 2, 2);
  const TokenGrid grid{3, 5, 7};
  for (const OrderKind kind : all_orders()) {
    const TokenOrder order = make_order(kind, grid);
    std::vector<float> latents(4 * 3 * 10 * 14), back(latents.size(), -1.f);
    std::iota(latents.begin(), latents.end(), 0.f);
    for (const Range r : split_evenly(grid.tokens(), 4)) {
      std::vector<float> tokens(r.size() * c.patch_features());
      patchify(latents, c, order, r, tokens);
      unpatchify(tokens, c, order, r, back);
    }
    EXPECT_EQ(back, latents) << to_string(kind);
  }
}

TEST(Patchify, RefusesSizesThatDoNotFit) {
  const WanConfig c = config(1, 1, 2, 2);
  const TokenOrder order = make_order(OrderKind::kRaster, {1, 2, 2});
  std::vector<float> latents(16), tokens(16), few(12);
  EXPECT_THROW(patchify(latents, c, order, {0, 5}, tokens), Error);
  EXPECT_THROW(patchify(latents, c, order, {0, 4}, few), Error);
  EXPECT_THROW(patchify(std::vector<float>(15), c, order, {0, 4}, tokens), Error);
  EXPECT_THROW(unpatchify(few, c, order, {0, 4}, latents), Error);
}

}  // namespace
}  // namespace tulle
