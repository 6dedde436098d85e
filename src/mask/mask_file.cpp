// The binary form of a mask; docs/formats/mask.md describes it byte by byte.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash.hpp"
#include "tulle/mask.hpp"

namespace tulle {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'U', 'L', 'L', 'E', 'M', 'S', 'K'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 104;
constexpr std::size_t kChecksumBytes = 8;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

// Reads little-endian integers; the caller has checked that there are bytes enough.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    return static_cast<T>(value);
  }

  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

void put_partition(std::string& out, const BlockPartition& p) {
  put(out, p.sequence.grid.frames);
  put(out, p.sequence.grid.height);
  put(out, p.sequence.grid.width);
  put(out, static_cast<std::uint32_t>(p.sequence.placement));
  put(out, p.sequence.text_tokens);
  put(out, p.block);
  put(out, std::uint32_t{0});
}

struct Header {
  std::int64_t batch = 0, heads = 0, words = 0;
  BlockPartition q, k;
  OrderKind order = OrderKind::kRaster;
};

using Problem = std::optional<Error>;

template <class... Args>
Problem bad(const std::string& where, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadFile, "{}: {}; the mask must be written again", where,
                    fmt::format(format, std::forward<Args>(args)...));
}

Problem take_partition(Reader& in, BlockPartition& p, const std::string& where) {
  p.sequence.grid.frames = in.take<std::int32_t>();
  p.sequence.grid.height = in.take<std::int32_t>();
  p.sequence.grid.width = in.take<std::int32_t>();
  const auto placement = in.take<std::uint32_t>();
  p.sequence.text_tokens = in.take<std::int64_t>();
  p.block = in.take<std::int32_t>();
  const auto reserved = in.take<std::uint32_t>();
  if (placement > 1) return bad(where, "text placement {} is neither 0 (prefix) nor 1 (suffix)", placement);
  if (reserved != 0) return bad(where, "a reserved field holds {} instead of 0", reserved);
  p.sequence.placement = static_cast<TextPlacement>(placement);
  try {
    check_partition(p);
  } catch (const Error& e) {
    return bad(where, "{}", e.what());
  }
  return std::nullopt;
}

Problem take_header(Reader& in, Header& h, const std::string& where) {
  const auto order = in.take<std::uint32_t>();
  h.batch = in.take<std::int64_t>();
  h.heads = in.take<std::int64_t>();
  if (Problem p = take_partition(in, h.q, where)) return p;
  if (Problem p = take_partition(in, h.k, where)) return p;
  h.words = in.take<std::int64_t>();
  if (order >= all_orders().size()) return bad(where, "there is no token order number {}", order);
  h.order = static_cast<OrderKind>(order);
  if (h.batch < 1 || h.heads < 1) return bad(where, "{} samples and {} heads are not both >= 1", h.batch, h.heads);
  return std::nullopt;
}

// The word count that the geometry asks for, stated and present.
Problem check_size(const Header& h, std::size_t payload_bytes, const std::string& where) {
  const auto words = checked_product({h.batch, h.heads, h.q.count(), ceil_div(h.k.count(), 32)});
  if (!words || *words != h.words) return bad(where, "{} words do not fit the stated geometry", h.words);
  if (payload_bytes % 4 != 0 || static_cast<std::size_t>(h.words) != payload_bytes / 4) {
    return bad(where, "{} words are stated but {} bytes are there", h.words, payload_bytes);
  }
  return std::nullopt;
}

// Bits behind the last key block of a row would be counted as kept blocks.
Problem check_padding(const BlockMask& mask, const std::string& where) {
  const std::int64_t used = mask.k_blocks() % 32;
  if (used == 0) return std::nullopt;
  const auto words = mask.words();
  const auto step = static_cast<std::size_t>(mask.words_per_row());
  for (std::size_t w = step - 1; w < words.size(); w += step) {
    if (words[w] >> used != 0) return bad(where, "word {} has bits behind the last key block", w);
  }
  return std::nullopt;
}

Problem check_frame(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    return bad(where, "{} bytes are fewer than a mask has", bytes.size());
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad(where, "this is no mask of Tulle");
  Reader version(bytes.subspan(kMagic.size()));
  const auto found = version.take<std::uint32_t>();
  if (found != kVersion) return bad(where, "format version {} is not {}", found, kVersion);
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  if (Reader(bytes.last(kChecksumBytes)).take<std::uint64_t>() != hash_bytes(body)) {
    return bad(where, "the checksum does not fit, bytes were changed");
  }
  return std::nullopt;
}

}  // namespace

std::string serialize(const BlockMask& mask) {
  require(mask.k_blocks() > 0, "an empty mask has no geometry to write; choose blocks first");
  std::string out(kMagic.begin(), kMagic.end());
  out.reserve(kHeaderBytes + 4 * mask.words().size() + kChecksumBytes);
  put(out, kVersion);
  put(out, static_cast<std::uint32_t>(mask.order()));
  put(out, mask.batch());
  put(out, mask.heads());
  put_partition(out, mask.q());
  put_partition(out, mask.k());
  put(out, static_cast<std::int64_t>(mask.words().size()));
  for (std::uint32_t word : mask.words()) put(out, word);
  put(out, hash_bytes(std::as_bytes(std::span(out))));
  return out;
}

Expected<BlockMask> parse_mask(std::span<const std::byte> bytes, const std::string& where) {
  if (Problem p = check_frame(bytes, where)) return *p;
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  Reader in(body.subspan(kMagic.size() + sizeof kVersion));
  Header h;
  if (Problem p = take_header(in, h, where)) return *p;
  if (Problem p = check_size(h, in.rest().size(), where)) return *p;
  BlockMask mask(h.batch, h.heads, h.q, h.k, h.order);
  for (std::uint32_t& word : mask.words()) word = in.take<std::uint32_t>();
  if (Problem p = check_padding(mask, where)) return *p;
  return mask;
}

}  // namespace tulle
