#include "tulle/policy.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "base/file.hpp"
#include "base/json.hpp"
#include "base/named.hpp"
#include "select/chooser.hpp"
#include "select/scorer.hpp"

namespace tulle {
namespace {

constexpr std::int32_t kMaxReferenceSteps = 100000;
constexpr std::int32_t kMaxBlock = 4096;
constexpr std::int32_t kMaxLayer = 100000;
constexpr std::array kBudgets = {BudgetKind::kSchedule, BudgetKind::kUniform, BudgetKind::kFast, BudgetKind::kValued};
constexpr std::array kShapes = {BlockShape::kFixed, BlockShape::kClusters};
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

Policy dense_preset() { return {}; }

// Hu et al., "DFSAttn" (2026), as its authors run it on Wan 2.1 with 50 steps, but in blocks of 64 tokens instead of
// 128: grids of a few thousand tokens have too few blocks of 128 for densities in tenths to mean much.
Policy dfsattn_preset() {
  Policy p;
  p.name = "dfsattn";
  p.sparse = true;
  p.order = OrderKind::kHilbert;
  p.schedule.permille = {300, 200, 100};
  p.dense_layers = {0};
  return p;
}

// The front ends of other systems and the static baselines, at comparable settings: 64-token blocks, Hilbert order, the
// first tenth of the steps dense. Densities are starting points; set them with schedule.permille, density or top_p.
Policy sparse_base(const char* name) {
  Policy p;
  p.name = name;
  p.sparse = true;
  p.order = OrderKind::kHilbert;
  p.schedule = {.reference_steps = 30, .dense_steps = 3, .interval = 1, .permille = {250}};
  return p;
}

// Zhou et al., "ScalingAttention" (2026): the rank map at one density for all heads, layers and steps.
Policy west_preset() {
  Policy p = sparse_base("west");
  p.chooser = "rank_threshold";
  p.budget = BudgetKind::kUniform;
  p.density = 300;
  p.schedule.interval = 30;  // the mask depends on nothing that changes with the step
  return p;
}

// The same with FAST's density for each layer, head and part of the run.
Policy west_fast_preset() {
  Policy p = west_preset();
  p.name = "west+fast";
  p.budget = BudgetKind::kFast;
  p.schedule.interval = 3;
  return p;
}

// The front end of FVAttn (2026): pooled scores, the blocks that hold a share of them, and a floor.
Policy topp_preset() {
  Policy p = sparse_base("topp");
  p.chooser = "top_p";
  p.top_p = 900;
  p.floor = 50;
  return p;
}

// Zhang et al., "SpargeAttention" (2025), in the form that cuts by the sum of scores.
Policy sparge_preset() {
  Policy p = topp_preset();
  p.name = "sparge";
  p.scorer = "sparge";
  p.floor = 0;
  return p;
}

// Yang et al., "Sparse VideoGen 2" (2025): k-means clusters in place of blocks, top-p over their centroids, at least a
// tenth of the key clusters. Centroids follow the tokens from step to step.
Policy svg2_preset() {
  Policy p = topp_preset();
  p.name = "svg2";
  p.blocks = BlockShape::kClusters;
  p.block_k = 32;
  p.sub_block = 1;  // not used: any size of blocks will do
  p.scorer = "clusters";
  p.floor = 100;
  return p;
}

Policy window_preset() {
  Policy p = sparse_base("window");
  p.scorer = "window";
  p.schedule.interval = 30;
  return p;
}

// Li et al., "Radial Attention" (2025).
Policy radial_preset() {
  Policy p = window_preset();
  p.name = "radial";
  p.scorer = "radial";
  return p;
}

// What pays of the systems above, and the residuals of DiTFastAttn, without a profile: pooled scores, dropped blocks
// that count as means, and at growing intervals a step with all blocks, whose residual mends the means until the next.
// The unconditional branch of guidance is computed at some of those steps only, and follows the conditional one
// between. Density 0.25 over 30 steps with guidance. docs/quality.md says what else was tried.
Policy tulle_preset() {
  Policy p = sparse_base("tulle");
  p.schedule = {
      .reference_steps = 30, .dense_steps = 1, .interval = 1, .permille = {97}, .starts = {1, 2, 3, 5, 8, 12, 19}};
  p.tail = 64;
  p.residual = true;
  p.follow = {.starts = {1, 3, 6}, .fade = 50, .renew = 4};
  return p;
}

struct Preset {
  const char* name;
  Policy (*make)();
};
constexpr std::array kPresets = {Preset{"dense", dense_preset},   Preset{"dfsattn", dfsattn_preset},
                                 Preset{"west", west_preset},     Preset{"west+fast", west_fast_preset},
                                 Preset{"topp", topp_preset},     Preset{"sparge", sparge_preset},
                                 Preset{"svg2", svg2_preset},     Preset{"window", window_preset},
                                 Preset{"radial", radial_preset}, Preset{"tulle", tulle_preset}};

std::int32_t to_int(const Json& value, const char* key, const std::string& where) {
  const bool fits =
      value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT32_MAX);
  if (!fits || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > INT32_MAX) {
    fail(ErrorCode::kBadFile, "{}: key \"{}\" must be a whole number in [0, {}], not {}", where, key, INT32_MAX,
         value.dump());
  }
  return value.get<std::int32_t>();
}

void read_int(const Json& object, const char* key, std::int32_t& into, const std::string& where) {
  if (const auto it = object.find(key); it != object.end()) into = to_int(*it, key, where);
}

void read_ints(const Json& object, const char* key, std::vector<std::int32_t>& into, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end()) return;
  if (!it->is_array()) fail(ErrorCode::kBadFile, "{}: key \"{}\" must be a list of whole numbers", where, key);
  into.clear();
  for (const Json& value : *it) into.push_back(to_int(value, key, where));
}

