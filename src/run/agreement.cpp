#include "run/agreement.hpp"

#include <string>
#include <vector>

#include "base/fail.hpp"
#include "base/hash.hpp"

namespace tulle {
namespace {

std::string differences(const Fingerprint& a, const Fingerprint& b) {
  std::string text;
  const auto compare = [&](const char* what, std::uint64_t x, std::uint64_t y) {
    if (x != y) text += std::string(text.empty() ? "" : ", ") + what;
  };
  compare("plan (tokens and heads of each rank)", a.plan, b.plan);
  compare("policy", a.policy, b.policy);
  compare("profile", a.profile, b.profile);
  compare("shape (grid, text, heads, head_dim, layers, batch, dtype)", a.shape, b.shape);
  return text;
}

}  // namespace

Fingerprint fingerprint_of(const EngineOptions& o, const Plan& plan) {
  const Sequence& s = o.sequence;
  const std::int64_t shape[] = {
      s.grid.frames, s.grid.height, s.grid.width, s.text_tokens, static_cast<std::int64_t>(s.placement),
      o.heads,       o.head_dim,    o.layers,     o.batch,       static_cast<std::int64_t>(o.dtype)};
  const std::string policy = to_json(o.policy), profile = o.profile != nullptr ? serialize(*o.profile) : "";
  return {hash(plan), hash_span<char>(policy), hash_span<char>(profile), hash_span<std::int64_t>(shape)};
}

void agree(Fabric& fabric, const Fingerprint& mine) {
  std::vector<Fingerprint> all(static_cast<std::size_t>(fabric.size()));
  std::vector<std::span<std::byte>> parts;
  for (Fingerprint& f : all) parts.push_back(std::as_writable_bytes(std::span(&f, 1)));
  fabric.all_gather(std::as_bytes(std::span(&mine, 1)), parts, "agreement of the ranks");
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string text = differences(all[0], all[r]);
    require(text.empty(), "rank {} and rank 0 differ in: {}; give all ranks the same options", r, text);
  }
}

}  // namespace tulle
