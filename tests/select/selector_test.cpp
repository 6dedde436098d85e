#include "select/selector.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>

#include "select/chooser.hpp"
#include "select_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::noise;
using testing_data::small_policy;
using testing_data::Tokens;

const Threads& one_thread() {
  static const Threads threads(1);
  return threads;
}

SelectCall call_for(const Policy& p, const Sequence& s) {
  SelectCall call;
  call.step = 20, call.steps = 50, call.layer = 1;
  call.partition = {s, p.block_q};
  return call;
}

BlockMask mask_of(const Policy& p, const SelectCall& call, const Tokens& q, const Tokens& k, std::int32_t permille,
                  const Threads& threads = one_thread()) {
  return choose_mask(p, call, permille, q.view(), k.view(), threads);
}

Sequence any_sequence() {
  Sequence s;
  s.grid = {*rc::gen::inRange(1, 6), *rc::gen::inRange(1, 10), *rc::gen::inRange(1, 10)};
  s.text_tokens = *rc::gen::element(0, 0, 1, 9, 17);
  s.placement = *rc::gen::element(TextPlacement::kPrefix, TextPlacement::kSuffix);
  return s;
}

RC_GTEST_PROP(ChooseMask, DensityIsWhatWasAskedWithinOneBlockARow, ()) {
  const Policy p = small_policy();
  const Sequence s = any_sequence();
  const std::array<std::int64_t, 4> shape = {*rc::gen::inRange(1, 3), s.tokens(), *rc::gen::inRange(1, 4), 8};
  const Tokens q = noise(shape, 1), k = noise(shape, 2);
  const int permille = *rc::gen::inRange(1, 1001);
  const BlockMask mask = mask_of(p, call_for(p, s), q, k, permille);
  const std::int64_t video = mask.k().video_blocks();
  const double asked = permille / 1000.0 * double(video);
  for (std::int64_t b = 0; b < mask.batch(); ++b)
    for (std::int64_t h = 0; h < mask.heads(); ++h)
      for (std::int64_t u = 0; u < mask.q_blocks(); ++u) {
        std::int64_t kept_video = 0, kept_text = 0;
        for_each_block(mask.row(b, h, u), [&](std::int64_t v) { ++(mask.k().is_text(v) ? kept_text : kept_video); });
        RC_ASSERT(kept_text == mask.k().text_blocks());
        if (mask.q().is_text(u))
          RC_ASSERT(kept_video == video);
        else
          RC_ASSERT(kept_video == kept_count(video, permille) && std::abs(double(kept_video) - asked) <= 1.0);
      }
}

RC_GTEST_PROP(ChooseMask, FullDensityKeepsAllBlocks, ()) {
  const Policy p = small_policy();
  const Sequence s = any_sequence();
  const Tokens q = noise({1, s.tokens(), 2, 8}, 1);
  RC_ASSERT(density(mask_of(p, call_for(p, s), q, q, 1000)) == 1.0);
}

RC_GTEST_PROP(ChooseMask, BitsDependNeitherOnThreadsNorOnTheSplitOfHeads, ()) {
  const Policy p = small_policy();
  const Sequence s = any_sequence();
  const std::array<std::int64_t, 4> shape = {2, s.tokens(), 5, 8};
  // Few different values, so that there are ties to break.
  Tokens q = noise(shape, *rc::gen::inRange<std::uint32_t>(0, 1000)), k = noise(shape, 7);
  for (float& v : k.values) v = std::round(v);
  for (std::size_t i = 0; i < k.values.size() / 2; ++i) k.values[i] = 1.0f;
  const SelectCall call = call_for(p, s);
  const BlockMask whole = mask_of(p, call, q, k, 300);
  for (int width : {2, 3}) RC_ASSERT(mask_of(p, call, q, k, 300, Threads(width)) == whole);
  for (std::int64_t cut : {1, 2, 4}) {
    SelectCall second = call;
    second.first_head = cut;
    RC_ASSERT(choose_mask(p, call, 300, q.heads(0, cut), k.heads(0, cut), one_thread()) == slice_heads(whole, 0, cut));
    RC_ASSERT(choose_mask(p, second, 300, q.heads(cut, 5), k.heads(cut, 5), one_thread()) ==
              slice_heads(whole, cut, 5));
  }
}

