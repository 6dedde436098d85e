// The binary form of a mask; docs/formats/mask.md describes it byte by byte.
#include "base/checked.hpp"
#include "base/fail.hpp"
#include "mask/binary.hpp"
#include "tulle/mask.hpp"

namespace tulle {
namespace {

constexpr BinaryKind kMaskKind = {"TULLEMSK", 1, 104, "mask"};

struct Header {
  std::int64_t batch = 0, heads = 0, words = 0;
  BlockPartition q, k;
  OrderKind order = OrderKind::kRaster;
};

Problem take_header(BinaryReader& in, Header& h, const std::string& where) {
  if (Problem p = take_order(in, h.order, kMaskKind, where)) return p;
  h.batch = in.take<std::int64_t>();
  h.heads = in.take<std::int64_t>();
  if (Problem p = take_partition(in, h.q, kMaskKind, where)) return p;
  if (Problem p = take_partition(in, h.k, kMaskKind, where)) return p;
  h.words = in.take<std::int64_t>();
  if (h.batch < 1 || h.heads < 1) {
    return bad_file(kMaskKind, where, "{} samples and {} heads are not both >= 1", h.batch, h.heads);
  }
  return std::nullopt;
}

// The word count that the geometry asks for, stated and present.
Problem check_size(const Header& h, std::size_t payload_bytes, const std::string& where) {
  const auto words = checked_product({h.batch, h.heads, h.q.count(), ceil_div(h.k.count(), 32)});
  if (!words || *words != h.words) {
    return bad_file(kMaskKind, where, "{} words do not fit the stated geometry", h.words);
  }
  if (payload_bytes % 4 != 0 || static_cast<std::size_t>(h.words) != payload_bytes / 4) {
    return bad_file(kMaskKind, where, "{} words are stated but {} bytes are there", h.words, payload_bytes);
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
    if (words[w] >> used != 0) return bad_file(kMaskKind, where, "word {} has bits behind the last key block", w);
  }
  return std::nullopt;
}

}  // namespace

std::string serialize(const BlockMask& mask) {
  require(mask.k_blocks() > 0, "an empty mask has no geometry to write; choose blocks first");
  std::string out = begin_file(kMaskKind);
  out.reserve(kMaskKind.header_bytes + 4 * mask.words().size() + kChecksumBytes);
  put(out, static_cast<std::uint32_t>(mask.order()));
  put(out, mask.batch());
  put(out, mask.heads());
  put_partition(out, mask.q());
  put_partition(out, mask.k());
  put(out, static_cast<std::int64_t>(mask.words().size()));
  for (std::uint32_t word : mask.words()) put(out, word);
  end_file(out);
  return out;
}

Expected<BlockMask> parse_mask(std::span<const std::byte> bytes, const std::string& where) {
  std::span<const std::byte> body;
  if (Problem p = open_file(kMaskKind, bytes, where, body)) return *p;
  BinaryReader in(body);
  Header h;
  if (Problem p = take_header(in, h, where)) return *p;
  if (Problem p = check_size(h, in.rest().size(), where)) return *p;
  BlockMask mask(h.batch, h.heads, h.q, h.k, h.order);
  for (std::uint32_t& word : mask.words()) word = in.take<std::uint32_t>();
  if (Problem p = check_padding(mask, where)) return *p;
  return mask;
}

}  // namespace tulle
