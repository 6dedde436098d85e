#include "dit/elementwise.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dit/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After highway.h; it has its own guard per target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace tulle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// Loads and stores of f32 and bf16 alike.
HWY_INLINE V load(F d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE void store(V v, F d, float* p) { hn::StoreU(v, d, p); }

HWY_INLINE V load(F d, const Bf16* p) {
  const hn::RebindToUnsigned<F> du;
  const hn::Rebind<std::uint16_t, F> dh;
  const auto bits = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
HWY_INLINE void store(V v, F d, Bf16* p) {
  const hn::RebindToUnsigned<F> du;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<std::uint16_t, F> dh;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  // A NaN's rounding could carry into its sign; it keeps its upper half, made quiet, instead.
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, chosen)), dh, reinterpret_cast<std::uint16_t*>(p));
  (void)d;
}

// Calls wide(i) for whole vectors and narrow(i) for the elements left.
template <class Wide, class Narrow>
HWY_INLINE void sweep(std::int64_t n, Wide&& wide, Narrow&& narrow) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) wide(i);
  for (; i < n; ++i) narrow(i);
}

template <class T>
HWY_INLINE float sum_of_squares(const T* row, std::int64_t n, float centre) {
  const F d;
  V sum = hn::Zero(d);
  const V c = hn::Set(d, centre);
  float rest = 0;
  sweep(
      n,
      [&](std::int64_t i) {
        const V v = hn::Sub(load(d, row + i), c);
        sum = hn::MulAdd(v, v, sum);
      },
      [&](std::int64_t i) {
        const float v = to_f32(row[i]) - centre;
        rest += v * v;
      });
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

// x += gate * update; returns the sum of x.
HWY_INLINE float add_update(float* x, const float* update, const float* gate, std::int64_t n) {
  const F d;
  V sum = hn::Zero(d);
  float rest = 0;
  sweep(
      n,
      [&](std::int64_t i) {
        V v = hn::LoadU(d, x + i);
        if (update != nullptr) {
          const V u = hn::LoadU(d, update + i);
          v = gate != nullptr ? hn::MulAdd(u, hn::LoadU(d, gate + i), v) : hn::Add(v, u);
          hn::StoreU(v, d, x + i);
        }
        sum = hn::Add(sum, v);
      },
      [&](std::int64_t i) {
        if (update != nullptr) x[i] += update[i] * (gate != nullptr ? gate[i] : 1.f);
        rest += x[i];
      });
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

// out = (x - centre) * factor * scale + shift.
template <class T>
HWY_INLINE void write_row(const float* x, float centre, float factor, const float* scale, const float* shift, T* out,
                          std::int64_t n) {
  const F d;
  const V c = hn::Set(d, centre), f = hn::Set(d, factor), one = hn::Set(d, 1.f), zero = hn::Zero(d);
  sweep(
      n,
      [&](std::int64_t i) {
        const V v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), c), f);
        const V s = scale != nullptr ? hn::LoadU(d, scale + i) : one;
        store(hn::MulAdd(v, s, shift != nullptr ? hn::LoadU(d, shift + i) : zero), d, out + i);
      },
      [&](std::int64_t i) {
        const float v = (x[i] - centre) * factor * (scale != nullptr ? scale[i] : 1.f);
        out[i] = from_f32<T>(v + (shift != nullptr ? shift[i] : 0.f));
      });
}

template <class T>
void residual_norm_row(const ResidualNorm& p, std::int64_t row) {
  const std::int64_t sample = row / p.rows_per_sample, n = p.dim;
  float* x = p.x + row * n;
  const float* update = p.update != nullptr ? p.update + row * n : nullptr;
  const float* gate = p.gate != nullptr ? p.gate + sample * p.gate_stride : nullptr;
  const float sum = add_update(x, update, gate, n);
  if (p.out == nullptr) return;
  const float* scale = p.scale != nullptr ? p.scale + sample * p.scale_stride : nullptr;
  const float* shift = p.shift != nullptr ? p.shift + sample * p.scale_stride : nullptr;
  float centre = 0, factor = 1;
  if (p.norm == RowNorm::kLayer) {
    centre = sum / static_cast<float>(n);
    factor = 1.f / std::sqrt(sum_of_squares(x, n, centre) / static_cast<float>(n) + p.eps);
  }
  write_row(x, centre, factor, scale, shift, static_cast<T*>(p.out) + row * n, n);
}

void residual_norm_rows(const ResidualNorm& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (p.out_type == DType::kBf16)
      residual_norm_row<Bf16>(p, row);
    else
      residual_norm_row<float>(p, row);
  }
}

