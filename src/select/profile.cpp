#include "tulle/profile.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::size_t kLevels = static_cast<std::size_t>(FidelityCurves::kLevels);

bool is_model_hash(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Bytes of the well-formed character at the front, 0 when there is none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  // Overlong forms, surrogates, and what lies behind the last code point.
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_share(float value) { return value >= 0.0f && value <= 1.0f; }  // false for NaN

void check_captions(const Profile& p) {
  const auto count = static_cast<std::int64_t>(p.captions.size());
  require(count >= 1 && count <= Profile::kMaxCaptions, "a profile has 1 to {} captions, not {}", Profile::kMaxCaptions,
          count);
  for (std::size_t i = 0; i < p.captions.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(p.captions[i].size());
    require(bytes <= Profile::kMaxCaptionBytes && is_utf8(p.captions[i]),
            "caption {} of a profile, {} bytes, is longer than {} or is not UTF-8", i, bytes,
            Profile::kMaxCaptionBytes);
  }
}

void check_union(const Profile& p) {
  require(p.union_density.size() == p.captions.size(),
          "a profile of {} captions has {} union densities: one is for each", p.captions.size(),
          p.union_density.size());
  require(std::ranges::all_of(p.union_density, is_share) && std::ranges::is_sorted(p.union_density),
          "the union densities of a profile must be in [0, 1] and never fall");
  require(is_share(p.held_out_mass), "the held-out mass of a profile, {}, is not in [0, 1]", p.held_out_mass);
}

void check_ranks(const Profile& p) {
  require(!p.ranks.empty() && p.ranks.front().heads() >= 1, "a profile needs a rank map of every layer, and has none");
  for (std::size_t l = 0; l < p.ranks.size(); ++l) {
    require(p.ranks[l].same_geometry(p.ranks.front()), "the rank map of layer {} has another geometry than layer 0", l);
    require(std::ranges::find(p.ranks[l].bytes(), std::uint8_t{0}) == p.ranks[l].bytes().end(),
            "the rank map of layer {} has a rank 0: ranks are 1 to 255", l);
  }
}

void check_curves(const char* name, std::span<const float> values, std::initializer_list<std::int64_t> curves) {
  const auto count = checked_product(curves);
  require(count && *count <= static_cast<std::int64_t>(values.size()) &&
              static_cast<std::size_t>(*count) * kLevels == values.size(),
          "the {} curves of a profile have {} values, which does not fit its bins, layers, heads and {} levels", name,
          values.size(), kLevels);
  for (std::size_t at = 0; at < values.size(); at += kLevels) {
    const auto curve = values.subspan(at, kLevels);
    require(std::ranges::all_of(curve, is_share) && std::ranges::is_sorted(curve),
            "{} curve {} of a profile is not in [0, 1] or falls", name, at / kLevels);
  }
}

}  // namespace

void check_profile(const Profile& p) {
  require(is_model_hash(p.model_hash),
          "the model hash of a profile must be 16 digits of 0-9 and a-f, not {} characters", p.model_hash.size());
  require(p.steps >= 1, "a profile was made with at least 1 step, not {}", p.steps);
  check_captions(p);
  check_union(p);
  check_ranks(p);
  const FidelityCurves& c = p.curves;
  const auto layers = static_cast<std::int64_t>(p.ranks.size()), heads = p.ranks.front().heads();
  require(c.bins >= 1 && c.layers == layers && c.heads == heads,
          "fidelity curves of {} bins, {} layers and {} heads do not fit rank maps of {} layers and {} heads", c.bins,
          c.layers, c.heads, layers, heads);
  check_curves("fidelity", c.fidelity, {c.bins, layers, heads});
  check_curves("mass", c.mass, {c.bins, layers, heads});
  check_curves("density", c.density, {layers, heads});
}

void require_model(const Profile& profile, std::string_view model_hash, const std::string& where) {
  if (profile.model_hash == model_hash) return;
  fail(
      ErrorCode::kBadFile,
      "{}: the profile was made for a model with hash {}, and this model has {}; calibrate this model, or load the one "
      "that the profile is for",
      where, profile.model_hash, model_hash);
}

std::int64_t memory_bytes(const Profile& p) {
  std::size_t bytes = sizeof(float) * (p.curves.fidelity.size() + p.curves.mass.size() + p.curves.density.size());
  for (const RankMap& map : p.ranks) bytes += map.bytes().size();
  return static_cast<std::int64_t>(bytes);
}

Profile adapt(const Profile& profile, const BlockPartition& q, const BlockPartition& k, OrderKind order) {
  check_profile(profile);
  Profile out = profile;
  if (profile.q() == q && profile.k() == k && profile.order() == order) return out;
  for (std::size_t l = 0; l < out.ranks.size(); ++l) {
    out.ranks[l] = remap(profile.ranks[l], q, k, order);
    for (std::int64_t h = 0; h < out.curves.heads; ++h) {
      const auto density = density_by_level(out.ranks[l], h);
      float* curve = out.curves.density.data() + out.curves.at(static_cast<std::int64_t>(l), h);
      for (std::int64_t i = 0; i < FidelityCurves::kLevels; ++i) {
        curve[i] = static_cast<float>(density[FidelityCurves::level(i)]);
      }
    }
  }
  return out;
}

}  // namespace tulle
