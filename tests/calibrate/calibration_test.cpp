#include "calibrate/calibration.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>

#include "calibrate/findings.hpp"
#include "tests/calibrate/calibrate_data.hpp"
#include "tests/support/errors.hpp"

namespace tulle {
namespace {

using testing_data::Call;
using testing_data::message_of;

CalibrationPlan small_plan() {
  CalibrationPlan p;
  p.model_hash = "0123456789abcdef";
  p.q = p.k = {{parse_grid("3x4x5")}, 8};
  p.layers = 2, p.heads = 2;
  p.steps = 4, p.bins = 2, p.rows = 8;
  p.captions = {"one", "two", "three"};
  p.fast_captions = {"four", "five"};
  p.settings = {{"seed", "7"}};
  return p;
}

// q and k that depend on caption, step, layer and branch.
void run_caption(Calibration& c, int width = 1, std::int32_t stop_at = 1 << 20) {
  const Threads threads(width);
  for (std::int32_t step = 0; step < std::min(c.plan().steps, stop_at); ++step) {
    for (std::int32_t layer = 0; layer < c.plan().layers; ++layer) {
      for (const Branch branch : {Branch::kConditional, Branch::kUnconditional}) {
        const auto seed = std::hash<std::string>{}(c.caption()) % 97 + 100 * static_cast<std::size_t>(step) +
                          1000 * static_cast<std::size_t>(layer) + 10000 * static_cast<std::size_t>(branch);
        const Call call("3x4x5", 8, 8, 2, 16, static_cast<std::uint32_t>(seed));
        AttendCall what;
        what.step = step, what.steps = c.plan().steps, what.layer = layer, what.branch = branch;
        c.observe(what, 0, call.q.view(), call.k.view(), threads);
      }
    }
  }
}

void finish(Calibration& c, int width = 1) {
  while (c.done() < c.total()) {
    run_caption(c, width);
    c.end_caption();
  }
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Calibration, GivesAProfileThatFits) {
  Calibration c(small_plan());
  EXPECT_THROW(c.profile(), Error) << "nothing is done";
  finish(c);
  const Profile p = c.profile();
  EXPECT_NO_THROW(check_profile(p));
  EXPECT_EQ(p.model_hash, "0123456789abcdef");
  EXPECT_EQ(p.captions, small_plan().captions);
  EXPECT_EQ(p.union_density.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(p.union_density));
  EXPECT_GT(p.held_out_mass, 0.2f);
  EXPECT_LT(p.held_out_mass, 1.0f);
  ASSERT_EQ(p.curves.fidelity.size(), static_cast<std::size_t>(2 * 2 * 2 * FidelityCurves::kLevels));
  for (std::int64_t bin = 0; bin < 2; ++bin) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      for (std::int64_t head = 0; head < 2; ++head) {
        const auto curve = std::span(p.curves.fidelity).subspan(p.curves.at(bin, layer, head), 32);
        EXPECT_TRUE(std::ranges::is_sorted(curve));
        EXPECT_EQ(curve.back(), 1.0f);
      }
    }
  }
}

TEST(Calibration, ThreadsDoNotChangeABit) {
  Calibration one(small_plan()), four(small_plan());
  finish(one, 1);
  finish(four, 4);
  EXPECT_EQ(one.profile(), four.profile());
}

TEST(Calibration, ResumedAnywhereEqualsFresh) {
  Calibration fresh(small_plan());
  std::vector<std::string> states = {fresh.save()};
  while (fresh.done() < fresh.total()) {
    run_caption(fresh);
    fresh.end_caption();
    states.push_back(fresh.save());
  }
  const Profile want = fresh.profile();
  ASSERT_EQ(states.size(), 6u);
  for (const std::string& state : states) {
    Calibration resumed(small_plan());
    resumed.restore(bytes_of(state), "state");
    EXPECT_EQ(resumed.save(), state);
    if (resumed.done() < resumed.total()) {
      run_caption(resumed, 1, 2);  // interrupted half-way
      resumed.drop_caption();
    }
    finish(resumed);
    EXPECT_EQ(resumed.profile(), want);
  }
}

