#include "select/chooser.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/named.hpp"
#include "tulle/rank_map.hpp"

namespace tulle {
namespace {

constexpr std::array kChoosers = {
    Chooser{"top_k", "a fixed number of blocks a row, those with the largest scores (DFSAttn)", true, false,
            choose_top_k},
    Chooser{"top_p", "the fewest blocks that hold a share of the row's scores, with a floor (FVAttn)", true, false,
            choose_top_p, true},
    Chooser{"rank_threshold", "what the rank map keeps at the density, scores unseen (ScalingAttention)", false, true,
            choose_rank_threshold}};

// One block with what decides its place; the better one is smaller.
struct Place {
  bool outside;  // of the envelope
  float cost;    // -score, or the rank where there are no scores
  std::uint64_t hash;
  std::size_t block;
  auto operator<=>(const Place&) const = default;
};

// The envelope, raised to the lowest rank of the row where it would hold nothing.
std::uint8_t raised_envelope(std::span<const std::uint8_t> ranks, std::uint8_t envelope) {
  return std::max(envelope, *std::ranges::min_element(ranks));
}

// Blocks that may be kept, in increasing order.
std::vector<std::size_t> candidates_of(const ChooseRow& row) {
  std::vector<std::size_t> out(row.blocks());
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (row.ranks.empty()) return out;
  const std::uint8_t envelope = raised_envelope(row.ranks, row.envelope);
  std::erase_if(out, [&](std::size_t i) { return row.ranks[i] > envelope; });
  return out;
}

// Keeps `count` of the candidates whose score equals `threshold`.
void keep_ties(const ChooseRow& row, std::span<const std::size_t> candidates, float threshold, std::int64_t count,
               std::span<std::uint8_t> kept) {
  std::vector<std::pair<std::uint64_t, std::size_t>> ties;
  for (std::size_t i : candidates) {
    if (row.scores[i] == threshold) ties.emplace_back(mix(row.seed, i), i);
  }
  std::ranges::nth_element(ties, ties.begin() + (count - 1));
  for (std::int64_t i = 0; i < count; ++i) kept[ties[static_cast<std::size_t>(i)].second] = 1;
}

}  // namespace

std::span<const Chooser> choosers() { return kChoosers; }

const Chooser& find_chooser(std::string_view name) { return find_named(kChoosers, name, "chooser"); }

std::int64_t kept_count(std::int64_t blocks, std::int32_t permille) {
  return std::clamp<std::int64_t>((blocks * permille + 500) / 1000, 1, blocks);
}

void choose_top_k(const ChooseRow& row, std::span<std::uint8_t> kept) {
  const std::vector<std::size_t> candidates = candidates_of(row);
  const std::int64_t count = std::min(kept_count(static_cast<std::int64_t>(row.scores.size()), row.permille),
                                      static_cast<std::int64_t>(candidates.size()));
  std::vector<float> sorted;
  sorted.reserve(candidates.size());
  for (std::size_t i : candidates) sorted.push_back(row.scores[i]);
  std::ranges::nth_element(sorted, sorted.begin() + (count - 1), std::greater<>{});
  const float threshold = sorted[static_cast<std::size_t>(count - 1)];
  std::int64_t above = 0;
  for (std::size_t i : candidates) {
    kept[i] = row.scores[i] > threshold;
    above += kept[i];
  }
  keep_ties(row, candidates, threshold, count - above, kept);
}

void choose_top_p(const ChooseRow& row, std::span<std::uint8_t> kept) {
  std::vector<Place> places;
  for (std::size_t i : candidates_of(row)) places.push_back({false, -row.scores[i], mix(row.seed, i), i});
  std::ranges::sort(places);
  const auto always = std::ranges::find_if(places, [](const Place& p) { return -p.cost < kAlwaysKept; });
  const auto floor = static_cast<std::size_t>(kept_count(static_cast<std::int64_t>(row.scores.size()), row.floor));
  const std::size_t least = std::max(floor, static_cast<std::size_t>(always - places.begin()));
  // One order of summation for the share and the whole, so that the same scores always give the same cut.
  double total = 0;
  for (auto p = always; p != places.end(); ++p) total -= p->cost;
  double held = 0;
  for (std::size_t n = 0; n < places.size(); ++n) {
    if (n >= least && row.top_p < 1000 && held * 1000 >= total * row.top_p) return;
    kept[places[n].block] = 1;
    if (-places[n].cost < kAlwaysKept) held -= places[n].cost;
  }
}

void choose_rank_threshold(const ChooseRow& row, std::span<std::uint8_t> kept) {
  const std::uint8_t level = raised_envelope(row.ranks, rank_level(row.permille));
  for (std::size_t i = 0; i < row.ranks.size(); ++i) kept[i] = row.ranks[i] <= level;
}

void rank_rest(const ChooseRow& row, std::span<const std::uint8_t> kept, std::vector<std::int32_t>& order) {
  std::vector<Place> places;
  const std::uint8_t envelope = row.ranks.empty() ? row.envelope : raised_envelope(row.ranks, row.envelope);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) continue;
    const bool outside = !row.ranks.empty() && row.ranks[i] > envelope;
    const float cost = row.scores.empty() ? static_cast<float>(row.ranks[i]) : -row.scores[i];
    places.push_back({outside, cost, mix(row.seed, i), i});
  }
  std::ranges::sort(places);
  order.clear();
  for (const Place& p : places) order.push_back(static_cast<std::int32_t>(p.block));
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tulle
