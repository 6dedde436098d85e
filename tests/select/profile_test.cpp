#include "tulle/profile.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "mask/binary.hpp"
#include "tests/support/foreign_bytes.hpp"

namespace tulle {
namespace {

using testing_data::seal;

constexpr std::size_t kHeaderBytes = 136;
const char* const kHash = "0123456789abcdef";

std::vector<float> curves(std::int64_t count, std::mt19937& random) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<float> curve(FidelityCurves::kLevels);
    for (float& v : curve) v = float(random() % 10001) / 10000;
    std::ranges::sort(curve);
    values.insert(values.end(), curve.begin(), curve.end());
  }
  return values;
}

struct Shape {
  TokenGrid grid = {2, 3, 4};
  std::int32_t block_q = 8, block_k = 5;
  std::int64_t layers = 2, heads = 3, bins = 2;
  OrderKind order = OrderKind::kHilbert;
};

Profile sample(std::uint32_t seed, const Shape& s = {}) {
  std::mt19937 random(seed);
  Profile p;
  p.model_hash = kHash;
  p.steps = 10;
  p.captions = {"a large red circle", "", "ein gr\xc3\xbcner Kreis \xf0\x9f\x8e\xac"};
  p.union_density = {0.25f, 0.375f, 0.375f};
  p.held_out_mass = 0.875f;
  const BlockPartition q{{s.grid}, s.block_q}, k{{s.grid}, s.block_k};
  for (std::int64_t l = 0; l < s.layers; ++l) {
    RankMap& map = p.ranks.emplace_back(s.heads, q, k, s.order);
    for (std::uint8_t& rank : map.bytes()) rank = std::uint8_t(1 + random() % 255);
  }
  p.curves = {s.bins,
              s.layers,
              s.heads,
              curves(s.bins * s.layers * s.heads, random),
              curves(s.bins * s.layers * s.heads, random),
              {}};
  for (const RankMap& map : p.ranks) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const auto density = density_by_level(map, h);
      for (std::int64_t i = 0; i < FidelityCurves::kLevels; ++i) {
        p.curves.density.push_back(float(density[FidelityCurves::level(i)]));
      }
    }
  }
  return p;
}

Expected<Profile> parse(const std::string& bytes) {
  return parse_profile(std::as_bytes(std::span(bytes)), "test.profile");
}

template <class T>
void overwrite(std::string& bytes, std::size_t at, T value) {
  std::string little_endian;
  put(little_endian, value);
  bytes.replace(at, little_endian.size(), little_endian);
}

void expect_refused(std::string bytes, const std::string& word) {
  seal(bytes);
  const auto result = parse(bytes);
  ASSERT_FALSE(result.has_value()) << word;
  EXPECT_EQ(result.error().code(), ErrorCode::kBadFile);
  const std::string text = result.error().what();
  EXPECT_EQ(text.rfind("test.profile: ", 0), 0u) << text;
  EXPECT_NE(text.find(word), std::string::npos) << text;
}

// --- the value ---

TEST(Profile, LevelsAreThirtySecondsOfTheScale) {
  EXPECT_EQ(FidelityCurves::level(0), 8);
  EXPECT_EQ(FidelityCurves::level(15), 128);
  EXPECT_EQ(FidelityCurves::level(31), 255);
}

struct Fault {
  const char* name;
  std::function<void(Profile&)> make;
  const char* word;
};

