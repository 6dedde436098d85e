// Ranks agree on what they are about to do before they do it.
#pragma once

#include <cstdint>

#include "tulle/engine.hpp"
#include "tulle/fabric.hpp"

namespace tulle {

// What must be equal on all ranks, as hashes.
struct Fingerprint {
  std::uint64_t plan = 0, policy = 0, profile = 0, shape = 0;
};

Fingerprint fingerprint_of(const EngineOptions& options, const Plan& plan);

// Collective: compares `mine` between all ranks. Throws Error(kInvalidArgument), on every rank, that names the first
// rank whose fingerprint is not rank 0's and what differs.
void agree(Fabric& fabric, const Fingerprint& mine);

}  // namespace tulle
