// The saved form of a calibration; docs/calibration.md says what it holds.
#include <algorithm>
#include <bit>

#include "base/fail.hpp"
#include "calibrate/calibration.hpp"
#include "calibrate/settings.hpp"
#include "mask/binary.hpp"

namespace tulle {
namespace {

// Magic and version, then: length of the settings, captions done, densities of the union.
constexpr BinaryKind kKind{"TULLECAL", 1, 8 + 4 + 3 * 8, "saved calibration"};

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  fail(ErrorCode::kBadFile, "{}: {}; delete it to begin anew", where, what);
}

double take_double(BinaryReader& in) { return std::bit_cast<double>(in.take<std::uint64_t>()); }

}  // namespace

std::string Calibration::save() const {
  const std::string settings = settings_text(plan_);
  std::string out = begin_file(kKind);
  put(out, static_cast<std::uint64_t>(settings.size()));
  put(out, done_);
  put(out, static_cast<std::uint64_t>(west_.union_density().size()));
  out += settings;
  for (const float d : west_.union_density()) put(out, d);
  put(out, west_.held_out_mass());
  for (const RankMap& map : west_.ranks()) {
    out.append(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  }
  for (const double d : fast_before_) put(out, std::bit_cast<std::uint64_t>(d));
  end_file(out);
  return out;
}

void Calibration::restore(std::span<const std::byte> bytes, const std::string& where) {
  std::span<const std::byte> body;
  if (const Problem p = open_file(kKind, bytes, where, body)) throw *p;
  BinaryReader in(body);
  const auto text_bytes = in.take<std::uint64_t>();
  const auto done = in.take<std::int64_t>();
  const auto densities = in.take<std::uint64_t>();
  if (text_bytes > in.rest().size()) bad(where, "its settings are longer than the file");
  const auto text = in.take_bytes(static_cast<std::size_t>(text_bytes));
  const std::string difference =
      first_difference(settings_text(plan_), std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  if (!difference.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} is of a calibration with other settings ({}): give those, or delete it",
         where, difference);
  }
  // Equal settings mean equal sizes of everything that follows.
  const std::size_t ranks = west_.ranks().size() * west_.ranks().front().bytes().size();
  const auto captions = static_cast<std::int64_t>(plan_.captions.size());
  if (done < 0 || done > total() || densities != static_cast<std::uint64_t>(std::min(done, captions)) ||
      in.rest().size() != 4 * densities + 4 + ranks + 8 * fast_before_.size()) {
    bad(where, "its numbers do not agree with its length");
  }
  std::vector<float> curve(static_cast<std::size_t>(densities));
  for (float& d : curve) d = in.take<float>();
  const float held_out = in.take<float>();
  const auto rank_bytes = in.take_bytes(ranks);
  west_.restore({reinterpret_cast<const std::uint8_t*>(rank_bytes.data()), rank_bytes.size()}, std::move(curve),
                held_out);
  for (double& d : fast_before_) d = take_double(in);
  fast_.restore(fast_before_);
  std::ranges::fill(seen_, std::uint8_t{0});
  done_ = done;
}

}  // namespace tulle
