#include "tulle/policy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "select/chooser.hpp"
#include "select/scorer.hpp"
#include "tests/support/errors.hpp"

namespace tulle {
namespace {

using testing_data::message_of;

std::string refusal(const std::string& json) {
  return message_of([&] { parse_policy(json, "p.json"); }, ErrorCode::kBadFile);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Policy, PresetsAreWhatTheirPapersSay) {
  EXPECT_FALSE(load_policy("dense").sparse);
  const Policy p = load_policy("dfsattn");
  EXPECT_TRUE(p.sparse);
  EXPECT_EQ(p.order, OrderKind::kHilbert);
  EXPECT_EQ(p.block_q, 64);
  EXPECT_EQ(p.sub_block, 16);
  EXPECT_EQ(p.schedule, (Schedule{50, 12, 12, {300, 200, 100}}));
  EXPECT_EQ(p.dense_layers, (std::vector<std::int32_t>{0}));
  for (const std::string& name : policy_presets()) EXPECT_NO_THROW(check_policy(load_policy(name))) << name;
}

TEST(Policy, JsonRoundTrips) {
  for (const std::string& name : policy_presets()) {
    const Policy p = load_policy(name);
    EXPECT_EQ(parse_policy(to_json(p), "test"), p) << name;
  }
}

TEST(Policy, StartsFromAPreset) {
  const Policy p =
      parse_policy(R"({"preset": "dfsattn", "schedule": {"permille": [400]}, "order": "gilbert"})", "test");
  EXPECT_TRUE(p.sparse);
  EXPECT_EQ(p.order, OrderKind::kGilbert);
  EXPECT_EQ(p.schedule, (Schedule{50, 12, 12, {400}}));
  EXPECT_EQ(p.name, "dfsattn");
  EXPECT_EQ(parse_policy(R"({"order": "tile"})", "test").name, "custom");
}

TEST(Policy, ReadsFiles) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("tulle_policy_test_" + std::to_string(std::random_device{}()) + ".json");
  std::ofstream(path) << to_json(load_policy("dfsattn"));
  EXPECT_EQ(load_policy(path.string()), load_policy("dfsattn"));
  std::filesystem::remove(path);
  message_of([&] { load_policy(path.string()); }, ErrorCode::kIo);
}

TEST(Policy, ErrorsListWhatThereIs) {
  const std::string preset = message_of([] { load_policy("dfs"); }, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(preset, "dense, dfsattn")) << preset;
  EXPECT_TRUE(contains(refusal(R"({"preset": "svg9"})"), "dense, dfsattn"));
  for (const Scorer& s : scorers()) EXPECT_TRUE(contains(refusal(R"({"preset":"dfsattn","scorer":"x"})"), s.name));
  for (const Chooser& c : choosers()) EXPECT_TRUE(contains(refusal(R"({"preset":"dfsattn","chooser":"x"})"), c.name));
  EXPECT_TRUE(contains(refusal(R"({"order":"zigzag"})"), "hilbert"));
  EXPECT_TRUE(contains(refusal(R"({"dense_layer":[0]})"), "dense_layers"));
  EXPECT_TRUE(contains(refusal(R"({"schedule":{"intervall":3}})"), "\"interval\""));
}

TEST(Policy, RefusesWhatMakesNoSense) {
  for (const char* text : {"",
                           "[]",
                           "3",
                           "{",
                           R"({"sparse": 1})",
                           R"({"sparse": true})",  // a sparse policy needs densities
                           R"({"preset":"dfsattn","block_q": 0})",
                           R"({"preset":"dfsattn","block_q": 64.5})",
                           R"({"preset":"dfsattn","block_q": 1e3})",
                           R"({"preset":"dfsattn","block_q": -64})",
                           R"({"preset":"dfsattn","block_q": 4294967360})",
                           R"({"preset":"dfsattn","block_q": 18446744073709551615})",
                           R"({"preset":"dfsattn","block_k": 8192})",
                           R"({"preset":"dfsattn","sub_block": 24})",
                           R"({"preset":"dfsattn","sub_block": 0})",
                           R"({"preset":"dfsattn","block_q": "64"})",
                           R"({"preset":"topp","scorer": "window"})",
                           R"({"preset":"window","chooser": "top_p"})",
                           R"({"preset":"dfsattn","schedule": {"permille": []}})",
                           R"({"preset":"dfsattn","schedule": {"permille": [0]}})",
                           R"({"preset":"dfsattn","schedule": {"permille": [1001]}})",
                           R"({"preset":"dfsattn","schedule": {"permille": 3}})",
                           R"({"preset":"dfsattn","schedule": {"interval": 0}})",
                           R"({"preset":"dfsattn","schedule": {"dense_steps": 51}})",
                           R"({"preset":"dfsattn","schedule": {"reference_steps": 0}})",
                           R"({"preset":"dfsattn","schedule": []})",
                           R"({"preset":"dfsattn","dense_layers": [-1]})",
                           R"({"preset":"dfsattn","dense_layers": [0.5]})",
                           R"({"preset":"dfsattn","follow": {"starts": [3, 2]}})",
                           R"({"preset":"dfsattn","follow": {"starts": [50]}})",
                           R"({"preset":"dfsattn","follow": {"starts": [1], "fade": 1001}})",
                           R"({"preset":"dfsattn","follow": {"fade": 1}})",
                           R"({"preset":"dfsattn","follow": {"start": [1]}})",
                           R"({"preset":"dfsattn","follow": {"renew": 3}})",
                           R"({"preset":"svg2","follow": {"starts": [1], "renew": 3}})",
                           R"({"preset":"dfsattn","follow": 3})",
                           R"({"preset": 7})"}) {
    const std::string message = refusal(text);
    EXPECT_EQ(message.rfind("p.json", 0), 0u) << text << " -> " << message;
  }
}

TEST(Policy, TopPTakesOnlyScoresThatAreMass) {
  for (const Scorer& s : scorers()) {
    Policy p = load_policy("topp");
    p.scorer = s.name;
    if (s.is_mass) {
      EXPECT_NO_THROW(check_policy(p)) << s.name;
      continue;
    }
    const std::string message = message_of([&] { check_policy(p); });
    for (const Scorer& other : scorers()) {
      // Those that fit are listed behind "one of"; this one stands before it.
      const std::string listed = message.substr(message.find("one of: "));
      EXPECT_EQ(contains(listed, std::string(other.name) + ","), other.is_mass) << other.name << " in: " << message;
    }
    EXPECT_TRUE(contains(message, std::string("\"") + s.name + "\"")) << message;
    EXPECT_TRUE(contains(refusal(to_json(p)), "softmax mass"));
    p.chooser = "top_k";
    EXPECT_NO_THROW(check_policy(p)) << s.name;
  }
}

TEST(Policy, SurvivesMutation) {
  const std::string whole = to_json(load_policy("dfsattn"));
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(32 + random() % 95);
    }
    try {
      const Policy p = parse_policy(text, "p.json");
      check_policy(p);
      ++accepted;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kBadFile) << text;
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(Schedule, FiftyStepsAreThoseOfThePaper) {
  const Policy p = load_policy("dfsattn");
  for (int step = 0; step < 50; ++step) {
    const StepRule rule = rule_for(p, step, 50, 3);
    EXPECT_EQ(rule.dense, step < 12) << step;
    if (rule.dense) continue;
    EXPECT_EQ(rule.permille, step < 24 ? 300 : step < 36 ? 200 : 100) << step;
    EXPECT_EQ(rule.interval_id, std::min((step - 12) / 12, 2)) << step;  // the last density keeps its mask
  }
}

// A share of the scores has no list of densities that could end.
TEST(Schedule, TopPIsChosenAnewInEveryInterval) {
  for (const char* preset : {"topp", "sparge", "svg2"}) {
    const Policy p = load_policy(preset);
    for (int step = 3; step < 30; ++step) EXPECT_EQ(rule_for(p, step, 30, 0).interval_id, step - 3) << preset;
  }
}

TEST(Schedule, StartsCutIntervalsOfAnyLength) {
  Policy p = load_policy("dfsattn");
  p.dense_layers.clear();
  p.schedule = {.reference_steps = 30, .dense_steps = 2, .interval = 1, .permille = {500, 200}, .starts = {2, 3, 10}};
  check_policy(p);
  EXPECT_TRUE(rule_for(p, 1, 30, 0).dense);
  for (int step = 2; step < 30; ++step) {
    const StepRule rule = rule_for(p, step, 30, 0);
    EXPECT_EQ(rule.interval_id, step < 3 ? 0 : step < 10 ? 1 : 2) << step;
    EXPECT_EQ(rule.permille, step < 3 ? 500 : 200) << step;
    EXPECT_EQ(rule_for(p, 2 * step + 1, 60, 0).interval_id, rule.interval_id) << step;
  }
  for (const std::vector<std::int32_t>& bad : {std::vector{3, 5}, {2, 2}, {2, 5, 4}, {2, 30}}) {
    p.schedule.starts = bad;
    EXPECT_THROW(check_policy(p), Error);
  }
}

TEST(Schedule, TheOtherBranchFollowsFromItsStarts) {
  Policy p = load_policy("dfsattn");
  p.schedule = {.reference_steps = 30, .dense_steps = 2, .interval = 4, .permille = {500, 1000, 200}};
  p.dense_layers = {3};
  for (int step = 0; step < 30; ++step) EXPECT_EQ(follow_rule_for(p, step, 30, 0).interval_id, -1) << step;
  p.follow = {.starts = {1, 4, 20}, .fade = 100};
  check_policy(p);
  for (int step = 0; step < 30; ++step) {
    const bool all = step < 2 || (step >= 6 && step < 10);  // dense steps, and density 1
    const FollowRule rule = follow_rule_for(p, step, 30, 0);
    EXPECT_EQ(rule.interval_id, all ? -1 : step < 4 ? 0 : step < 20 ? 1 : 2) << step;
    EXPECT_EQ(rule.reference_step, step);
    EXPECT_EQ(rule.part, 0);
    EXPECT_EQ(follow_rule_for(p, 2 * step + 1, 60, 0).interval_id, rule.interval_id) << step;
    EXPECT_EQ(follow_rule_for(p, step, 30, 3).interval_id, -1) << step;
  }
  p.follow.renew = 5;
  for (int step = 20; step < 30; ++step) EXPECT_EQ(follow_rule_for(p, step, 30, 0).part, step < 25 ? 0 : 1) << step;
  EXPECT_EQ(follow_rule_for(p, 19, 30, 0).part, 3);
  EXPECT_EQ(parse_policy(to_json(p), "test"), p);
  for (const Follow& bad : {Follow{{}, 0, 2}, Follow{{1}, 0, -1}, Follow{{4, 4}, 0}, Follow{{4, 3}, 0}, Follow{{30}, 0},
                            Follow{{-1}, 0}, Follow{{1}, 1001}, Follow{{}, 50}, Follow{{1}, -1}}) {
    p.follow = bad;
    EXPECT_THROW(check_policy(p), Error);
  }
}

TEST(Schedule, FourStepsKeepTheFirstDense) {
  const Policy p = load_policy("dfsattn");
  EXPECT_TRUE(rule_for(p, 0, 4, 1).dense);
  EXPECT_EQ(rule_for(p, 1, 4, 1).permille, 300);
  EXPECT_EQ(rule_for(p, 2, 4, 1).permille, 200);
  EXPECT_EQ(rule_for(p, 3, 4, 1).permille, 100);
}

TEST(Schedule, ListedLayersAreAlwaysDense) {
  const Policy p = load_policy("dfsattn");
  for (int step = 0; step < 50; ++step) EXPECT_TRUE(rule_for(p, step, 50, 0).dense);
}

RC_GTEST_PROP(Schedule, NeverTightensBackAndFollowsTheFraction, ()) {
  Policy p = load_policy("dfsattn");
  p.schedule.reference_steps = *rc::gen::inRange(1, 200);
  p.schedule.dense_steps = *rc::gen::inRange(0, p.schedule.reference_steps + 1);
  p.schedule.interval = *rc::gen::inRange(1, 60);
  const int steps = *rc::gen::inRange(1, 101);
  int last_interval = -1;
  for (int step = 0; step < steps; ++step) {
    const StepRule rule = rule_for(p, step, steps, 1);
    // The fraction step / steps against dense_steps / reference_steps, without division.
    const bool warm_up = step * p.schedule.reference_steps < p.schedule.dense_steps * steps;
    RC_ASSERT(rule.dense == warm_up);
    RC_ASSERT(rule.interval_id >= last_interval);
    if (rule.dense) RC_ASSERT(rule.permille == 1000);
    last_interval = rule.interval_id;
  }
}

TEST(Schedule, RefusesCallsThatAreNone) {
  const Policy p = load_policy("dfsattn");
  EXPECT_THROW(rule_for(p, 50, 50, 0), Error);
  EXPECT_THROW(rule_for(p, -1, 50, 0), Error);
  EXPECT_THROW(rule_for(p, 0, 0, 0), Error);
  EXPECT_THROW(rule_for(p, 0, 50, -1), Error);
}

}  // namespace
}  // namespace tulle
