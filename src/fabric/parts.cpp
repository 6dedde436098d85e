#include "fabric/parts.hpp"

#include "base/fail.hpp"

namespace tulle {

void check_parts(const char* what, std::size_t parts, int ranks) {
  require(parts == static_cast<std::size_t>(ranks), "{} has {} parts, but there are {} ranks: give one part a rank",
          what, parts, ranks);
}

void count_parts(std::vector<std::int64_t>& counters, int rank, SendParts send) {
  for (std::size_t p = 0; p < counters.size(); ++p) {
    if (static_cast<int>(p) == rank) continue;
    counters[p] += static_cast<std::int64_t>(send[send.size() == 1 ? 0 : p].size());
  }
}

}  // namespace tulle
