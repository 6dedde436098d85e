#include "grid/gilbert.hpp"

#include <algorithm>
#include <compare>
#include <cstdlib>

namespace tulle {
namespace {

struct Vec {
  std::int32_t x = 0, y = 0, f = 0;
};

Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.f + b.f}; }
Vec operator-(Vec a, Vec b) { return {a.x - b.x, a.y - b.y, a.f - b.f}; }
Vec operator-(Vec a) { return {-a.x, -a.y, -a.f}; }

// All vectors here are parallel to an axis, so length and unit vector are those of the one component.
std::int32_t length(Vec a) { return std::abs(a.x + a.y + a.f); }
std::int32_t sign(std::int32_t v) { return (v > 0) - (v < 0); }
Vec unit(Vec a) { return {sign(a.x), sign(a.y), sign(a.f)}; }

// How odd lengths are halved. Either way gives a curve; kToZero never jumps farther than 2, kDown (mirrored boxes get
// the larger half first) has up to a third fewer jumps on most grids but jumps of 4 on a few.
enum class Rounding { kToZero, kDown };

Vec halved(Vec a, Rounding rounding) {
  if (rounding == Rounding::kDown) return {a.x >> 1, a.y >> 1, a.f >> 1};
  return {a.x / 2, a.y / 2, a.f / 2};
}

// The last cell of a run along `a`, seen from its first cell.
Vec last(Vec a) { return a - unit(a); }

// A curve that enters the box at corner `at` and leaves it at the far end of edge `a`.
struct Walk {
  const TokenGrid& grid;
  Rounding rounding;
  std::vector<std::int32_t>& order;

  // About half of a vector. An even cut keeps entry and exit of the parts on the corners they need.
  Vec half(Vec a) const {
    const Vec cut = halved(a, rounding);
    return length(cut) % 2 == 1 && length(a) > 2 ? cut + unit(a) : cut;
  }

  void line(Vec at, Vec along) const {
    const Vec step = unit(along);
    for (std::int32_t i = 0; i < length(along); ++i, at = at + step) {
      order.push_back((at.f * grid.height + at.y) * grid.width + at.x);
    }
  }

  void box(Vec at, Vec a, Vec b, Vec c) const {
    const std::int32_t w = length(a), h = length(b), d = length(c);
    if (w == 0 || h == 0 || d == 0) return;
    if (h == 1 && d == 1) return line(at, a);
    if (w == 1 && d == 1) return line(at, b);
    if (w == 1 && h == 1) return line(at, c);
    if (2 * w > 3 * h && 2 * w > 3 * d) return in_line(at, a, b, c);
    if (3 * h > 4 * d) return up_across_down(at, a, b, c);
    if (3 * d > 4 * h) return up_across_down_c(at, a, b, c);
    five(at, a, b, c);
  }

  // A long box: two boxes one after the other.
  void in_line(Vec at, Vec a, Vec b, Vec c) const {
    const Vec cut = half(a);
    box(at, cut, b, c);
    box(at + cut, a - cut, b, c);
  }

  // A flat box (c is short): up along b, across along a, down along b.
  void up_across_down(Vec at, Vec a, Vec b, Vec c) const {
    const Vec near = half(a), low = half(b);
    box(at, low, c, near);
    box(at + low, a, b - low, c);
    box(at + last(a) + last(low), -low, c, -(a - near));
  }

  // The same with b the short side: up along c.
  void up_across_down_c(Vec at, Vec a, Vec b, Vec c) const {
    const Vec near = half(a), low = half(c);
    box(at, low, near, b);
    box(at + low, a, b, c - low);
    box(at + last(a) + last(low), -low, -(a - near), b);
  }

  // A box of about equal sides: five parts, the middle one runs the whole length of a.
  void five(Vec at, Vec a, Vec b, Vec c) const {
    const Vec near = half(a), low = half(b), front = half(c);
    box(at, low, front, near);
    box(at + low, c, near, b - low);
    box(at + last(low) + last(c), a, -low, -(c - front));
    box(at + last(a) + low + last(c), -c, -(a - near), b - low);
    box(at + last(a) + last(low), -low, front, -(a - near));
  }
};

std::vector<std::int32_t> curve(const TokenGrid& g, Rounding rounding) {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(g.tokens()));
  const Vec x = {g.width, 0, 0}, y = {0, g.height, 0}, f = {0, 0, g.frames};
  const Walk walk{g, rounding, order};
  // The curve travels along the longest axis.
  if (g.width >= g.height && g.width >= g.frames)
    walk.box({}, x, y, f);
  else if (g.height >= g.frames)
    walk.box({}, y, x, f);
  else
    walk.box({}, f, x, y);
  return order;
}

struct Jumps {
  std::int32_t longest = 0;
  std::int64_t count = 0;
  auto operator<=>(const Jumps&) const = default;
};

Vec cell(const TokenGrid& g, std::int32_t raster) {
  return {raster % g.width, raster / g.width % g.height, raster / g.width / g.height};
}

Jumps jumps_of(const TokenGrid& g, const std::vector<std::int32_t>& order) {
  Jumps jumps;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Vec step = cell(g, order[i]) - cell(g, order[i - 1]);
    const std::int32_t far = std::abs(step.x) + std::abs(step.y) + std::abs(step.f);
    jumps.longest = std::max(jumps.longest, far);
    jumps.count += far > 1;
  }
  return jumps;
}

}  // namespace

std::vector<std::int32_t> gilbert_order(const TokenGrid& g) {
  std::vector<std::int32_t> down = curve(g, Rounding::kDown);
  std::vector<std::int32_t> to_zero = curve(g, Rounding::kToZero);
  return jumps_of(g, down) <= jumps_of(g, to_zero) ? down : to_zero;
}

}  // namespace tulle