template <class T>
void rms_row(T* row, std::int64_t n, const float* weight, float eps) {
  const F d;
  const float factor = 1.f / std::sqrt(sum_of_squares(row, n, 0.f) / static_cast<float>(n) + eps);
  const V f = hn::Set(d, factor);
  sweep(
      n, [&](std::int64_t i) { store(hn::Mul(hn::Mul(load(d, row + i), f), hn::LoadU(d, weight + i)), d, row + i); },
      [&](std::int64_t i) { row[i] = from_f32<T>(to_f32(row[i]) * factor * weight[i]); });
}

void rms_row_f32(float* row, std::int64_t n, const float* weight, float eps) { rms_row(row, n, weight, eps); }
void rms_row_bf16(Bf16* row, std::int64_t n, const float* weight, float eps) { rms_row(row, n, weight, eps); }

// Below exp(-kMostNegated) the result is 0; it also keeps the exponential finite.
constexpr float kMostNegated = 87.f;
constexpr float kGeluSlope = -1.5957691216057308f;  // -2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

void gelu(float* x, std::int64_t n) {
  const F d;
  const auto whole = [&](V v) {
    const V cubed = hn::MulAdd(hn::Mul(hn::Mul(v, v), v), hn::Set(d, kGeluCubic), v);
    const V limit = hn::Set(d, kMostNegated), power = hn::Mul(cubed, hn::Set(d, kGeluSlope));
    const V value = hn::Div(v, hn::Add(hn::Set(d, 1.f), hn::Exp(d, hn::Min(power, limit))));
    // A NaN is not less than the limit, and stays a NaN.
    return hn::IfThenElse(hn::Lt(power, limit), value, hn::Mul(v, hn::Zero(d)));
  };
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(whole(hn::LoadU(d, x + i)), d, x + i);
  if (i == n) return;
  // The same instructions for what is left, so that a value's result does not depend on where it stands.
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy(x + i, x + n, rest);
  hn::Store(whole(hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (n - i), x + i);
}

void to_bf16(const float* from, Bf16* to, std::int64_t n) {
  const F d;
  sweep(
      n, [&](std::int64_t i) { store(hn::LoadU(d, from + i), d, to + i); },
      [&](std::int64_t i) { to[i] = from_f32<Bf16>(from[i]); });
}

bool finite(const float* values, std::int64_t n) {
  const F d;
  V sum = hn::Zero(d);  // v * 0 is 0 for finite v and NaN otherwise, and NaN stays
  float rest = 0;
  sweep(
      n, [&](std::int64_t i) { sum = hn::MulAdd(hn::LoadU(d, values + i), hn::Zero(d), sum); },
      [&](std::int64_t i) { rest += values[i] * 0.f; });
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest == 0.f;
}

}  // namespace HWY_NAMESPACE
}  // namespace tulle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tulle {
namespace {

HWY_EXPORT(residual_norm_rows);
HWY_EXPORT(rms_row_f32);
HWY_EXPORT(rms_row_bf16);
HWY_EXPORT(gelu);
HWY_EXPORT(to_bf16);
HWY_EXPORT(finite);

constexpr std::int64_t kRowsPerTask = 64, kValuesPerTask = 1 << 16;

}  // namespace

void residual_norm(const ResidualNorm& pass, const Threads& threads) {
  const auto run = HWY_DYNAMIC_DISPATCH(residual_norm_rows);
  threads.parallel_ranges(pass.rows, kRowsPerTask,
                          [&](std::int64_t begin, std::int64_t end) { run(pass, begin, end); });
}

void rms_norm(void* data, DType type, std::int64_t rows, std::int64_t dim, std::int64_t stride, const float* weight,
              float eps, const Threads& threads) {
  const auto f32 = HWY_DYNAMIC_DISPATCH(rms_row_f32);
  const auto bf16 = HWY_DYNAMIC_DISPATCH(rms_row_bf16);
  threads.parallel_ranges(rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (type == DType::kBf16)
        bf16(static_cast<Bf16*>(data) + row * stride, dim, weight, eps);
      else
        f32(static_cast<float*>(data) + row * stride, dim, weight, eps);
    }
  });
}

void gelu_tanh(std::span<float> values) {
  HWY_DYNAMIC_DISPATCH(gelu)(values.data(), static_cast<std::int64_t>(values.size()));
}

void convert_to(std::span<const float> from, void* to, DType type) {
  if (type == DType::kBf16) {
    HWY_DYNAMIC_DISPATCH(to_bf16)(from.data(), static_cast<Bf16*>(to), static_cast<std::int64_t>(from.size()));
  } else {
    std::copy(from.begin(), from.end(), static_cast<float*>(to));
  }
}

bool all_finite(std::span<const float> values, const Threads& threads) {
  const auto check = HWY_DYNAMIC_DISPATCH(finite);
  std::atomic<bool> good{true};
  threads.parallel_ranges(static_cast<std::int64_t>(values.size()), kValuesPerTask,
                          [&](std::int64_t begin, std::int64_t end) {
                            if (!check(values.data() + begin, end - begin)) good = false;
                          });
  return good;
}

}  // namespace tulle
#endif  // HWY_ONCE