TEST(ChooseMask, SamplesOfABatchAreChosenAlone) {
  const Policy p = small_policy();
  const Sequence s{{3, 5, 6}, 12, TextPlacement::kSuffix};
  const Tokens q = noise({2, s.tokens(), 3, 8}, 1), k = noise({2, s.tokens(), 3, 8}, 2);
  SelectCall call = call_for(p, s);
  const std::vector<std::pair<std::int64_t, std::int64_t>> hidden = {{95, 102}, {91, 102}};
  call.hidden_keys = hidden;
  const BlockMask both = mask_of(p, call, q, k, 250);
  for (std::int64_t b = 0; b < 2; ++b) {
    call.hidden_keys = std::span(hidden).subspan(static_cast<std::size_t>(b), 1);
    const BlockMask alone = choose_mask(p, call, 250, q.sample(b), k.sample(b), one_thread());
    for (std::int64_t h = 0; h < 3; ++h)
      for (std::int64_t u = 0; u < both.q_blocks(); ++u)
        EXPECT_TRUE(std::ranges::equal(both.row(b, h, u), alone.row(0, h, u)));
  }
}

TEST(ChooseMask, Bf16IsChosenAsItsF32Values) {
  const Policy p = small_policy();
  const Sequence s{{3, 5, 6}, 0, TextPlacement::kSuffix};
  Tokens q = noise({1, s.tokens(), 2, 8}, 1), k = noise({1, s.tokens(), 2, 8}, 2);
  std::vector<Bf16> q16, k16;
  for (float& v : q.values) q16.push_back(from_f32<Bf16>(v)), v = to_f32(q16.back());
  for (float& v : k.values) k16.push_back(from_f32<Bf16>(v)), v = to_f32(k16.back());
  const auto view = [&](const std::vector<Bf16>& x) { return ConstTensorView(view_of(x.data(), q.shape)); };
  EXPECT_EQ(choose_mask(p, call_for(p, s), 300, view(q16), view(k16), one_thread()),
            mask_of(p, call_for(p, s), q, k, 300));
}

TEST(ChooseMask, EqualScoresFavourNoRegionOfTheVideo) {
  const Policy p = small_policy(4, 4);
  const Sequence s{{8, 8, 8}, 0, TextPlacement::kSuffix};
  Tokens q = noise({1, s.tokens(), 4, 8}, 1), k = q;
  std::fill(k.values.begin(), k.values.end(), 1.0f);
  const BlockMask mask = mask_of(p, call_for(p, s), q, k, 250);
  std::int64_t first_half = 0;
  for (std::int64_t h = 0; h < 4; ++h)
    for (std::int64_t u = 0; u < mask.q_blocks(); ++u)
      for_each_block(mask.row(0, h, u), [&](std::int64_t v) { first_half += v < mask.k_blocks() / 2; });
  EXPECT_NEAR(double(first_half) / double(count_blocks(mask)), 0.5, 0.02);
}

TEST(ChooseMask, QueryAndKeyBlocksMayDiffer) {
  Policy p = small_policy(8, 4);
  p.block_k = 12;
  const Sequence s{{3, 5, 6}, 5, TextPlacement::kPrefix};
  const Tokens q = noise({1, s.tokens(), 2, 8}, 1), k = noise({1, s.tokens(), 2, 8}, 2);
  const BlockMask mask = mask_of(p, call_for(p, s), q, k, 500);
  EXPECT_EQ(mask.q_blocks(), 1 + 12);
  EXPECT_EQ(mask.k_blocks(), 1 + 8);
  EXPECT_EQ(count_blocks(mask.row(0, 0, 5)), 1 + 4);
}

TEST(ChooseMask, NotFiniteInputIsNamed) {
  const Policy p = small_policy();
  const Sequence s{{3, 5, 6}, 0, TextPlacement::kSuffix};
  Tokens q = noise({1, s.tokens(), 2, 8}, 1);
  q.values[q.values.size() - 1] = NAN;
  SelectCall call = call_for(p, s);
  call.first_head = 4;
  try {
    mask_of(p, call, q, noise({1, s.tokens(), 2, 8}, 2), 300);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
    EXPECT_NE(std::string(e.what()).find("step 20, layer 1, head 5, query block 11"), std::string::npos) << e.what();
  }
}

TEST(ChooseMask, RefusesShapesThatDoNotFit) {
  const Policy p = small_policy();
  const Sequence s{{3, 5, 6}, 0, TextPlacement::kSuffix};
  const Tokens q = noise({1, 90, 2, 8}, 1), other_heads = noise({1, 90, 3, 8}, 1),
               other_tokens = noise({1, 80, 2, 8}, 1);
  SelectCall call = call_for(p, s);
  EXPECT_THROW(mask_of(p, call, q, other_heads, 300), Error);
  EXPECT_THROW(mask_of(p, call, q, other_tokens, 300), Error);
  EXPECT_THROW(mask_of(p, call, q, q, 0), Error);
  call.partition.block = 16;
  EXPECT_THROW(mask_of(p, call, q, q, 300), Error);
}

}  // namespace
}  // namespace tulle
