// The two exchanges of Ulysses (Jacobs et al., "DeepSpeed Ulysses", 2023): all heads of own tokens become own heads of
// all tokens, and back.
//
// Full-sequence buffers are [tokens][batch][part][own heads][head_dim], part being q and k, so that what a peer sends
// is one contiguous run of tokens: messages land where attention reads them and O leaves from where attention wrote it.
// Only the side that holds all heads is packed and unpacked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tulle/fabric.hpp"
#include "tulle/plan.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// Buffers of one rank; they grow at first use and are reused. Not thread-safe.
class UlyssesExchange {
 public:
  UlyssesExchange(const Plan& plan, Fabric& fabric, const Threads& threads, std::int64_t batch, std::int64_t head_dim);

  // Local views are [batch, own tokens, all heads, head_dim]. Collective. `phase` is as for Fabric.
  void send_qk(ConstTensorView q, ConstTensorView k, const char* phase);
  void send_v(ConstTensorView v, const char* phase);
  // Sends what out() holds back to the tokens' owners.
  void return_out(TensorView local, const char* phase);

  // [batch, all tokens, own heads, head_dim]; valid after the send of the same name, out() after send_v.
  ConstTensorView q() const;
  ConstTensorView k() const;
  ConstTensorView v() const;
  TensorView out();

 private:
  std::int64_t row_bytes(std::int64_t heads, std::int64_t parts) const;
  std::byte* message(std::size_t peer, std::int64_t parts);
  void size_buffers(DType dtype);
  std::span<std::byte> message_of(std::size_t rank, std::int64_t parts);
  std::span<std::byte> tokens_of(std::size_t rank, Buffer<std::byte>& full, std::int64_t parts) const;
  template <class Body>
  void for_pieces(std::int64_t parts, std::byte* own, const Body& body);
  void send_parts(std::span<const ConstTensorView> parts, Buffer<std::byte>& full, const char* phase);
  std::array<std::int64_t, 4> full_shape() const;
  std::array<std::int64_t, 4> full_stride(std::int64_t parts) const;

  const Plan& plan_;
  Fabric& fabric_;
  const Threads& threads_;
  std::size_t rank_;
  Range tokens_, heads_;  // own
  std::int64_t batch_, head_dim_;
  DType dtype_ = DType::kF32;
  Buffer<std::byte> messages_, qk_, v_, out_;
  std::vector<std::span<const std::byte>> send_;
  std::vector<std::span<std::byte>> recv_;
};

}  // namespace tulle
