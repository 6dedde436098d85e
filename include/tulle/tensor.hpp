// Tensors: strided views over memory that somebody else owns, and one owning buffer.
//
// Attention tensors are [batch, tokens, heads, head_dim] ("BSHD"): any stride but the last, which is 1.
// Strides count elements, not bytes, and are 64-bit everywhere.
// Thread safety: views are plain values; concurrent reads of the memory behind them are safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace tulle {

enum class DType : std::uint8_t { kF32, kBf16, kF16 };

constexpr std::size_t size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
const char* to_string(DType dtype);

// Storage types for 16-bit floats; arithmetic happens in f32 (see base/half.hpp for conversions).
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<U, Bf16>)
    return DType::kBf16;
  else {
    static_assert(std::is_same_v<U, F16>, "tensors hold f32, bf16 or f16");
    return DType::kF16;
  }
}

// A view of [batch, tokens, heads, head_dim]. VoidT is `void` or `const void`.
template <class VoidT>
struct BasicTensorView {
  VoidT* data = nullptr;
  DType dtype = DType::kF32;
  std::array<std::int64_t, 4> shape{};   // batch, tokens, heads, head_dim
  std::array<std::int64_t, 4> stride{};  // in elements; stride[3] == 1

  std::int64_t batch() const { return shape[0]; }
  std::int64_t tokens() const { return shape[1]; }
  std::int64_t heads() const { return shape[2]; }
  std::int64_t head_dim() const { return shape[3]; }
  std::int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  // Pointer to the head_dim contiguous elements of (b, token, head). Requires T to match dtype.
  template <class T>
  auto row(std::int64_t b, std::int64_t token, std::int64_t head) const {
    using P = std::conditional_t<std::is_const_v<VoidT>, const T, T>;
    return static_cast<P*>(data) + b * stride[0] + token * stride[1] + head * stride[2];
  }

  operator BasicTensorView<const void>() const { return {data, dtype, shape, stride}; }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Strides of a dense [batch, tokens, heads, head_dim] layout.
constexpr std::array<std::int64_t, 4> packed_strides(const std::array<std::int64_t, 4>& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

template <class T>
auto view_of(T* data, const std::array<std::int64_t, 4>& shape) {
  using VoidT = std::conditional_t<std::is_const_v<T>, const void, void>;
  return BasicTensorView<VoidT>{data, dtype_of<T>(), shape, packed_strides(shape)};
}

// An owning, 64-byte aligned, uninitialised array of T (trivial types). Move-only.
// Throws Error(kOutOfMemory) naming the size when the allocation fails.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count);
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::span<const T> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* p) const;
  };
  std::unique_ptr<T[], Free> data_;
  std::size_t size_ = 0;
};

// Aligned allocation behind Buffer; throws Error(kOutOfMemory).
void* allocate_aligned(std::size_t count, std::size_t element_bytes);
void free_aligned(void* p);

template <class T>
Buffer<T>::Buffer(std::size_t count) : data_(static_cast<T*>(allocate_aligned(count, sizeof(T)))), size_(count) {
  static_assert(std::is_trivially_destructible_v<T>);
}

template <class T>
void Buffer<T>::Free::operator()(T* p) const {
  free_aligned(p);
}

}  // namespace tulle