const Fault kFaults[] = {
    {"hash", [](Profile& p) { p.model_hash = "0123"; }, "hash"},
    {"hash digits", [](Profile& p) { p.model_hash = "0123456789ABCDEF"; }, "hash"},
    {"steps", [](Profile& p) { p.steps = 0; }, "step"},
    {"no captions", [](Profile& p) { p.captions.clear(), p.union_density.clear(); }, "captions"},
    {"caption", [](Profile& p) { p.captions[1] = "\xc3"; }, "UTF-8"},
    {"overlong", [](Profile& p) { p.captions[1] = "\xc0\xaf"; }, "UTF-8"},
    {"overlong of three", [](Profile& p) { p.captions[1] = "\xe0\x80\xaf"; }, "UTF-8"},
    {"surrogate", [](Profile& p) { p.captions[1] = "\xed\xa0\x80"; }, "UTF-8"},
    {"beyond unicode", [](Profile& p) { p.captions[1] = "\xf4\x90\x80\x80"; }, "UTF-8"},
    {"long", [](Profile& p) { p.captions[0].assign(Profile::kMaxCaptionBytes + 1, 'a'); }, "longer"},
    {"union count", [](Profile& p) { p.union_density.pop_back(); }, "union"},
    {"union falls", [](Profile& p) { p.union_density[2] = 0.3f; }, "union"},
    {"union range", [](Profile& p) { p.union_density[2] = 1.5f; }, "union"},
    {"held out", [](Profile& p) { p.held_out_mass = -0.1f; }, "held-out"},
    {"held out nan", [](Profile& p) { p.held_out_mass = std::numeric_limits<float>::quiet_NaN(); }, "held-out"},
    {"no layers", [](Profile& p) { p.ranks.clear(); }, "layer"},
    {"no heads", [](Profile& p) { p.ranks[0] = RankMap(); }, "layer"},
    {"geometry", [](Profile& p) { p.ranks[1] = RankMap(3, p.q(), p.q(), p.order()); }, "layer 1"},
    {"rank", [](Profile& p) { p.ranks[1].row(2, 1)[3] = 0; }, "layer 1"},
    {"bins", [](Profile& p) { p.curves.bins = 0; }, "bins"},
    {"heads", [](Profile& p) { p.curves.heads = 2; }, "heads"},
    {"layers", [](Profile& p) { p.curves.layers = 1; }, "layers"},
    {"many bins", [](Profile& p) { p.curves.bins = std::numeric_limits<std::int64_t>::max(); }, "fidelity"},
    {"fidelity count", [](Profile& p) { p.curves.fidelity.pop_back(); }, "fidelity"},
    {"fidelity falls", [](Profile& p) { p.curves.fidelity[40] = 1; }, "fidelity curve 1"},
    {"fidelity nan", [](Profile& p) { p.curves.fidelity[40] = std::numeric_limits<float>::quiet_NaN(); }, "fidelity"},
    {"mass range", [](Profile& p) { p.curves.mass[63] = 1.01f; }, "mass curve 1"},
    {"density range", [](Profile& p) { p.curves.density[0] = -1; }, "density curve 0"},
};

TEST(Profile, EveryFaultIsNamed) {
  ASSERT_NO_THROW(check_profile(sample(1)));
  for (const Fault& fault : kFaults) {
    Profile p = sample(1);
    fault.make(p);
    try {
      check_profile(p);
      ADD_FAILURE() << fault.name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << fault.name;
      EXPECT_NE(std::string(e.what()).find(fault.word), std::string::npos) << fault.name << ": " << e.what();
    }
    EXPECT_THROW(serialize(p), Error) << fault.name;
  }
}

TEST(Profile, BelongsToOneModel) {
  const Profile p = sample(2);
  EXPECT_NO_THROW(require_model(p, kHash, "my.profile"));
  try {
    require_model(p, "fedcba9876543210", "my.profile");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadFile);
    for (const char* word : {"my.profile", kHash, "fedcba9876543210", "calibrate"}) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

TEST(Profile, AdaptsToAnotherGrid) {
  const Profile p = sample(3);
  const BlockPartition blocks{{{3, 5, 6}}, 6};
  const Profile out = adapt(p, blocks, blocks, OrderKind::kGilbert);
  EXPECT_NO_THROW(check_profile(out));
  EXPECT_EQ(out.order(), OrderKind::kGilbert);
  for (std::size_t l = 0; l < p.ranks.size(); ++l) {
    EXPECT_EQ(out.ranks[l], remap(p.ranks[l], blocks, blocks, OrderKind::kGilbert));
    for (std::int64_t h = 0; h < p.curves.heads; ++h) {
      const std::size_t at = p.curves.at(std::int64_t(l), h);
      for (std::int64_t i = 0; i < FidelityCurves::kLevels; ++i) {
        EXPECT_EQ(out.curves.density[at + std::size_t(i)],
                  float(density_at(out.ranks[l], h, FidelityCurves::level(i))));
      }
    }
  }
  EXPECT_EQ(out.curves.fidelity, p.curves.fidelity);
  EXPECT_EQ(out.curves.mass, p.curves.mass);
  EXPECT_EQ(out.captions, p.captions);
  EXPECT_EQ(out.model_hash, p.model_hash);
  EXPECT_EQ(adapt(p, p.q(), p.k(), p.order()), p);
}

TEST(Profile, CountsItsMemory) {
  const Profile p = sample(4);  // 2 layers x 3 heads x 3 x 5 blocks; 2 x 2 x 3 x 32 floats twice and 2 x 3 x 32 once
  EXPECT_EQ(memory_bytes(p), 2 * 3 * 3 * 5 + 4 * (2 * 384 + 192));
}

// --- the file ---

RC_GTEST_PROP(ProfileFile, RoundTrips, ()) {
  const Shape shape{{*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 6), *rc::gen::inRange(1, 6)},
                    *rc::gen::inRange(1, 12),
                    *rc::gen::inRange(1, 12),
                    *rc::gen::inRange(1, 4),
                    *rc::gen::inRange(1, 4),
                    *rc::gen::inRange(1, 4),
                    *rc::gen::elementOf(std::vector<OrderKind>(all_orders().begin(), all_orders().end()))};
  const Profile p = sample(*rc::gen::arbitrary<std::uint32_t>(), shape);
  const auto back = parse(serialize(p));
  RC_ASSERT(back.has_value());
  RC_ASSERT(back.value() == p);
}

