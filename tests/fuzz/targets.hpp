// The readers of foreign bytes, each as one function that a fuzzer and a plain test can call.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tulle::fuzz {

struct Target {
  const char* name;  // also of its folder in tests/fuzz/corpus and of its program, fuzz_<name>
  // Reads the bytes as a file of that kind, uses what was accepted, and says whether the bytes as they are were
  // accepted. Throws std::logic_error when a promise of the reader is broken: bytes are refused with code kBadFile and
  // the place in front, and what is accepted comes back the same when it is written and read again. Readers of files
  // with a checksum see the bytes once more with one that fits, so that changed bytes get past it.
  bool (*run)(std::span<const std::byte> bytes);
};

std::span<const Target> targets();
// Throws Error(kInvalidArgument) that lists the targets.
const Target& find_target(std::string_view name);

}  // namespace tulle::fuzz
