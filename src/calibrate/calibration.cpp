#include "calibrate/calibration.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "select/chooser.hpp"
#include "select/head_mass.hpp"

namespace tulle {
namespace {

void check_plan(const CalibrationPlan& p) {
  require(!p.captions.empty(), "no caption is given to rank blocks by: give at least 1");
  require(!p.fast_captions.empty(), "no caption is left to measure fidelity on: give at least 1");
  require(static_cast<std::int64_t>(p.captions.size()) <= Profile::kMaxCaptions,
          "{} captions are more than the {} of a profile", p.captions.size(), Profile::kMaxCaptions);
  for (const std::string& caption : p.captions) {
    require(static_cast<std::int64_t>(caption.size()) <= Profile::kMaxCaptionBytes,
            "a caption of {} bytes is longer than the {} of a profile", caption.size(), Profile::kMaxCaptionBytes);
  }
  require(p.steps >= 1, "{} steps are none: give at least 1", p.steps);
  require(p.bins >= 1 && p.bins <= p.steps, "{} parts of the run do not fit {} steps: give 1 to {}", p.bins, p.steps,
          p.steps);
  require(p.rows >= 1, "{} rows cannot be sampled: give at least 1", p.rows);
  require(p.q.sequence == p.k.sequence && p.q.sequence.text_tokens == 0,
          "calibration needs queries and keys of one grid, without text");
  require(p.model_hash.size() == 16, "the model's hash \"{}\" is not 16 hexadecimal digits", p.model_hash);
}

CalibrationPlan checked(CalibrationPlan plan) {
  check_plan(plan);
  return plan;
}

std::uint64_t row_seed(const AttendCall& call, std::int64_t caption, std::int64_t head) {
  std::uint64_t seed = 0;
  for (std::int64_t part :
       {caption, std::int64_t{call.step}, std::int64_t{call.layer}, static_cast<std::int64_t>(call.branch), head}) {
    seed = mix(seed, static_cast<std::uint64_t>(part));
  }
  return seed;
}

}  // namespace

Calibration::Calibration(CalibrationPlan plan)
    : plan_(checked(std::move(plan))),
      west_(plan_.layers, plan_.heads, plan_.q, plan_.k, plan_.order),
      fast_(plan_.bins, plan_.layers, plan_.heads),
      fast_before_(fast_.sums().begin(), fast_.sums().end()),
      seen_(static_cast<std::size_t>(plan_.bins * plan_.layers), 0) {}

std::int64_t Calibration::total() const {
  return static_cast<std::int64_t>(plan_.captions.size() + plan_.fast_captions.size());
}

bool Calibration::ranking() const { return done_ < static_cast<std::int64_t>(plan_.captions.size()); }

const std::string& Calibration::caption() const {
  require(done_ < total(), "all {} captions are done", total());
  const auto i = static_cast<std::size_t>(done_);
  return ranking() ? plan_.captions[i] : plan_.fast_captions[i - plan_.captions.size()];
}

std::int32_t Calibration::measured_step(std::int64_t bin) const {
  const std::int64_t steps = plan_.steps, bins = plan_.bins;
  return static_cast<std::int32_t>(std::max((2 * bin + 1) * steps / (2 * bins), ceil_div(bin * steps, bins)));
}

std::int64_t Calibration::bin_of_measured(std::int32_t step) const {
  const std::int64_t bin = std::int64_t{step} * plan_.bins / plan_.steps;
  return measured_step(bin) == step ? bin : -1;
}

void Calibration::observe(const AttendCall& call, std::int64_t first_head, ConstTensorView q, ConstTensorView k,
                          const Threads& threads) {
  require(call.steps == plan_.steps, "the run has {} steps and the calibration {}", call.steps, plan_.steps);
  require(done_ < total(), "all {} captions are done", total());
  const std::int64_t bin = bin_of_measured(call.step);
  if (bin < 0) return;
  require(q.batch() == 1, "calibration got a batch of {} samples; run one sample at a time", q.batch());
  require(first_head == 0 && q.heads() == plan_.heads,
          "calibration saw heads {} to {} of {}: run it on one rank, which holds all", first_head,
          first_head + q.heads() - 1, plan_.heads);
  require(call.layer >= 0 && call.layer < plan_.layers, "layer {} is not one of the {} calibrated", call.layer,
          plan_.layers);
  if (ranking())
    measure_blocks(call, q, k, threads);
  else
    measure_rows(call, bin, q, k, threads);
  seen_[static_cast<std::size_t>(bin * plan_.layers + call.layer)] = 1;
}

void Calibration::measure_blocks(const AttendCall& call, ConstTensorView q, ConstTensorView k, const Threads& threads) {
  std::vector<float> mass(static_cast<std::size_t>(plan_.q.count() * plan_.k.count()));
  for (std::int64_t head = 0; head < plan_.heads; ++head) {
    HeadMass(q, k, 0, head, plan_.q, plan_.k, {}, threads).blocks(mass, threads);
    west_.add(call.layer, head, mass);
  }
}

void Calibration::measure_rows(const AttendCall& call, std::int64_t bin, ConstTensorView q, ConstTensorView k,
                               const Threads& threads) {
  const RankMap& ranks = west_.ranks()[static_cast<std::size_t>(call.layer)];
  const auto columns = static_cast<std::size_t>(plan_.k.count());
  for (std::int64_t head = 0; head < plan_.heads; ++head) {
    const auto rows = stratified_rows(q.tokens(), plan_.rows, row_seed(call, done_, head));
    std::vector<float> mass(rows.size() * columns);
    HeadMass(q, k, 0, head, plan_.q, plan_.k, {}, threads).rows(rows, mass, threads);
    RowSums sums;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      add_row(std::span(mass).subspan(i * columns, columns), ranks.row(head, plan_.q.block_of(rows[i])), sums);
    }
    fast_.add(bin, call.layer, head, sums, static_cast<std::int64_t>(rows.size()));
  }
}

