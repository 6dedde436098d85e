// What every fabric asks of the parts it is given, and how bytes are counted.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/group.hpp"

namespace tulle {

// Throws Error(kInvalidArgument) unless there is one part a rank.
void check_parts(const char* what, std::size_t parts, int ranks);

// Adds the bytes of each part to its peer's counter; the own entry stays 0. A single part goes to all peers.
void count_parts(std::vector<std::int64_t>& counters, int rank, SendParts send);

}  // namespace tulle
