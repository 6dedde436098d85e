// A packed [batch, tokens, heads, head_dim] tensor of its own.
#pragma once

#include <cstddef>

#include "tulle/tensor.hpp"

namespace tulle {

struct Packed {
  explicit Packed(const ConstTensorView& like)
      : bytes(static_cast<std::size_t>(like.elements()) * size_of(like.dtype)),
        view{bytes.data(), like.dtype, like.shape, packed_strides(like.shape)} {}
  Buffer<std::byte> bytes;
  TensorView view;
};

}  // namespace tulle
