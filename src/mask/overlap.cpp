#include "mask/overlap.hpp"

#include <bit>

#include "base/fail.hpp"

namespace tulle {

std::vector<double> overlap_of(const BlockMask& a, const BlockMask& b) {
  require(a.same_geometry(b),
          "masks of {} maps of {} x {} and of {} maps of {} x {} blocks have no overlap; compare masks of one geometry",
          a.batch() * a.heads(), a.q_blocks(), a.k_blocks(), b.batch() * b.heads(), b.q_blocks(), b.k_blocks());
  const auto maps = static_cast<std::size_t>(a.batch() * a.heads());
  const std::size_t words = a.words().size() / maps;
  std::vector<double> out;
  for (std::size_t map = 0; map < maps; ++map) {
    std::int64_t both = 0, either = 0;
    for (std::size_t w = map * words; w < (map + 1) * words; ++w) {
      both += std::popcount(a.words()[w] & b.words()[w]);
      either += std::popcount(a.words()[w] | b.words()[w]);
    }
    out.push_back(either == 0 ? 1.0 : static_cast<double>(both) / static_cast<double>(either));
  }
  return out;
}

}  // namespace tulle
