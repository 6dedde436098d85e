// The binary form of a profile; docs/formats/profile.md describes it byte by byte.
#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "mask/binary.hpp"
#include "tulle/profile.hpp"

namespace tulle {
namespace {

constexpr BinaryKind kProfileKind = {"TULLEPRF", 1, 136, "profile"};
constexpr std::size_t kHashBytes = 16;

struct Header {
  std::int64_t layers = 0, heads = 0, bins = 0;
  std::uint32_t captions = 0;
  BlockPartition q, k;
  OrderKind order = OrderKind::kRaster;
};

// Numbers of values behind the captions.
struct Sizes {
  std::int64_t ranks = 0, curves = 0, densities = 0;
};

Problem take_header(BinaryReader& in, Header& h, Profile& profile, const std::string& where) {
  if (Problem p = take_order(in, h.order, kProfileKind, where)) return p;
  h.layers = in.take<std::int64_t>();
  h.heads = in.take<std::int64_t>();
  if (Problem p = take_partition(in, h.q, kProfileKind, where)) return p;
  if (Problem p = take_partition(in, h.k, kProfileKind, where)) return p;
  h.bins = in.take<std::int64_t>();
  profile.steps = in.take<std::int32_t>();
  h.captions = in.take<std::uint32_t>();
  const auto hash = in.take_bytes(kHashBytes);
  profile.model_hash.assign(reinterpret_cast<const char*>(hash.data()), hash.size());
  profile.held_out_mass = in.take<float>();
  const auto reserved = in.take<std::uint32_t>();
  if (reserved != 0) return bad_file(kProfileKind, where, "a reserved field holds {} instead of 0", reserved);
  if (h.layers < 1 || h.heads < 1 || h.bins < 1) {
    return bad_file(kProfileKind, where, "{} layers, {} heads and {} bins are not all >= 1", h.layers, h.heads, h.bins);
  }
  return std::nullopt;
}

// Each length is compared with the bytes at hand before its text is copied.
Problem take_captions(BinaryReader& in, std::uint32_t count, Profile& profile, const std::string& where) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (in.rest().size() < sizeof(std::uint32_t)) {
      return bad_file(kProfileKind, where, "{} captions are stated, but the file ends before caption {}", count, i);
    }
    const auto length = in.take<std::uint32_t>();
    if (length > Profile::kMaxCaptionBytes || length > in.rest().size()) {
      return bad_file(kProfileKind, where, "caption {} of {} bytes is longer than {} bytes or than the file", i, length,
                      Profile::kMaxCaptionBytes);
    }
    const auto text = in.take_bytes(length);
    profile.captions.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return std::nullopt;
}

std::optional<Sizes> sizes_of(const Header& h) {
  const auto ranks = checked_product({h.layers, h.heads, h.q.count(), h.k.count()});
  const auto densities = checked_product({h.layers, h.heads, FidelityCurves::kLevels});
  const auto curves = checked_product({h.bins, densities.value_or(-1)});
  if (!ranks || !densities || !curves) return std::nullopt;
  return Sizes{*ranks, *curves, *densities};
}

// Bytes that union densities, ranks and curves take, or nothing when that overflows.
std::optional<std::int64_t> payload_bytes(const Header& h, const Sizes& s) {
  const auto curves = checked_mul(s.curves, std::int64_t{2});
  const auto others = checked_add(s.densities, std::int64_t{h.captions});
  if (!curves || !others) return std::nullopt;
  const auto floats = checked_add(*curves, *others);
  const auto float_bytes = floats ? checked_mul(*floats, std::int64_t{4}) : std::nullopt;
  return float_bytes ? checked_add(*float_bytes, s.ranks) : std::nullopt;
}

void take_floats(BinaryReader& in, std::int64_t count, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(count));
  for (float& v : values) v = in.take<float>();
}

void take_payload(BinaryReader& in, const Header& h, const Sizes& s, Profile& profile) {
  take_floats(in, h.captions, profile.union_density);
  for (std::int64_t l = 0; l < h.layers; ++l) {
    RankMap& map = profile.ranks.emplace_back(h.heads, h.q, h.k, h.order);
    const auto bytes = in.take_bytes(map.bytes().size());
    std::memcpy(map.bytes().data(), bytes.data(), bytes.size());
  }
  FidelityCurves& c = profile.curves;
  c.bins = h.bins, c.layers = h.layers, c.heads = h.heads;
  take_floats(in, s.curves, c.fidelity);
  take_floats(in, s.curves, c.mass);
  take_floats(in, s.densities, c.density);
}

Problem take_profile(BinaryReader& in, Profile& profile, const std::string& where) {
  Header h;
  if (Problem p = take_header(in, h, profile, where)) return p;
  if (h.captions > Profile::kMaxCaptions) {
    return bad_file(kProfileKind, where, "{} captions are more than {}", h.captions, Profile::kMaxCaptions);
  }
  if (Problem p = take_captions(in, h.captions, profile, where)) return p;
  const auto sizes = sizes_of(h);
  const auto payload = sizes ? payload_bytes(h, *sizes) : std::nullopt;
  if (!payload || *payload != static_cast<std::int64_t>(in.rest().size())) {
    return bad_file(kProfileKind, where, "{} bytes are there behind the captions, which is not what the geometry needs",
                    in.rest().size());
  }
  try {
    take_payload(in, h, *sizes, profile);
    check_profile(profile);
  } catch (const Error& e) {
    return bad_file(kProfileKind, where, "{}", e.what());
  }
  return std::nullopt;
}

void put_floats(std::string& out, std::span<const float> values) {
  for (const float v : values) put(out, v);
}

void put_captions(std::string& out, std::span<const std::string> captions) {
  for (const std::string& caption : captions) {
    put(out, static_cast<std::uint32_t>(caption.size()));
    out += caption;
  }
}

}  // namespace

std::string serialize(const Profile& profile) {
  check_profile(profile);
  const FidelityCurves& c = profile.curves;
  std::string out = begin_file(kProfileKind);
  put(out, static_cast<std::uint32_t>(profile.order()));
  put(out, c.layers);
  put(out, c.heads);
  put_partition(out, profile.q());
  put_partition(out, profile.k());
  put(out, c.bins);
  put(out, profile.steps);
  put(out, static_cast<std::uint32_t>(profile.captions.size()));
  out += profile.model_hash;
  put(out, profile.held_out_mass);
  put(out, std::uint32_t{0});
  put_captions(out, profile.captions);
  out.reserve(out.size() + static_cast<std::size_t>(memory_bytes(profile)) + 4 * profile.captions.size() +
              kChecksumBytes);
  put_floats(out, profile.union_density);
  for (const RankMap& map : profile.ranks) {
    out.append(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  }
  put_floats(out, c.fidelity);
  put_floats(out, c.mass);
  put_floats(out, c.density);
  end_file(out);
  return out;
}

Expected<Profile> parse_profile(std::span<const std::byte> bytes, const std::string& where) {
  std::span<const std::byte> body;
  if (Problem p = open_file(kProfileKind, bytes, where, body)) return *p;
  BinaryReader in(body);
  Profile profile;
  if (Problem p = take_profile(in, profile, where)) return *p;
  return profile;
}

}  // namespace tulle