void read_budget(const Json& object, BudgetKind& into, const std::string& where) {
  if (!object.contains("budget")) return;
  into = find_named(kBudgets, json_need<std::string>(object, "budget", where), "budget");
}

void read_shape(const Json& object, BlockShape& into, const std::string& where) {
  if (!object.contains("blocks")) return;
  into = find_named(kShapes, json_need<std::string>(object, "blocks", where), "block shape");
}

void read_schedule(const Json& object, Schedule& s, const std::string& where) {
  constexpr std::array<std::string_view, 5> known = {"reference_steps", "dense_steps", "interval", "starts",
                                                     "permille"};
  refuse_unknown_keys(object, known, where);
  read_int(object, "reference_steps", s.reference_steps, where);
  read_int(object, "dense_steps", s.dense_steps, where);
  read_int(object, "interval", s.interval, where);
  read_ints(object, "starts", s.starts, where);
  read_ints(object, "permille", s.permille, where);
}

void read_follow(const Json& object, Follow& f, const std::string& where) {
  constexpr std::array<std::string_view, 3> known = {"starts", "fade", "renew"};
  refuse_unknown_keys(object, known, where);
  read_ints(object, "starts", f.starts, where);
  read_int(object, "fade", f.fade, where);
  read_int(object, "renew", f.renew, where);
}

Policy base_policy(const Json& object, const std::string& where) {
  if (!object.contains("preset")) return {};
  return find_named(kPresets, json_need<std::string>(object, "preset", where), "preset").make();
}

