#include "select/chooser.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::array kChoosers = {
    Chooser{"top_k", "a fixed number of blocks a row, those with the largest scores (DFSAttn)", choose_top_k}};

// Keeps `count` of the blocks whose score equals `threshold`.
void keep_ties(const ChooseRow& row, float threshold, std::int64_t count, std::span<std::uint8_t> kept) {
  std::vector<std::pair<std::uint64_t, std::size_t>> ties;
  for (std::size_t i = 0; i < row.scores.size(); ++i) {
    if (row.scores[i] == threshold) ties.emplace_back(mix(row.seed, i), i);
  }
  std::ranges::nth_element(ties, ties.begin() + (count - 1));
  for (std::int64_t i = 0; i < count; ++i) kept[ties[static_cast<std::size_t>(i)].second] = 1;
}

}  // namespace

std::span<const Chooser> choosers() { return kChoosers; }

const Chooser& find_chooser(std::string_view name) {
  std::string known;
  for (const Chooser& c : kChoosers) {
    if (name == c.name) return c;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", c.name);
  }
  fail(ErrorCode::kInvalidArgument, "there is no chooser \"{}\"; choose one of: {}", name, known);
}

std::int64_t kept_count(std::int64_t blocks, std::int32_t permille) {
  return std::clamp<std::int64_t>((blocks * permille + 500) / 1000, 1, blocks);
}

void choose_top_k(const ChooseRow& row, std::span<std::uint8_t> kept) {
  const std::int64_t count = kept_count(static_cast<std::int64_t>(row.scores.size()), row.permille);
  std::vector<float> sorted(row.scores.begin(), row.scores.end());
  std::ranges::nth_element(sorted, sorted.begin() + (count - 1), std::greater<>{});
  const float threshold = sorted[static_cast<std::size_t>(count - 1)];
  std::int64_t above = 0;
  for (std::size_t i = 0; i < row.scores.size(); ++i) {
    kept[i] = row.scores[i] > threshold;
    above += kept[i];
  }
  keep_ties(row, threshold, count - above, kept);
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tulle
