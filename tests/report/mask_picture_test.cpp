// Pictures of masks and rank maps, read back pixel by pixel.
#include <gtest/gtest.h>
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/support/errors.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

using Pixel = std::array<int, 3>;
constexpr Pixel kKept = {26, 64, 140}, kDropped = {230, 235, 240}, kOutline = {242, 77, 13}, kPaper = {255, 255, 255};

struct Picture {
  int width = 0, height = 0;
  std::vector<unsigned char> rgb;

  explicit Picture(const std::filesystem::path& path) {
    int channels = 0;
    unsigned char* data = stbi_load(path.c_str(), &width, &height, &channels, 3);
    if (data == nullptr) return;
    rgb.assign(data, data + std::size_t(width) * std::size_t(height) * 3);
    stbi_image_free(data);
  }
  Pixel at(std::int64_t y, std::int64_t x) const {
    const unsigned char* p = rgb.data() + (y * width + x) * 3;
    return {p[0], p[1], p[2]};
  }
};

int lightness(const Pixel& p) { return 299 * p[0] + 587 * p[1] + 114 * p[2]; }

class MaskPicture : public testing::Test {
 protected:
  MaskPicture() : folder_(std::filesystem::temp_directory_path() / ("tulle-pictures-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~MaskPicture() override {
    std::error_code ec;
    std::filesystem::remove_all(folder_, ec);
  }
  std::filesystem::path path() const { return folder_ / "p.png"; }
  void expect_refused(const std::function<void()>& draw, const std::string& word) const {
    const std::string message = testing_data::message_of(draw);
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(path()));
  }

 private:
  std::filesystem::path folder_;
};

const BlockPartition kBlocks = {{{3, 6, 8}}, 10};  // 144 tokens, 15 blocks

BlockMask striped(std::int64_t batch, std::int64_t heads, const BlockPartition& q, const BlockPartition& k) {
  BlockMask mask(batch, heads, q, k, OrderKind::kHilbert);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < mask.q_blocks(); ++i)
        for (std::int64_t j = 0; j < mask.k_blocks(); ++j) mask.set(b, h, i, j, (i + 2 * j + h + b) % 3 == 0);
  return mask;
}

TEST_F(MaskPicture, EveryPixelOfABlockTellsWhetherItIsKept) {
  const BlockPartition k{kBlocks.sequence, 7};
  const BlockMask mask = striped(2, 3, kBlocks, k);
  write_mask_png(path(), mask, 1, 2);
  const Picture p(path());
  const int scale = p.width / int(mask.k_blocks());
  ASSERT_GE(scale, 4);
  ASSERT_EQ(p.width, scale * mask.k_blocks());
  ASSERT_EQ(p.height, scale * mask.q_blocks());
  for (int y = 0; y < p.height; ++y)
    for (int x = 0; x < p.width; ++x)
      ASSERT_EQ(p.at(y, x), mask.test(1, 2, y / scale, x / scale) ? kKept : kDropped) << y << " " << x;
}

TEST_F(MaskPicture, AllHeadsStandSideBySide) {
  const BlockMask mask = striped(1, 3, kBlocks, kBlocks);  // 2 tiles across, 2 down, the last empty
  write_mask_png(path(), mask);
  const Picture p(path());
  const int tile = (p.width + 4) / 2, scale = (tile - 4) / 15;
  ASSERT_EQ(p.height, p.width);
  for (int h = 0; h < 3; ++h)
    for (int i = 0; i < 15; ++i)
      for (int j = 0; j < 15; ++j)
        ASSERT_EQ(p.at(h / 2 * tile + i * scale, h % 2 * tile + j * scale), mask.test(0, h, i, j) ? kKept : kDropped);
  EXPECT_EQ(p.at(0, tile - 1), kPaper);
  EXPECT_EQ(p.at(tile, tile), kPaper);
}

