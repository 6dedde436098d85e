#include "mask/binary.hpp"

#include <cstring>

#include "base/hash.hpp"

namespace tulle {

std::string begin_file(const BinaryKind& kind) {
  std::string out(kind.magic);
  put(out, kind.version);
  return out;
}

void end_file(std::string& out) { put(out, hash_bytes(std::as_bytes(std::span(out)))); }

Problem open_file(const BinaryKind& kind, std::span<const std::byte> bytes, const std::string& where,
                  std::span<const std::byte>& body) {
  if (bytes.size() < kind.header_bytes + kChecksumBytes) {
    return bad_file(kind, where, "{} bytes are fewer than a {} has", bytes.size(), kind.noun);
  }
  BinaryReader in(bytes.first(bytes.size() - kChecksumBytes));
  if (std::memcmp(in.take_bytes(kind.magic.size()).data(), kind.magic.data(), kind.magic.size()) != 0) {
    return bad_file(kind, where, "this is no {} of Tulle", kind.noun);
  }
  const auto version = in.take<std::uint32_t>();
  if (version != kind.version) return bad_file(kind, where, "format version {} is not {}", version, kind.version);
  const auto stated = BinaryReader(bytes.last(kChecksumBytes)).take<std::uint64_t>();
  if (stated != hash_bytes(bytes.first(bytes.size() - kChecksumBytes))) {
    return bad_file(kind, where, "the checksum does not fit, bytes were changed");
  }
  body = in.rest();
  return std::nullopt;
}

void put_partition(std::string& out, const BlockPartition& p) {
  put(out, p.sequence.grid.frames);
  put(out, p.sequence.grid.height);
  put(out, p.sequence.grid.width);
  put(out, static_cast<std::uint32_t>(p.sequence.placement));
  put(out, p.sequence.text_tokens);
  put(out, p.block);
  put(out, std::uint32_t{0});
}

Problem take_partition(BinaryReader& in, BlockPartition& p, const BinaryKind& kind, const std::string& where) {
  p.sequence.grid.frames = in.take<std::int32_t>();
  p.sequence.grid.height = in.take<std::int32_t>();
  p.sequence.grid.width = in.take<std::int32_t>();
  const auto placement = in.take<std::uint32_t>();
  p.sequence.text_tokens = in.take<std::int64_t>();
  p.block = in.take<std::int32_t>();
  const auto reserved = in.take<std::uint32_t>();
  if (placement > 1) return bad_file(kind, where, "text placement {} is neither 0 (prefix) nor 1 (suffix)", placement);
  if (reserved != 0) return bad_file(kind, where, "a reserved field holds {} instead of 0", reserved);
  p.sequence.placement = static_cast<TextPlacement>(placement);
  try {
    check_partition(p);
  } catch (const Error& e) {
    return bad_file(kind, where, "{}", e.what());
  }
  return std::nullopt;
}

Problem take_order(BinaryReader& in, OrderKind& order, const BinaryKind& kind, const std::string& where) {
  const auto number = in.take<std::uint32_t>();
  if (number >= all_orders().size()) return bad_file(kind, where, "there is no token order number {}", number);
  order = static_cast<OrderKind>(number);
  return std::nullopt;
}

}  // namespace tulle
