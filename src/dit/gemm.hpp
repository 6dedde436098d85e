// Linear layers on the CPU: out = activation(in W^T + bias) by oneDNN.
//
// Weights are packed once, in the layout that oneDNN prefers. Rows are computed in tiles of a fixed count, each tile by
// one thread, so that a row's result depends neither on the number of threads nor on how many other rows there are.
// Thread safety: run() may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

enum class Activation : std::uint8_t { kNone, kGeluTanh, kSilu };

struct LinearSpec {
  std::int64_t outputs = 0, inputs = 0;
  DType in = DType::kF32, out = DType::kF32;  // in: f32 or bf16, weights are held alike; out: f32 or bf16
  Activation activation = Activation::kNone;
  std::int64_t tile = 64;  // rows computed together; fewer rows cost as much as a whole tile
};

class Linear {
 public:
  Linear();  // holds nothing; only to be assigned to
  // weight [outputs, inputs] row-major, bias [outputs]. bf16 rounds the weights to nearest even.
  // Throws Error(kInvalidArgument) for sizes that do not fit and Error(kUnsupported) when oneDNN refuses.
  Linear(const LinearSpec& spec, std::span<const float> weight, std::span<const float> bias);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  const LinearSpec& spec() const;
  // in [rows, inputs], out [rows, outputs], both packed and of the spec's types; they may not overlap.
  void run(const void* in, std::int64_t rows, void* out, const Threads& threads) const;
  std::int64_t weight_bytes() const;

  // What multiplies: "oneDNN brgemm:avx2, f32", and why it is not bf16 when bf16 was asked for ("" otherwise).
  std::string route() const;
  std::string route_reason() const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tulle