Policy read_policy(const Json& object, const std::string& where) {
  constexpr std::array<std::string_view, 21> known = {
      "preset",    "name",    "sparse",   "order",    "blocks",       "block_q",  "block_k",
      "sub_block", "scorer",  "chooser",  "schedule", "dense_layers", "top_p",    "floor",
      "budget",    "density", "envelope", "tail",     "fall",         "residual", "follow"};
  refuse_unknown_keys(object, known, where);
  Policy p = base_policy(object, where);
  p.name = json_get(object, "name", object.contains("preset") ? p.name : std::string("custom"), where);
  p.sparse = json_get(object, "sparse", p.sparse, where);
  p.order = parse_order(json_get(object, "order", std::string(to_string(p.order)), where));
  read_shape(object, p.blocks, where);
  read_int(object, "block_q", p.block_q, where);
  read_int(object, "block_k", p.block_k, where);
  read_int(object, "sub_block", p.sub_block, where);
  p.scorer = json_get(object, "scorer", p.scorer, where);
  p.chooser = json_get(object, "chooser", p.chooser, where);
  if (object.contains("schedule")) read_schedule(object.at("schedule"), p.schedule, where + ": schedule");
  read_ints(object, "dense_layers", p.dense_layers, where);
  read_int(object, "top_p", p.top_p, where);
  read_int(object, "floor", p.floor, where);
  read_budget(object, p.budget, where);
  read_int(object, "density", p.density, where);
  read_int(object, "fall", p.fall, where);
  read_int(object, "envelope", p.envelope, where);
  read_int(object, "tail", p.tail, where);
  p.residual = json_get(object, "residual", p.residual, where);
  if (object.contains("follow")) read_follow(object.at("follow"), p.follow, where + ": follow");
  check_policy(p);
  return p;
}

void check_starts(const Schedule& s) {
  if (s.starts.empty()) return;
  require(s.starts.front() == s.dense_steps && std::ranges::is_sorted(s.starts, std::less_equal{}) &&
              s.starts.back() < std::max(s.reference_steps, s.dense_steps + 1),
          "schedule.starts is [{}]; it must increase from dense_steps ({}) and stay below reference_steps ({})",
          fmt::join(s.starts, ", "), s.dense_steps, s.reference_steps);
}

void check_schedule(const Schedule& s, BudgetKind budget) {
  require(s.reference_steps >= 1 && s.reference_steps <= kMaxReferenceSteps,
          "schedule.reference_steps is {}; it must be in [1, {}]", s.reference_steps, kMaxReferenceSteps);
  require(s.dense_steps >= 0 && s.dense_steps <= s.reference_steps,
          "schedule.dense_steps is {}; it must be in [0, reference_steps]", s.dense_steps);
  require(s.interval >= 1, "schedule.interval is {}; it must be at least 1", s.interval);
  check_starts(s);
  require(!s.permille.empty() || budget != BudgetKind::kSchedule,
          "schedule.permille is empty; a sparse policy needs at least one density, e.g. [200]");
  for (std::int32_t density : s.permille) {
    require(density >= 1 && density <= 1000, "schedule.permille holds {}; densities must be in [1, 1000]", density);
  }
}

void check_follow(const Follow& f, std::int32_t reference_steps) {
  require(f.fade >= 0 && f.fade <= 1000 && (f.fade == 0 || !f.starts.empty()),
          "follow.fade is {}; it must be in [0, 1000], and 0 without follow.starts", f.fade);
  require(f.renew >= 0 && (f.renew == 0 || !f.starts.empty()),
          "follow.renew is {}; it must be at least 0, and 0 without follow.starts", f.renew);
  require(f.starts.empty() || (std::ranges::is_sorted(f.starts, std::less_equal{}) && f.starts.front() >= 0 &&
                               f.starts.back() < reference_steps),
          "follow.starts is [{}]; it must increase and stay in [0, {})", fmt::join(f.starts, ", "), reference_steps);
}

void check_shares(const Policy& p) {
  require(p.top_p >= 1 && p.top_p <= 1000, "top_p is {}; it must be in [1, 1000]", p.top_p);
  require(p.floor >= 0 && p.floor <= 1000, "floor is {}; it must be in [0, 1000]", p.floor);
  require(p.envelope >= 0 && p.envelope <= 1000, "envelope is {}; it must be in [0, 1000], 0 for none", p.envelope);
  require(p.budget == BudgetKind::kSchedule || (p.density >= 1 && p.density <= 1000),
          "density is {}; budget \"{}\" needs one in [1, 1000]", p.density, to_string(p.budget));
  require(p.fall >= 1 && p.fall <= 1000000, "fall is {}; it must be in [1, 1000000]", p.fall);
  require(p.tail >= 0 && (p.tail == 0 || p.block_k % p.tail == 0),
          "tail is {}; it must be 0 (none) or divide block_k ({})", p.tail, p.block_k);
}