void Calibration::end_caption() {
  const auto missing = std::ranges::find(seen_, std::uint8_t{0});
  if (missing != seen_.end()) {
    const std::int64_t at = missing - seen_.begin();
    fail(ErrorCode::kInvalidArgument,
         "caption \"{}\" ended without a call of step {}, layer {}: run all steps and layers", caption(),
         measured_step(at / plan_.layers), at % plan_.layers);
  }
  if (ranking()) west_.end_caption();
  fast_before_.assign(fast_.sums().begin(), fast_.sums().end());
  std::ranges::fill(seen_, std::uint8_t{0});
  ++done_;
}

void Calibration::drop_caption() {
  west_.drop_caption();
  fast_.restore(fast_before_);
  std::ranges::fill(seen_, std::uint8_t{0});
}

Profile Calibration::profile() const {
  require(done_ == total(), "{} of {} captions are done: a profile needs all", done_, total());
  Profile p;
  p.model_hash = plan_.model_hash;
  p.steps = plan_.steps;
  p.captions = plan_.captions;
  p.union_density = west_.union_density();
  p.held_out_mass = west_.held_out_mass();
  p.ranks = west_.ranks();
  p.curves = fast_.curves(p.ranks);
  check_profile(p);
  return p;
}

std::int64_t predicted_calibration_bytes(const CalibrationPlan& plan, std::int64_t head_dim, int threads) {
  // Of every block: rank, f32 sum, the saved or serialised form twice (text grows by copying), the profile's rank.
  constexpr std::int64_t kPerBlock = 1 + 4 + 2 + 1;
  const std::int64_t tokens = plan.q.tokens();
  const auto blocks = checked_product({plan.layers, plan.heads, plan.q.count(), plan.k.count(), kPerBlock});
  const auto head = checked_product({tokens, 12, head_dim});  // packed q, k and panels of one head
  const auto scratch = checked_product({tokens, 16, threads});
  const auto sums = checked_product({plan.bins, plan.layers, plan.heads, 4 * (2 * FidelityCurves::kLevels + 1), 8});
  require(blocks && head && scratch && sums, "grid {}: too many blocks to count their bytes",
          to_string(plan.q.sequence.grid));
  std::int64_t all = *blocks;
  for (std::int64_t part : {*head, *scratch, *sums}) {
    const auto sum = checked_add(all, part);
    require(sum.has_value(), "grid {}: too many blocks to count their bytes", to_string(plan.q.sequence.grid));
    all = *sum;
  }
  return all;
}

}  // namespace tulle
