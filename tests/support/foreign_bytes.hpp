// Changed copies of our own files: what a parser of foreign bytes must survive.
#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "mask/binary.hpp"

namespace tulle::testing_data {

// Makes the checksum fit, so that what lies behind it is tested. Bytes too few for a checksum stay as they are.
inline void seal(std::string& bytes) {
  if (bytes.size() < kChecksumBytes) return;
  bytes.resize(bytes.size() - kChecksumBytes);
  end_file(bytes);
}

// One byte or a few, at `at` < bytes.size(), made another one, removed or added; or the end moved.
inline void change(std::string& bytes, std::size_t at, std::mt19937& random) {
  switch (random() % 6) {
    case 0:
      bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      break;
    case 2:
      bytes[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0x7f);
      break;
    case 3:
      bytes.resize(random() % (bytes.size() + 64));
      break;
    case 4:
      bytes.erase(at, 1 + random() % 9);
      break;
    default:
      bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
      break;
  }
}

// A copy with 1 to 6 changes. Half of them hit the first `header` bytes, where the decisions are made.
inline std::string mutated(const std::string& whole, std::size_t header, std::mt19937& random) {
  std::string bytes = whole;
  for (auto left = 1 + random() % 6; left > 0 && !bytes.empty(); --left) {
    const std::size_t range = random() % 2 == 0 ? std::min(bytes.size(), header) : bytes.size();
    change(bytes, random() % range, random);
  }
  return bytes;
}

}  // namespace tulle::testing_data