void check_blocks(const Policy& p) {
  for (std::int32_t block : {p.block_q, p.block_k}) {
    require(block >= 1 && block <= kMaxBlock, "a block of {} tokens is outside [1, {}]; use 64 or 128", block,
            kMaxBlock);
    require(p.sub_block >= 1 && block % p.sub_block == 0,
            "sub_block is {}; it must be at least 1 and divide the blocks of {} tokens", p.sub_block, block);
  }
  const Scorer& scorer = find_scorer(p.scorer);
  require(p.block_q / p.sub_block <= scorer.max_sub_blocks && p.block_k / p.sub_block <= scorer.max_sub_blocks,
          "scorer \"{}\" takes at most {} sub-blocks a block; use a sub_block larger than {}", scorer.name,
          scorer.max_sub_blocks, p.sub_block);
}

// A share of scores that only order the blocks says nothing about how much of the attention is kept.
void check_scores(const Policy& p) {
  if (!find_chooser(p.chooser).needs_mass || find_scorer(p.scorer).is_mass) return;
  std::vector<Scorer> fit(scorers().begin(), scorers().end());
  std::erase_if(fit, [](const Scorer& s) { return !s.is_mass; });
  fail(ErrorCode::kInvalidArgument,
       "chooser \"{}\" cuts by the share of softmax mass, which scorer \"{}\" does not estimate; choose one of: {}, or "
       "another chooser",
       p.chooser, p.scorer, known_names(fit));
}

// What clusters cannot take is refused, not ignored.
void check_cluster_blocks(const Policy& p) {
  if (p.blocks == BlockShape::kFixed) return;
  require(p.scorer == "clusters" && p.chooser == "top_p",
          "blocks \"clusters\" go with scorer \"clusters\" and chooser \"top_p\", not with \"{}\" and \"{}\"", p.scorer,
          p.chooser);
  require(p.budget == BudgetKind::kSchedule && p.envelope == 0,
          "blocks \"clusters\" differ by call, so no profile speaks of them; use budget \"schedule\" and envelope 0");
  require(p.tail == 0, "tail is {}; blocks \"clusters\" have none, use 0", p.tail);
  require(!p.residual, "residual is true; blocks \"clusters\" have none, use false");
  require(p.follow.renew == 0, "follow.renew is {}; blocks \"clusters\" belong to one branch, use 0", p.follow.renew);
}

std::int32_t reference_step(const Schedule& s, std::int32_t step, std::int32_t steps) {
  return static_cast<std::int32_t>(std::int64_t{step} * s.reference_steps / steps);
}

std::int32_t interval_at(const Schedule& s, std::int64_t reference_step) {
  if (s.starts.empty()) return static_cast<std::int32_t>((reference_step - s.dense_steps) / s.interval);
  return static_cast<std::int32_t>(std::ranges::upper_bound(s.starts, reference_step) - s.starts.begin()) - 1;
}

}  // namespace

const char* to_string(BlockShape shape) {
  switch (shape) {
    case BlockShape::kFixed:
      return "fixed";
    case BlockShape::kClusters:
      return "clusters";
  }
  fail(ErrorCode::kInternal, "there is no block shape {}", static_cast<int>(shape));
}

const char* to_string(BudgetKind kind) {
  switch (kind) {
    case BudgetKind::kSchedule:
      return "schedule";
    case BudgetKind::kUniform:
      return "uniform";
    case BudgetKind::kFast:
      return "fast";
    case BudgetKind::kValued:
      return "valued";
  }
  fail(ErrorCode::kInternal, "there is no budget kind {}", static_cast<int>(kind));
}

bool needs_profile(const Policy& p) {
  return p.sparse && (p.envelope > 0 || p.budget != BudgetKind::kSchedule || find_chooser(p.chooser).needs_ranks);
}

const char* to_string(Branch branch) { return branch == Branch::kConditional ? "conditional" : "unconditional"; }

std::vector<std::string> policy_presets() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

