// What report.html carries of masks, rank maps and their places in the video, read back from its JSON.
#include "report/page_pictures.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/errors.hpp"

namespace tulle {
namespace {

using page::pictures;

constexpr std::size_t kPlenty = std::size_t{1} << 20;

std::string decoded(const OrderedJson& json) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int have = 0;
  for (const char c : json.get<std::string>()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(c)), have += 6;
    if (have >= 8) out += static_cast<char>(bits >> (have -= 8) & 0xff);
  }
  return out;
}

int byte_at(const std::string& bytes, std::int64_t i) { return static_cast<unsigned char>(bytes.at(std::size_t(i))); }

// Masks and rank maps of `layers` x 3 heads; ranks differ everywhere.
RunReport report_of(const MaskBlocks& blocks, std::int32_t layers) {
  RunReport r;
  r.blocks = blocks;
  Sequence video;
  video.grid = blocks.q.sequence.grid;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    RankMap& map = r.rank_maps.emplace_back(3, BlockPartition{video, blocks.q.block},
                                            BlockPartition{video, blocks.k.block}, blocks.order);
    for (std::size_t i = 0; i < map.bytes().size(); ++i) map.bytes()[i] = std::uint8_t(1 + (7 * i + layer) % 255);
    for (std::int32_t head = 0; head < 3; ++head) {
      MaskPicture m{layer, head, blocks.q.count(), blocks.k.count(), {}};
      m.kept.assign(std::size_t(m.rows * m.columns), 0);
      m.kept[std::size_t(head)] = 1;
      r.masks.push_back(m);
    }
  }
  return r;
}

MaskBlocks ragged(std::int64_t text = 0) {
  const Sequence s{{3, 5, 7}, text, TextPlacement::kPrefix};
  return {{s, 8}, {s, 6}, OrderKind::kHilbert};
}

TEST(PagePictures, EveryHeadHasItsRanksBesideItsMask) {
  const RunReport r = report_of(ragged(), 2);
  const OrderedJson json = pictures(r, kPlenty);
  ASSERT_EQ(json["masks"].size(), 6u);
  EXPECT_EQ(json["masks_left_out"], 0);
  for (const OrderedJson& m : json["masks"]) {
    EXPECT_EQ(m["fold"], 1);
    const std::string ranks = decoded(m["ranks"]), bits = decoded(m["bits"]);
    const RankMap& map = r.rank_maps[m["layer"].get<std::size_t>()];
    const auto head = m["head"].get<std::int64_t>();
    ASSERT_EQ(std::int64_t(ranks.size()), map.q_blocks() * map.k_blocks());
    for (std::int64_t q = 0; q < map.q_blocks(); ++q)
      for (std::int64_t k = 0; k < map.k_blocks(); ++k)
        ASSERT_EQ(byte_at(ranks, q * map.k_blocks() + k), map.row(head, q)[std::size_t(k)]);
    EXPECT_EQ(byte_at(bits, 0), 128 >> head);
  }
}

TEST(PagePictures, LargeRankMapsAreFoldedByTheSmallest) {
  const Sequence s{{1, 10, 30}};
  const RunReport r = report_of({{s, 1}, {s, 2}, OrderKind::kRaster}, 1);  // 300 x 150 blocks
  const OrderedJson m = pictures(r, kPlenty)["masks"][1];
  EXPECT_EQ(m["fold"], 3);
  const std::string ranks = decoded(m["ranks"]);
  ASSERT_EQ(ranks.size(), 100u * 50u);
  for (std::int64_t q = 0; q < 100; ++q)
    for (std::int64_t k = 0; k < 50; ++k) {
      int least = 255;
      for (int i = 0; i < 9; ++i)
        least = std::min<int>(least, r.rank_maps[0].row(1, 3 * q + i / 3)[std::size_t(3 * k + i % 3)]);
      ASSERT_EQ(byte_at(ranks, q * 50 + k), least) << q << " " << k;
    }
}

