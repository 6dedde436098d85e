// Profile: what calibration learned about one model, for one grid, order and block size. Data, and its file.
//
// Zhou et al., "ScalingAttention" (2026): rank maps (WEST) say which blocks can matter, fidelity curves (FAST) how much
// each layer, head and part of the run suffers when only the blocks up to a level are kept.
// Thread safety: a plain value; concurrent reads are safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/error.hpp"
#include "tulle/rank_map.hpp"

namespace tulle {

// Fidelity F = mean over query rows of 1 - H, H the Hellinger distance between a softmax row and the same row
// renormalised over its kept blocks: H = sqrt(1 - sqrt(m)), m the kept mass. Curves are sampled at kLevels levels of
// the rank map and never fall with the level.
struct FidelityCurves {
  static constexpr std::int64_t kLevels = 32;
  // The l-th sampled level of a rank map, l in [0, kLevels): ceil(255 (l + 1) / kLevels).
  static std::uint8_t level(std::int64_t l) {
    return static_cast<std::uint8_t>((255 * (l + 1) + kLevels - 1) / kLevels);
  }

  std::int64_t bins = 0, layers = 0, heads = 0;  // bin b stands for steps in [b, b + 1) / bins of the run
  std::vector<float> fidelity;                   // [bins][layers][heads][kLevels], in [0, 1]
  std::vector<float> mass;                       // the same: mean kept mass
  std::vector<float> density;                    // [layers][heads][kLevels]: of the mask at that level, in [0, 1]; 0
                                                 // where no block of the head has so small a rank

  std::size_t at(std::int64_t bin, std::int64_t layer, std::int64_t head) const {
    return static_cast<std::size_t>(((bin * layers + layer) * heads + head) * kLevels);
  }
  std::size_t at(std::int64_t layer, std::int64_t head) const {
    return static_cast<std::size_t>((layer * heads + head) * kLevels);
  }
  bool operator==(const FidelityCurves&) const = default;
};

struct Profile {
  static constexpr std::int64_t kMaxCaptions = 65536, kMaxCaptionBytes = 65536;

  std::string model_hash;  // 16 digits of 0-9 and a-f: XXH3-64 over the weights
  std::int32_t steps = 0;  // of the calibration runs
  // At least one, at most kMaxCaptions; UTF-8 of at most kMaxCaptionBytes bytes each.
  std::vector<std::string> captions;
  // Mean density at rank_level(250) of the union of the first 1, 2, ... captions: [captions]. It tells when more
  // captions stop adding blocks.
  std::vector<float> union_density;
  // Share of the mass of the last caption, not in the union, that the union of the others keeps at rank_level(250); 0
  // where there are no others.
  float held_out_mass = 0;
  std::vector<RankMap> ranks;  // [layers], one geometry, no text
  FidelityCurves curves;

  const BlockPartition& q() const { return ranks.front().q(); }
  const BlockPartition& k() const { return ranks.front().k(); }
  OrderKind order() const { return ranks.front().order(); }
  bool operator==(const Profile&) const = default;
};

// Throws Error(kInvalidArgument) naming the part that does not fit the others, or a value out of its range: ranks in
// [1, 255]; fidelity, mass, densities and held_out_mass in [0, 1]; curves and union_density that never fall.
void check_profile(const Profile& profile);

// Throws Error(kBadFile) with both hashes unless the profile was made for the model with this hash. `where` names the
// profile.
void require_model(const Profile& profile, std::string_view model_hash, const std::string& where);

// Bytes of its rank maps and curves.
std::int64_t memory_bytes(const Profile& profile);

// The profile for another grid, order or block size: rank maps by remap(), densities counted anew, fidelity, mass and
// union_density as they were (what a level keeps of the mass is a property of the head far more than of the grid). A
// remapped map is denser at a level than the one that it comes from, so choose levels by the density curves, not by
// rank_level(). The profile itself where the geometry is the same. Throws Error(kInvalidArgument).
Profile adapt(const Profile& profile, const BlockPartition& q, const BlockPartition& k, OrderKind order);

// Binary form with a magic word, version, geometry and XXH3 checksum (docs/formats/profile.md).
std::string serialize(const Profile& profile);
// Reads what serialize wrote. `where` (a path or a description) begins every error, which has code kBadFile. Nothing is
// allocated before the stated sizes are known to agree with the number of bytes at hand.
Expected<Profile> parse_profile(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tulle