TEST_F(MaskPicture, RanksGoFromDarkToLight) {
  const BlockPartition row{{{1, 1, 255}}, 1}, one{{{1, 1, 255}}, 255};
  RankMap map(1, one, row, OrderKind::kRaster);
  for (std::size_t i = 0; i < 255; ++i) map.row(0, 0)[i] = std::uint8_t(i + 1);
  write_rank_map_png(path(), map, 0);
  const Picture p(path());
  ASSERT_EQ(p.width, 4 * 255);
  for (int i = 1; i < 255; ++i) ASSERT_GE(lightness(p.at(0, 4 * i)), lightness(p.at(0, 4 * i - 4))) << i;
  for (int i = 4; i < 255; ++i) ASSERT_GT(lightness(p.at(0, 4 * i)), lightness(p.at(0, 4 * i - 16))) << i;
}

TEST_F(MaskPicture, AllHeadsOfARankMap) {
  RankMap map(2, kBlocks, kBlocks, OrderKind::kHilbert);
  map.row(1, 3)[5] = 1;
  write_rank_map_png(path(), map);
  const Picture all(path());
  write_rank_map_png(path(), map, 1);
  const Picture one(path());
  ASSERT_EQ(all.width, 2 * one.width + 4);
  for (int y = 0; y < one.height; ++y)
    for (int x = 0; x < one.width; ++x) ASSERT_EQ(all.at(y, x + one.width + 4), one.at(y, x));
}

// Where a token of the video stands, found without the layout of the picture: tiles are parted by paper.
struct Frames {
  int scale = 0, across = 0;
  Frames(const Picture& p, const TokenGrid& g) {
    int x = 0;
    while (x < p.width && p.at(0, x) != kPaper) ++x;
    scale = x / g.width;
    across = (p.width + 4) / (g.width * scale + 4);
  }
  int x(const TokenGrid& g, int f, int col) const { return f % across * (g.width * scale + 4) + col * scale; }
  int y(const TokenGrid& g, int f, int row) const { return f / across * (g.height * scale + 4) + row * scale; }
};

TEST_F(MaskPicture, TheVideoShowsTheKeysOfOneQueryBlock) {
  const TokenGrid g = kBlocks.sequence.grid;
  BlockPartition blocks = kBlocks;  // text in front moves every block number
  blocks.sequence.text_tokens = 12, blocks.sequence.placement = TextPlacement::kPrefix;
  const BlockMask mask = striped(1, 2, blocks, blocks);
  const std::int64_t query = 6;
  write_mask_video_png(path(), mask, 0, 1, query);
  const Picture p(path());
  const Frames frames(p, g);
  ASSERT_GE(frames.scale, 6);
  const TokenOrder order = make_order(OrderKind::kHilbert, g);
  int own = 0;
  for (int r = 0; r < g.tokens(); ++r) {
    const int f = r / (g.height * g.width), y = r / g.width % g.height, x = r % g.width;
    const std::int64_t block = blocks.block_of(12 + order.memory_of_raster[std::size_t(r)]);
    const int top = frames.y(g, f, y), left = frames.x(g, f, x), s = frames.scale;
    ASSERT_EQ(p.at(top + s / 2, left + s / 2), mask.test(0, 1, query, block) ? kKept : kDropped) << f << y << x;
    std::set<Pixel> colours;
    for (int i = 0; i < s; ++i) {
      colours.insert(
          {p.at(top, left + i), p.at(top + s - 1, left + i), p.at(top + i, left), p.at(top + i, left + s - 1)});
    }
    const bool outlined = colours.contains(kOutline);
    if (block == query) own += outlined;
    ASSERT_TRUE(block == query || !outlined) << f << y << x;
  }
  EXPECT_GE(own, 8);  // of 10 tokens; one that has its like on all sides has no outline
}

