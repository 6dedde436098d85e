#include "run/exchange.hpp"

#include <cstring>

namespace tulle {
namespace {

constexpr std::int64_t kGrain = 128;  // tokens that one thread packs at a time

// Heads [heads) of one token of one sample, between a view and packed bytes. Views whose heads lie side by side are one
// copy.
template <class VoidT, class Copy>
void for_head_runs(const BasicTensorView<VoidT>& view, std::int64_t b, std::int64_t token, Range heads,
                   const Copy& copy) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype));
  const std::int64_t run = view.head_dim() * element;
  const std::int64_t base = (b * view.stride[0] + token * view.stride[1] + heads.begin * view.stride[2]) * element;
  if (view.stride[2] == view.head_dim()) return copy(base, std::int64_t{0}, run * heads.size());
  for (std::int64_t h = 0; h < heads.size(); ++h) copy(base + h * view.stride[2] * element, h * run, run);
}

void pack_heads(const ConstTensorView& view, std::int64_t b, std::int64_t token, Range heads, std::byte* packed) {
  const auto* from = static_cast<const std::byte*>(view.data);
  for_head_runs(view, b, token, heads, [&](std::int64_t at, std::int64_t packed_at, std::int64_t bytes) {
    std::memcpy(packed + packed_at, from + at, static_cast<std::size_t>(bytes));
  });
}

void unpack_heads(const std::byte* packed, const TensorView& view, std::int64_t b, std::int64_t token, Range heads) {
  auto* to = static_cast<std::byte*>(view.data);
  for_head_runs(view, b, token, heads, [&](std::int64_t at, std::int64_t packed_at, std::int64_t bytes) {
    std::memcpy(to + at, packed + packed_at, static_cast<std::size_t>(bytes));
  });
}

void grow(Buffer<std::byte>& buffer, std::int64_t bytes) {
  if (static_cast<std::int64_t>(buffer.size()) < bytes) buffer = Buffer<std::byte>(static_cast<std::size_t>(bytes));
}

}  // namespace

UlyssesExchange::UlyssesExchange(const Plan& plan, Fabric& fabric, const Threads& threads, std::int64_t batch,
                                 std::int64_t head_dim)
    : plan_(plan),
      fabric_(fabric),
      threads_(threads),
      rank_(static_cast<std::size_t>(fabric.rank())),
      tokens_(plan.tokens[rank_]),
      heads_(plan.heads[rank_]),
      batch_(batch),
      head_dim_(head_dim),
      send_(plan.tokens.size()),
      recv_(plan.tokens.size()) {}

// Bytes of one token of all samples.
std::int64_t UlyssesExchange::row_bytes(std::int64_t heads, std::int64_t parts) const {
  return batch_ * parts * heads * head_dim_ * static_cast<std::int64_t>(size_of(dtype_));
}

// Where the bytes of own tokens and the peer's heads stand; the own heads have no message.
std::byte* UlyssesExchange::message(std::size_t peer, std::int64_t parts) {
  const std::int64_t heads_before = plan_.heads[peer].begin - (peer > rank_ ? heads_.size() : 0);
  return messages_.data() + tokens_.size() * row_bytes(heads_before, parts);
}

void UlyssesExchange::size_buffers(DType dtype) {
  dtype_ = dtype;
  const std::int64_t all_tokens = plan_.tokens.back().end, all_heads = plan_.heads.back().end;
  grow(messages_, tokens_.size() * row_bytes(all_heads - heads_.size(), 2));
  grow(qk_, all_tokens * row_bytes(heads_.size(), 2));
  grow(v_, all_tokens * row_bytes(heads_.size(), 1));
  grow(out_, all_tokens * row_bytes(heads_.size(), 1));
}

