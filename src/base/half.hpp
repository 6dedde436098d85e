// Conversions between f32 and the 16-bit floats, round to nearest even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "tulle/tensor.hpp"

namespace tulle {

inline float to_f32(float x) { return x; }

inline float to_f32(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline float to_f32(F16 h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(h.bits & 0x7fffu);
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // 2^112 moves the half exponent into place and makes subnormals exact.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

template <class T>
T from_f32(float x);

template <>
inline float from_f32<float>(float x) {
  return x;
}

template <>
inline Bf16 from_f32<Bf16>(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

template <>
inline F16 from_f32<F16>(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t rest = u & 0x7fffffffu;
  if (rest > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (rest >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (rest < 0x38800000u) {  // subnormal half: adding 0.5 rounds at the right bit
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace tulle