TEST(Calibration, AStateOfOtherSettingsIsRefusedWithTheReason) {
  Calibration c(small_plan());
  const std::string state = c.save();
  const auto refused = [&](const std::function<void(CalibrationPlan&)>& change) {
    CalibrationPlan plan = small_plan();
    change(plan);
    return message_of([&] { Calibration(plan).restore(bytes_of(state), "x.partial"); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_NE(refused([](CalibrationPlan& p) { p.steps = 5; }).find("steps is 5 here and 4 there"), std::string::npos);
  EXPECT_NE(refused([](CalibrationPlan& p) {
              p.settings[0].second = std::string(1, '8');
            }).find("seed is 8 here and 7 there"),
            std::string::npos);
  EXPECT_NE(refused([](CalibrationPlan& p) {
              p.captions[1] = std::string("zwei");
            }).find("caption 2 is zwei here and two there"),
            std::string::npos);
  EXPECT_NE(refused([](CalibrationPlan& p) { p.model_hash[0] = 'f'; }).find("model is f123"), std::string::npos);
  EXPECT_NE(refused([](CalibrationPlan& p) { p.q.block = p.k.block = 4; }).find("query block is 4"), std::string::npos);
  EXPECT_NE(refused([](CalibrationPlan& p) { p.order = OrderKind::kTile; }).find("order is tile"), std::string::npos);
  const std::string text = refused([](CalibrationPlan& p) { p.settings.emplace_back("shift", "3"); });
  EXPECT_NE(text.find("x.partial"), std::string::npos) << text;
  EXPECT_NE(text.find("delete it"), std::string::npos) << text;
}

TEST(Calibration, DamagedStatesAreRefused) {
  Calibration c(small_plan());
  run_caption(c);
  c.end_caption();
  const std::string state = c.save();
  for (std::size_t at = 0; at < state.size(); at += 13) {
    std::string damaged = state;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    Calibration other(small_plan());
    message_of([&] { other.restore(bytes_of(damaged), "x"); }, ErrorCode::kBadFile);
  }
  for (std::size_t size = 0; size < state.size(); size += 101) {
    Calibration other(small_plan());
    message_of([&] { other.restore(bytes_of(state.substr(0, size)), "x"); }, ErrorCode::kBadFile);
  }
}

TEST(Calibration, WhatWasNotSeenIsNamed) {
  Calibration c(small_plan());
  run_caption(c, 1, 2);  // steps 0 and 1: the second part is missing
  const std::string text = message_of([&] { c.end_caption(); }, ErrorCode::kInvalidArgument);
  EXPECT_NE(text.find("step 3, layer 0"), std::string::npos) << text;
}

TEST(Calibration, RefusesCallsOfAnotherShape) {
  Calibration c(small_plan());
  const Threads threads(1);
  const Call call("3x4x5", 8, 8, 2, 16, 1);
  AttendCall what;
  what.step = 1, what.steps = 4;
  EXPECT_NO_THROW(c.observe(what, 0, call.q.view(), call.k.view(), threads));
  EXPECT_THROW(c.observe(what, 1, call.q.view(), call.k.view(), threads), Error) << "another rank's heads";
  EXPECT_THROW(c.observe(what, 0, call.q.heads(0, 1), call.k.heads(0, 1), threads), Error);
  what.layer = 2;
  EXPECT_THROW(c.observe(what, 0, call.q.view(), call.k.view(), threads), Error);
  what.layer = 0, what.steps = 5;
  EXPECT_THROW(c.observe(what, 0, call.q.view(), call.k.view(), threads), Error);
}

TEST(Calibration, RefusesPlansThatMakeNoSense) {
  const auto refused = [](const std::function<void(CalibrationPlan&)>& change) {
    CalibrationPlan plan = small_plan();
    change(plan);
    message_of([&] { Calibration{plan}; }, ErrorCode::kInvalidArgument);
  };
  refused([](CalibrationPlan& p) { p.captions.clear(); });
  refused([](CalibrationPlan& p) { p.captions[0].assign(70'000, 'a'); });
  refused([](CalibrationPlan& p) { p.fast_captions.clear(); });
  refused([](CalibrationPlan& p) { p.bins = 5; });
  refused([](CalibrationPlan& p) { p.bins = 0; });
  refused([](CalibrationPlan& p) { p.rows = 0; });
  refused([](CalibrationPlan& p) { p.heads = 0; });
  refused([](CalibrationPlan& p) { p.layers = 0; });
  refused([](CalibrationPlan& p) { p.q.sequence.text_tokens = p.k.sequence.text_tokens = 3; });
  refused([](CalibrationPlan& p) { p.model_hash = ""; });
}

RC_GTEST_PROP(Calibration, EveryPartHasAMeasuredStepOfItsOwn, ()) {
  CalibrationPlan plan = small_plan();
  plan.steps = *rc::gen::inRange(1, 60);
  plan.bins = *rc::gen::inRange(1, plan.steps + 1);
  const Calibration c(plan);
  for (std::int64_t bin = 0; bin < plan.bins; ++bin) {
    const std::int64_t step = c.measured_step(bin);
    RC_ASSERT(step >= 0 && step < plan.steps);
    RC_ASSERT(step * plan.bins / plan.steps == bin);
  }
}

TEST(Findings, SayWhatTheProfileHolds) {
  Calibration c(small_plan());
  finish(c);
  Profile p = c.profile();
  // Head (1, 0) needs one level in every part, head (0, 1) all of them; the others ten, and twenty in the first part.
  for (std::int64_t bin = 0; bin < 2; ++bin) {
    for (std::int64_t e = 0; e < 4; ++e) {
      const std::int64_t enough = e == 2 ? 0 : e == 1 ? 31 : bin == 0 ? 20 : 10;
      for (std::int64_t l = 0; l < 32; ++l) {
        p.curves.mass[p.curves.at(bin, e / 2, e % 2) + static_cast<std::size_t>(l)] = l >= enough ? 0.95f : 0.5f;
        p.curves.density[p.curves.at(e / 2, e % 2) + static_cast<std::size_t>(l)] = static_cast<float>(l + 1) / 32.0f;
      }
    }
  }
  p.union_density = {0.25f, 0.32f, 0.35f, 0.355f};
  const Findings f = find(p);
  ASSERT_EQ(f.heads.size(), 4u);
  EXPECT_EQ(f.heads.front().layer, 1);
  EXPECT_EQ(f.heads.front().head, 0);
  EXPECT_NEAR(f.heads.front().density, 1.0 / 32, 1e-6);
  EXPECT_EQ(f.heads.back().head, 1);
  EXPECT_EQ(f.heads.back().density, 1.0);
  EXPECT_GT(f.by_bin[0], f.by_bin[1]);
  EXPECT_NEAR(f.last_quarter, 0.005, 1e-6);
  EXPECT_TRUE(f.settled);
  const std::string text = words(f);
  for (const char* part :
       {"layer 1 head 0 (3 %)", "layer 0 head 1 (100 %)", "early steps need more", "it has settled"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
  p.union_density = {0.25f, 0.32f, 0.35f, 0.39f};
  EXPECT_FALSE(find(p).settled);
}

TEST(Findings, OfOneCaptionSayNothingOfOthers) {
  CalibrationPlan plan = small_plan();
  plan.captions.resize(1);
  Calibration c(plan);
  finish(c);
  const Profile p = c.profile();
  EXPECT_EQ(p.union_density.size(), 1u);
  EXPECT_EQ(p.held_out_mass, 0.0f);
  const Findings f = find(p);
  EXPECT_FALSE(f.settled) << "nothing was there to add to it";
  EXPECT_NE(words(f).find("one caption's best 25 %"), std::string::npos) << words(f);
}

TEST(Memory, CoversWhatACalibrationHolds) {
  const CalibrationPlan plan = small_plan();
  const Calibration c(plan);
  EXPECT_GT(predicted_calibration_bytes(plan, 16, 1), static_cast<std::int64_t>(2 * c.save().size()));
  CalibrationPlan huge = plan;
  huge.layers = huge.heads = std::int64_t{1} << 40;
  EXPECT_THROW(predicted_calibration_bytes(huge, 16, 1), Error);
}

}  // namespace
}  // namespace tulle