TEST(ProfileFile, StartsAsDocumented) {
  const Profile p = sample(5);
  const std::string bytes = serialize(p);
  EXPECT_EQ(bytes.substr(0, 8), "TULLEPRF");
  EXPECT_EQ(bytes[8], 1);
  EXPECT_EQ(bytes[12], 3);    // hilbert
  EXPECT_EQ(bytes[16], 2);    // layers
  EXPECT_EQ(bytes[24], 3);    // heads
  EXPECT_EQ(bytes[96], 2);    // bins
  EXPECT_EQ(bytes[104], 10);  // steps
  EXPECT_EQ(bytes[108], 3);   // captions
  EXPECT_EQ(bytes.substr(112, 16), kHash);
  EXPECT_EQ(bytes.substr(kHeaderBytes + 4, p.captions[0].size()), p.captions[0]);
  std::size_t captions = 0;
  for (const std::string& c : p.captions) captions += 4 + c.size();
  const std::size_t ranks = kHeaderBytes + captions + 4 * p.captions.size();
  EXPECT_EQ(bytes[ranks], static_cast<char>(p.ranks[0].bytes()[0]));
  EXPECT_EQ(bytes.size(), ranks + std::size_t(memory_bytes(p)) + kChecksumBytes);
}

TEST(ProfileFile, RefusesEveryTruncation) {
  const std::string whole = serialize(sample(6, {.layers = 1, .heads = 1, .bins = 1}));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string cut = whole.substr(0, n);
    ASSERT_FALSE(parse(cut).has_value()) << n;
    seal(cut);
    ASSERT_FALSE(parse(cut).has_value()) << n;
  }
}

TEST(ProfileFile, EveryFlippedBitIsNoticed) {
  const std::string whole = serialize(sample(7, {.layers = 1, .heads = 1, .bins = 1}));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(parse(bytes).has_value()) << bit;
  }
}

TEST(ProfileFile, RefusesHostileSizesBeforeItAllocates) {
  const std::string whole = serialize(sample(8));
  for (std::size_t offset : {std::size_t{16}, std::size_t{24}, std::size_t{96}}) {
    for (std::uint64_t value : {~0ull, 1ull << 63, 1ull << 62, 1ull << 57, 1ull << 40, 1ull << 32, 0ull}) {
      std::string bytes = whole;
      overwrite(bytes, offset, value);
      expect_refused(bytes, "written again");
    }
  }
  for (std::uint32_t value : {~0u, 1u << 31, 65537u, 0u}) {
    std::string captions = whole, length = whole;
    overwrite(captions, 108, value);
    expect_refused(captions, "caption");
    if (value == 0) continue;
    overwrite(length, kHeaderBytes, value);
    expect_refused(length, "caption");
  }
}

TEST(ProfileFile, SaysWhatIsWrong) {
  const std::string whole = serialize(sample(9));
  const auto changed = [&](std::size_t at, auto value) {
    std::string bytes = whole;
    overwrite(bytes, at, value);
    return bytes;
  };
  expect_refused(changed(0, std::uint64_t{1}), "no profile");
  expect_refused(changed(8, 2u), "version 2");
  expect_refused(changed(12, 5u), "token order number 5");
  expect_refused(changed(48, std::int64_t{7}), "geometry");  // the query partition's text tokens
  expect_refused(changed(104, 0u), "step");
  expect_refused(changed(112, std::uint64_t{0}), "hash");
  expect_refused(changed(128, std::numeric_limits<float>::infinity()), "held-out");
  expect_refused(changed(132, 1u), "reserved");
  expect_refused(changed(whole.size() - kChecksumBytes - 4, 2.0f), "density");
}

// 6 video tokens and text make as many blocks as 24 video tokens: only the rule against text refuses this.
TEST(ProfileFile, RefusesTextEvenWhereSizesFit) {
  std::string bytes = serialize(sample(11));
  overwrite(bytes, 40, 1), overwrite(bytes, 48, std::int64_t{16});
  overwrite(bytes, 72, 1), overwrite(bytes, 80, std::int64_t{15});
  expect_refused(bytes, "without text");
}

// What is accepted must be exactly what serialize would write; everything else is an error, never a crash.
TEST(ProfileFile, SurvivesMutation) {
  const std::string whole = serialize(sample(10, {.layers = 1, .heads = 2, .bins = 1}));
  std::mt19937 random(20261130);
  int accepted = 0;
  for (int i = 0; i < 120000; ++i) {
    std::string bytes = testing_data::mutated(whole, kHeaderBytes + 40, random);
    if (i % 4 != 0) seal(bytes);
    const auto result = parse(bytes);
    if (!result.has_value()) continue;
    ++accepted;
    ASSERT_EQ(serialize(result.value()), bytes);
  }
  RecordProperty("accepted", accepted);
  EXPECT_GT(accepted, 100);  // otherwise the mutations never reach the payload
}

}  // namespace
}  // namespace tulle