TEST_F(MaskPicture, TheVideoShowsRanks) {
  const TokenGrid g = kBlocks.sequence.grid;
  RankMap map(1, kBlocks, kBlocks, OrderKind::kGilbert);
  for (std::int64_t k = 0; k < 15; ++k) map.row(0, 2)[std::size_t(k)] = std::uint8_t(1 + 17 * k);
  write_rank_map_video_png(path(), map, 0, 2);
  const Picture p(path());
  const Frames frames(p, g);
  const TokenOrder order = make_order(OrderKind::kGilbert, g);
  const auto light = [&](std::int64_t memory) {
    const int r = order.raster_of_memory[std::size_t(memory)], half = frames.scale / 2;
    return lightness(p.at(frames.y(g, r / 48, r / 8 % 6) + half, frames.x(g, r / 48, r % 8) + half));
  };
  for (std::int64_t k = 1; k < 15; ++k) {
    ASSERT_GT(light(kBlocks.begin(k)), light(kBlocks.begin(k - 1)));
    ASSERT_EQ(light(kBlocks.begin(k)), light(kBlocks.end(k) - 1));
  }
}

TEST_F(MaskPicture, LargePicturesStayBounded) {
  const BlockPartition blocks{{{1, 1, 3000}}, 1};
  write_mask_png(path(), BlockMask(1, 1, blocks, blocks, OrderKind::kRaster), 0, 0);
  EXPECT_EQ(Picture(path()).width, 3000);  // 2 pixels a block would be more than 2^24
  const BlockMask grid(1, 1, {{{21, 45, 80}}, 1024}, {{{21, 45, 80}}, 1024}, OrderKind::kRaster);
  write_mask_video_png(path(), grid, 0, 0, 0);
  const Picture video(path());
  EXPECT_LE(std::int64_t{video.width} * video.height, 1 << 24);
  EXPECT_GE(video.width, 6 * 80);
  EXPECT_GT(video.width, video.height);
}

TEST_F(MaskPicture, RefusesWhatIsNotThere) {
  const BlockMask mask = striped(1, 2, kBlocks, kBlocks);
  const RankMap map(2, kBlocks, kBlocks, OrderKind::kRaster);
  expect_refused([&] { write_mask_png(path(), mask, 0, 2); }, "no head 2");
  expect_refused([&] { write_mask_png(path(), mask, 1, 0); }, "no sample 1");
  expect_refused([&] { write_mask_png(path(), BlockMask()); }, "no blocks");
  expect_refused([&] { write_rank_map_png(path(), map, -1); }, "no head -1");
  expect_refused([&] { write_mask_video_png(path(), mask, 0, 0, 15); }, "query block 15");
  expect_refused([&] { write_rank_map_video_png(path(), map, 0, -1); }, "query block -1");
  BlockPartition text = kBlocks;
  text.sequence.text_tokens = 5;
  expect_refused([&] { write_mask_video_png(path(), striped(1, 1, text, text), 0, 0, 15); }, "15 blocks of video");
  const BlockPartition other{{{2, 6, 8}}, 10}, fine{{{1, 1, 5000}}, 1};
  expect_refused([&] { write_mask_video_png(path(), striped(1, 1, kBlocks, other), 0, 0, 0); }, "not in one video");
  expect_refused([&] { write_mask_png(path(), BlockMask(1, 1, fine, fine, OrderKind::kRaster)); }, "5000 x 5000");
}

TEST(CentreBlock, HoldsTheMiddleOfTheVideo) {
  BlockPartition blocks{{{3, 5, 7}, 20, TextPlacement::kPrefix}, 6};
  for (OrderKind kind : all_orders()) {
    const std::int64_t centre = centre_block(blocks, kind);
    const TokenOrder order = make_order(kind, blocks.sequence.grid);
    std::set<std::int32_t> tokens;
    for (std::int64_t t = blocks.begin(centre); t < blocks.end(centre); ++t) {
      tokens.insert(order.raster_of_memory[std::size_t(t - 20)]);
    }
    EXPECT_TRUE(tokens.contains((1 * 5 + 2) * 7 + 3)) << to_string(kind);
  }
}

}  // namespace
}  // namespace tulle
