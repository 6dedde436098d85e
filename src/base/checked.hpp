// Checked arithmetic for every number that comes from a file, a flag or another rank.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace tulle {

// Sum or product, or nothing on overflow of T.
template <class T>
std::optional<T> checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

template <class T>
std::optional<T> checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Product of all factors, or nothing on overflow or a negative factor.
inline std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (std::int64_t f : factors) {
    if (f < 0 || __builtin_mul_overflow(product, f, &product)) return std::nullopt;
  }
  return product;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tulle