Policy load_policy(std::string_view preset_or_path) {
  if (const Preset* preset = look_up(kPresets, preset_or_path)) return preset->make();
  require(preset_or_path.ends_with(".json"),
          "there is no policy \"{}\"; choose one of: {}, or give the path of a .json file", preset_or_path,
          known_names(kPresets));
  const std::string path(preset_or_path);
  return parse_policy(read_file(path, kMaxFileBytes), path);
}

Policy parse_policy(std::string_view json_text, const std::string& where) {
  const Json object = parse_json(json_text, where).value();
  try {
    return read_policy(object, where);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kBadFile) throw;
    fail(ErrorCode::kBadFile, "{}: {}", where, e.what());
  }
}

std::string to_json(const Policy& p) {
  OrderedJson schedule = {{"reference_steps", p.schedule.reference_steps},
                          {"dense_steps", p.schedule.dense_steps},
                          {"interval", p.schedule.interval},
                          {"starts", p.schedule.starts},
                          {"permille", p.schedule.permille}};
  OrderedJson object = {{"name", p.name},
                        {"sparse", p.sparse},
                        {"order", to_string(p.order)},
                        {"blocks", to_string(p.blocks)},
                        {"block_q", p.block_q},
                        {"block_k", p.block_k},
                        {"sub_block", p.sub_block},
                        {"scorer", p.scorer},
                        {"chooser", p.chooser},
                        {"schedule", schedule},
                        {"dense_layers", p.dense_layers},
                        {"top_p", p.top_p},
                        {"floor", p.floor},
                        {"budget", to_string(p.budget)},
                        {"density", p.density},
                        {"fall", p.fall},
                        {"envelope", p.envelope},
                        {"tail", p.tail},
                        {"residual", p.residual}};
  if (!p.follow.starts.empty())
    object["follow"] = {{"starts", p.follow.starts}, {"fade", p.follow.fade}, {"renew", p.follow.renew}};
  return object.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

void check_policy(const Policy& p) {
  if (!p.sparse) return;
  check_blocks(p);
  check_scores(p);
  check_schedule(p.schedule, p.budget);
  check_shares(p);
  check_cluster_blocks(p);
  check_follow(p.follow, p.schedule.reference_steps);
  for (std::int32_t layer : p.dense_layers) {
    require(layer >= 0 && layer <= kMaxLayer, "dense_layers holds {}; layers are in [0, {}]", layer, kMaxLayer);
  }
}

StepRule rule_for(const Policy& p, std::int32_t step, std::int32_t steps, std::int32_t layer) {
  require(0 <= step && step < steps && layer >= 0, "step {} of {} in layer {} is no call; steps count from 0", step,
          steps, layer);
  if (!p.sparse || std::ranges::find(p.dense_layers, layer) != p.dense_layers.end()) return {};
  const Schedule& s = p.schedule;
  const std::int64_t at = reference_step(s, step, steps);
  if (at < s.dense_steps) return {};
  const std::int32_t interval = interval_at(s, at);
  if (p.budget != BudgetKind::kSchedule) return {false, p.density, interval};
  const std::int32_t listed = std::min(interval, static_cast<std::int32_t>(std::ssize(s.permille)) - 1);
  // The last density's mask is kept to the end, as DFSAttn does; a share of the scores has no densities to run out of,
  // and a residual grows stale.
  const bool goes_on = p.chooser == "top_p" || p.residual || !s.starts.empty();
  return {false, s.permille[static_cast<std::size_t>(listed)], goes_on ? interval : listed};
}

FollowRule follow_rule_for(const Policy& p, std::int32_t step, std::int32_t steps, std::int32_t layer) {
  const StepRule rule = rule_for(p, step, steps, layer);
  const std::int32_t at = reference_step(p.schedule, step, steps);
  const auto next = std::ranges::upper_bound(p.follow.starts, at);
  if (rule.dense || rule.permille == 1000 || next == p.follow.starts.begin()) return {-1, 0, at};
  const std::int32_t age = at - *std::prev(next);
  return {static_cast<std::int32_t>(next - p.follow.starts.begin()) - 1, p.follow.renew > 0 ? age / p.follow.renew : 0,
          at};
}

}  // namespace tulle
