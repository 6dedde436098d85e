// Vectors of the instruction set at hand and 2^x on them; compiled once for each set, so it has no include guard of the
// usual kind.
#if defined(TULLE_ATTEND_EXP2_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TULLE_ATTEND_EXP2_INL
#undef TULLE_ATTEND_EXP2_INL
#else
#define TULLE_ATTEND_EXP2_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tulle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 lanes are the widest that panels of 32 keys allow.
using D = hn::CappedTag<float, 16>;
using DI = hn::Rebind<std::int32_t, D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

// 2^x for x <= 0. Adding 1.5 * 2^23 + 127 leaves round(x) + 127 in the low bits: the exponent of the result.
// The polynomial is the minimax one of degree 5 for 2^f on [-1/2, 1/2] with p(0) = 1 (relative error 1.1e-7).
HWY_INLINE V exp2_vector(V x) {
  const D d;
  const auto magic = hn::Set(d, 12583039.0f);
  const auto lowest = hn::Set(d, -126.0f);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);  // not Max, which loses a NaN on some sets
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  auto p = hn::MulAdd(hn::Set(d, 0.0013264728477224708f), f, hn::Set(d, 0.009671513922512531f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(DI(), shifted))));
}

inline void exp2_array(const float* x, float* y, std::int64_t n) {
  const D d;
  HWY_ALIGN float lane[kLanes] = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t part = std::min<std::int64_t>(kLanes, n - i);
    std::copy_n(x + i, part, lane);
    hn::Store(exp2_vector(hn::Load(d, lane)), d, lane);
    std::copy_n(lane, part, y + i);
  }
}

}  // namespace tulle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
