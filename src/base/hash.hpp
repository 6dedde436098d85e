// XXH3 checksums of bytes (files, plans, determinism tests).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tulle {

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::string hash_hex(std::uint64_t hash);

template <class T>
std::uint64_t hash_span(std::span<const T> values, std::uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(values), seed);
}

}  // namespace tulle