TEST(PagePictures, WithoutAProfileThereAreMasksAlone) {
  RunReport r = report_of(ragged(), 1);
  r.rank_maps.clear();
  const OrderedJson json = pictures(r, kPlenty);
  for (const OrderedJson& m : json["masks"]) EXPECT_FALSE(m.contains("ranks"));
  EXPECT_FALSE(json["blocks"].is_null());
  r.blocks.reset();
  EXPECT_TRUE(pictures(r, kPlenty)["blocks"].is_null());
}

TEST(PagePictures, WhatIsTooMuchIsThinnedOutAndCounted) {
  const RunReport r = report_of(ragged(), 8);  // 24 heads
  const std::size_t one = 14 * 18 / 8 + 14 * 18;
  for (const std::size_t heads : {1, 5, 12, 23}) {
    const OrderedJson json = pictures(r, one * heads);
    EXPECT_EQ(json["masks"].size(), heads);
    EXPECT_EQ(json["masks_left_out"], 24 - heads);
    std::set<std::pair<int, int>> seen;
    for (const OrderedJson& m : json["masks"]) seen.insert({m["layer"].get<int>(), m["head"].get<int>()});
    EXPECT_EQ(seen.size(), heads) << "a head is shown twice";
  }
  EXPECT_EQ(pictures(r, 1)["masks"].size(), 1u);
}

TEST(PagePictures, PlacesAreThoseOfTheOrder) {
  const MaskBlocks blocks = ragged(10);  // 2 query blocks and 2 key blocks of text in front
  const OrderedJson json = pictures(report_of(blocks, 1), kPlenty)["blocks"];
  EXPECT_EQ(json["q"], blocks.q.video_blocks());
  EXPECT_EQ(json["k"], blocks.k.video_blocks());
  EXPECT_EQ(json["q_first"], 2);
  EXPECT_EQ(json["k_first"], 2);
  EXPECT_EQ(json["centre"], centre_block(blocks.q, blocks.order) - 2);
  const std::string q_of = decoded(json["q_of"]), k_of = decoded(json["k_of"]);
  const TokenOrder order = make_order(blocks.order, blocks.q.sequence.grid);
  ASSERT_EQ(q_of.size(), 2u * 105u);
  for (std::int64_t t = 0; t < 105; ++t) {
    const std::int64_t memory = 10 + order.memory_of_raster[std::size_t(t)];
    ASSERT_EQ(byte_at(q_of, 2 * t) + 256 * byte_at(q_of, 2 * t + 1), blocks.q.block_of(memory) - 2);
    ASSERT_EQ(byte_at(k_of, 2 * t) + 256 * byte_at(k_of, 2 * t + 1), blocks.k.block_of(memory) - 2);
  }
}

TEST(PagePictures, TooManyTokensHaveNoPlaces) {
  const Sequence s{{64, 64, 65}};
  const OrderedJson json = pictures(report_of({{s, 4096}, {s, 4096}, OrderKind::kRaster}, 1), kPlenty)["blocks"];
  EXPECT_EQ(json["q"], 65);
  EXPECT_EQ(json["q_of"], "");
}

TEST(PagePictures, RefusesWhatDoesNotFit) {
  const auto refusal = [](auto&& change) {
    RunReport r = report_of(ragged(), 1);
    change(r);
    return testing_data::message_of([&] { pictures(r, kPlenty); });
  };
  EXPECT_NE(refusal([](RunReport& r) { r.masks[1].kept.pop_back(); }).find("head 1"), std::string::npos);
  EXPECT_NE(refusal([](RunReport& r) { r.blocks->q.block = 9; }).find("not the report's"), std::string::npos);
  EXPECT_NE(refusal([](RunReport& r) { r.masks[2].head = 3; }).find("head 3"), std::string::npos);
  EXPECT_NE(refusal([](RunReport& r) { r.blocks.reset(); }).find("rank map of layer 0"), std::string::npos);
  EXPECT_NE(refusal([](RunReport& r) {
              const BlockPartition other{{{3, 5, 7}}, 9};
              r.rank_maps[0] = RankMap(3, other, other, OrderKind::kHilbert);
            }).find("rank map of layer 0"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle
