// tulle inspect on masks and profiles: words, JSON, pictures, and how it refuses.
#include <gtest/gtest.h>

#include <set>

#include "base/json.hpp"
#include "cli/run_tulle.hpp"
#include "tulle/profile.hpp"

namespace tulle {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLayers = 2, kHeads = 3, kBins = 2, kLevels = FidelityCurves::kLevels;

// Head h keeps enough of the mass from level index 4 + 6 h + layer on.
std::vector<float> rising(std::int64_t bins) {
  std::vector<float> values;
  for (std::int64_t b = 0; b < bins; ++b)
    for (std::int64_t l = 0; l < kLayers; ++l)
      for (std::int64_t h = 0; h < kHeads; ++h)
        for (std::int64_t i = 0; i < kLevels; ++i) values.push_back(i >= 4 + 6 * h + l ? 0.9375f : 0.5f);
  return values;
}

Profile sample(std::vector<float> union_density) {
  Profile p;
  p.model_hash = "0123456789abcdef";
  p.steps = 10;
  p.captions.assign(union_density.size(), "a large red circle");
  p.union_density = std::move(union_density);
  p.held_out_mass = 0.96875f;
  const BlockPartition blocks{{{3, 8, 8}}, 12};
  for (std::int64_t l = 0; l < kLayers; ++l) {
    RankMap& map = p.ranks.emplace_back(kHeads, blocks, blocks, OrderKind::kHilbert);
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t q = 0; q < map.q_blocks(); ++q)
        for (std::int64_t k = 0; k < map.k_blocks(); ++k)
          map.row(h, q)[std::size_t(k)] = rank_of_place((k + map.q_blocks() - q + h) % map.k_blocks(), map.k_blocks());
  }
  p.curves = {kBins, kLayers, kHeads, rising(kBins), rising(kBins), {}};
  for (const RankMap& map : p.ranks)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t i = 0; i < kLevels; ++i)
        p.curves.density.push_back(float(density_at(map, h, FidelityCurves::level(i))));
  return p;
}

class Inspect : public CommandTest {
 protected:
  fs::path write(const char* name, const std::string& bytes) const {
    write_file_atomic(folder_.path / name, bytes);
    return folder_.path / name;
  }
  fs::path profile() const { return write("a.profile", serialize(sample({0.25f, 0.5f, 0.5f, 0.5f}))); }
  fs::path mask() const {
    const Profile p = sample({0.5f});
    return write("a.mask", serialize(mask_at(p.ranks[0], std::vector<std::uint8_t>(kHeads, 64))));
  }
  fs::path picture() const { return folder_.path / "p.png"; }
  Outcome inspect(std::vector<std::string> args) const {
    args.insert(args.begin(), "inspect");
    return tulle(args);
  }
  // The bytes of the picture that these arguments draw.
  std::string drawn(const fs::path& file, std::vector<std::string> args) const {
    fs::remove(picture());
    args.insert(args.begin(), {file, "--out", picture()});
    const Outcome o = inspect(args);
    EXPECT_EQ(o.exit, 0) << o.err;
    return o.exit == 0 ? read_file(picture()) : "";
  }
  void expect_usage(std::vector<std::string> args, const std::string& word) const {
    const Outcome o = inspect(args);
    EXPECT_EQ(o.exit, 2) << o.out << o.err;
    EXPECT_NE(o.err.find(word), std::string::npos) << o.err;
    EXPECT_FALSE(fs::exists(picture()));
  }
};

TEST_F(Inspect, TellsOfAProfileInWords) {
  const Outcome o = inspect({profile()});
  ASSERT_EQ(o.exit, 0) << o.err;
  for (const char* part : {"0123456789abcdef", "2 layers, 3 heads", "16 query blocks of 12", "grid 3x8x8 in hilbert",
                           "4 captions with 10 steps", "2 parts of the run", "0.250 0.500 0.500 0.500",
                           "it has settled", "96.9 %", "layer 0 head 0", "layer 1 head 2", "KiB"}) {
    EXPECT_NE(o.out.find(part), std::string::npos) << part << "\n" << o.out;
  }
  const Outcome grows = inspect({write("b.profile", serialize(sample({0.2f, 0.3f, 0.4f, 0.5f})))});
  EXPECT_NE(grows.out.find("it still grows"), std::string::npos) << grows.out;
}

TEST_F(Inspect, TellsOfAProfileAsJson) {
  const Outcome o = inspect({profile(), "--json"});
  ASSERT_EQ(o.exit, 0) << o.err;
  const Json json = parse_json(o.out, "stdout").value();
  EXPECT_EQ(json["kind"], "profile");
  EXPECT_EQ(json["model_hash"], "0123456789abcdef");
  EXPECT_EQ(json["grid"], "3x8x8");
  EXPECT_EQ(json["q_blocks"], 16);
  EXPECT_EQ(json["captions"].size(), 4u);
  EXPECT_EQ(json["union_density"], (Json{0.25, 0.5, 0.5, 0.5}));
  EXPECT_EQ(json["union_settled"], true);
  EXPECT_EQ(json["bytes"], 2 * 3 * 16 * 16 + 4 * (2 * 2 * 2 * 3 * 32 + 2 * 3 * 32));
  ASSERT_EQ(json["needed_by_head"].size(), 6u);
  EXPECT_EQ(json["needed_by_head"][0], (Json{{"layer", 0}, {"head", 0}, {"density", 0.125}}));
  EXPECT_EQ(json["needed_by_head"][5]["head"], 2);
}

TEST_F(Inspect, DrawsWhatItIsAskedFor) {
  const fs::path file = profile();
  std::set<std::string> pictures = {drawn(file, {}), drawn(file, {"--layer", "1", "--head", "2"}),
                                    drawn(file, {"--video"}), drawn(file, {"--video", "--head", "1"}),
                                    drawn(file, {"--video", "--query", "0"})};
  EXPECT_EQ(pictures.size(), 5u);
  EXPECT_EQ(drawn(file, {"--query", "0"}), drawn(file, {"--query", "0", "--video", "--layer", "0", "--head", "0"}));
  EXPECT_EQ(inspect({file, "--picture", picture()}).exit, 0);
  EXPECT_EQ(read_file(picture()), drawn(file, {}));
  const fs::path kept = mask();
  pictures = {drawn(kept, {}), drawn(kept, {"--head", "2"}), drawn(kept, {"--video"}), drawn(kept, {"--query", "3"})};
  EXPECT_EQ(pictures.size(), 4u);
}

TEST_F(Inspect, RefusesPicturesThatCannotBe) {
  const fs::path file = profile(), kept = mask();
  const std::string out = picture();
  expect_usage({file, "--out", out, "--layer", "2"}, "layers 0 to 1");
  expect_usage({file, "--out", out, "--head", "3"}, "no head 3");
  expect_usage({file, "--out", out, "--query", "16"}, "query block 16");
  expect_usage({file, "--out", out, "--query", "-1"}, "--query");
  expect_usage({file, "--video"}, "--out");
  expect_usage({kept, "--out", out, "--layer", "0"}, "--layer");
  expect_usage({"dfsattn", "--out", out}, "--out");
}

TEST_F(Inspect, RefusesABrokenProfile) {
  std::string bytes = serialize(sample({0.5f}));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  const Outcome o = inspect({write("bad.profile", bytes)});
  EXPECT_EQ(o.exit, 1);
  EXPECT_NE(o.err.find("bad.profile: the checksum"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace tulle
