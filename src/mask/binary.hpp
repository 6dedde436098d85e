// Bytes of our own binary files (masks, profiles): little-endian numbers, a magic word and version in front, the
// geometry as partitions, an XXH3 checksum at the end. Readers never trust a number: who takes checks first.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/fail.hpp"
#include "tulle/grid.hpp"

namespace tulle {

struct BinaryKind {
  std::string_view magic;  // 8 characters
  std::uint32_t version;
  std::size_t header_bytes;  // a file is at least this and the checksum
  const char* noun;          // "mask": what errors call it
};

constexpr std::size_t kChecksumBytes = 8;

template <class T>
void put(std::string& out, T value) {
  if constexpr (std::is_same_v<T, float>) {
    put(out, std::bit_cast<std::uint32_t>(value));
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
  }
}

// Takes little-endian numbers from the front; the caller has checked that there are bytes enough.
class BinaryReader {
 public:
  explicit BinaryReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(take<std::uint32_t>());
    } else {
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
      rest_ = rest_.subspan(sizeof(T));
      return static_cast<T>(value);
    }
  }

  std::span<const std::byte> take_bytes(std::size_t count) {
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

using Problem = std::optional<Error>;

// What is wrong with a file, as Error(kBadFile).
template <class... Args>
Problem bad_file(const BinaryKind& kind, const std::string& where, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadFile, "{}: {}; the {} must be written again", where,
                    fmt::format(format, std::forward<Args>(args)...), kind.noun);
}

// Magic word and version.
std::string begin_file(const BinaryKind& kind);
// Appends the checksum of everything before it.
void end_file(std::string& out);
// Length, magic word, version and checksum. When there is no problem, `body` is what stands between version and
// checksum.
Problem open_file(const BinaryKind& kind, std::span<const std::byte> bytes, const std::string& where,
                  std::span<const std::byte>& body);

// 32 bytes.
void put_partition(std::string& out, const BlockPartition& partition);
Problem take_partition(BinaryReader& in, BlockPartition& partition, const BinaryKind& kind, const std::string& where);
// 4 bytes: the number of a token order.
Problem take_order(BinaryReader& in, OrderKind& order, const BinaryKind& kind, const std::string& where);

}  // namespace tulle