// Calls body(token, i, heads, packed) for every piece of own tokens: i = sample * parts + part, heads are one rank's,
// packed is where the piece stands in that rank's message or, for the own heads, behind `own`.
template <class Body>
void UlyssesExchange::for_pieces(std::int64_t parts, std::byte* own, const Body& body) {
  threads_.parallel_ranges(tokens_.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t p = 0; p < send_.size(); ++p) {
      const Range heads = plan_.heads[p];
      const std::int64_t pieces = batch_ * parts, row = row_bytes(heads.size(), parts), size = row / pieces;
      std::byte* at = (p == rank_ ? own : message(p, parts)) + begin * row;
      for (std::int64_t i = begin * pieces; i < end * pieces; ++i, at += size) body(i / pieces, i % pieces, heads, at);
    }
  });
}

// The part of a full buffer that holds a rank's tokens; nothing for the own rank, whose part is not sent.
std::span<std::byte> UlyssesExchange::tokens_of(std::size_t rank, Buffer<std::byte>& full, std::int64_t parts) const {
  if (rank == rank_) return {};
  const std::int64_t row = row_bytes(heads_.size(), parts);
  const Range& tokens = plan_.tokens[rank];
  return full.span().subspan(static_cast<std::size_t>(tokens.begin * row),
                             static_cast<std::size_t>(tokens.size() * row));
}

std::span<std::byte> UlyssesExchange::message_of(std::size_t rank, std::int64_t parts) {
  if (rank == rank_) return {};
  const std::int64_t bytes = tokens_.size() * row_bytes(plan_.heads[rank].size(), parts);
  return {message(rank, parts), static_cast<std::size_t>(bytes)};
}

// Own heads of own tokens are packed straight into the full buffer; the fabric moves the rest.
void UlyssesExchange::send_parts(std::span<const ConstTensorView> parts, Buffer<std::byte>& full, const char* phase) {
  const auto count = static_cast<std::int64_t>(parts.size());
  for (std::size_t p = 0; p < send_.size(); ++p) {
    send_[p] = message_of(p, count);
    recv_[p] = tokens_of(p, full, count);
  }
  std::byte* own = full.data() + tokens_.begin * row_bytes(heads_.size(), count);
  for_pieces(count, own, [&](std::int64_t token, std::int64_t i, Range heads, std::byte* packed) {
    pack_heads(parts[static_cast<std::size_t>(i % count)], i / count, token, heads, packed);
  });
  fabric_.all_to_all(send_, recv_, phase);
}

void UlyssesExchange::send_qk(ConstTensorView q, ConstTensorView k, const char* phase) {
  size_buffers(q.dtype);
  const ConstTensorView parts[] = {q, k};
  send_parts(parts, qk_, phase);
}

void UlyssesExchange::send_v(ConstTensorView v, const char* phase) { send_parts({&v, 1}, v_, phase); }

void UlyssesExchange::return_out(TensorView local, const char* phase) {
  for (std::size_t p = 0; p < send_.size(); ++p) {
    send_[p] = tokens_of(p, out_, 1);
    recv_[p] = message_of(p, 1);
  }
  fabric_.all_to_all(send_, recv_, phase);
  std::byte* own = out_.data() + tokens_.begin * row_bytes(heads_.size(), 1);
  for_pieces(1, own, [&](std::int64_t token, std::int64_t sample, Range heads, const std::byte* packed) {
    unpack_heads(packed, local, sample, token, heads);
  });
}

std::array<std::int64_t, 4> UlyssesExchange::full_shape() const {
  return {batch_, plan_.tokens.back().end, heads_.size(), head_dim_};
}

std::array<std::int64_t, 4> UlyssesExchange::full_stride(std::int64_t parts) const {
  const std::int64_t sample = parts * heads_.size() * head_dim_;
  return {sample, batch_ * sample, head_dim_, 1};
}

ConstTensorView UlyssesExchange::q() const { return {qk_.data(), dtype_, full_shape(), full_stride(2)}; }

ConstTensorView UlyssesExchange::k() const {
  const std::int64_t offset = heads_.size() * head_dim_ * static_cast<std::int64_t>(size_of(dtype_));
  return {qk_.data() + offset, dtype_, full_shape(), full_stride(2)};
}

ConstTensorView UlyssesExchange::v() const { return {v_.data(), dtype_, full_shape(), full_stride(1)}; }

TensorView UlyssesExchange::out() { return {out_.data(), dtype_, full_shape(), full_stride(1)}; }

}  // namespace tulle
