#include "report/checker_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace tulle::checker {
namespace {

struct Extent {
  double x, y;
};
constexpr std::array<Extent, kShapes> kExtent = {{{1.0, 1.0}, {0.88, 0.88}, {1.04, 0.90}, {1.05, 1.05}}};

template <int kShape>
double distance(double dx, double dy, double r) {
  const double ax = std::fabs(dx), ay = std::fabs(dy), arm = 1.05 * r;
  if constexpr (kShape == 0)
    return std::sqrt(dx * dx + dy * dy) - r;
  else if constexpr (kShape == 1)
    return std::max(ax, ay) - 0.88 * r;
  else if constexpr (kShape == 2)
    return std::max(dy - 0.9 * r, 0.866 * ax - 0.5 * dy - 0.45 * r);
  else
    return std::min(std::max(ax - arm, ay - arm / 3), std::max(ax - arm / 3, ay - arm));
}

// Calls body(std::integral_constant<int, shape>): the shape is chosen once, outside the loops over pixels.
template <class Body>
auto with_shape(int shape, const Body& body) {
  switch (shape) {
    case 0:
      return body(std::integral_constant<int, 0>{});
    case 1:
      return body(std::integral_constant<int, 1>{});
    case 2:
      return body(std::integral_constant<int, 2>{});
    default:
      return body(std::integral_constant<int, 3>{});
  }
}

template <int kShape>
ShapeFit scored_as(const FrameRegions& frame, int region, double x, double y, double r) {
  const Box& box = frame.regions[region].box;
  const double reach_x = kExtent[kShape].x * r + 1, reach_y = kExtent[kShape].y * r + 1;
  const auto low = [](double v, std::int32_t other) {
    return std::min<std::int64_t>(std::llround(std::floor(v)), other);
  };
  const std::int64_t x0 = std::max<std::int64_t>(low(x - reach_x, box.x0), 0);
  const std::int64_t y0 = std::max<std::int64_t>(low(y - reach_y, box.y0), 0);
  const auto high = [](double v, std::int32_t other) {
    return std::max<std::int64_t>(std::llround(std::ceil(v)), other);
  };
  const std::int64_t x1 = std::min(high(x + reach_x, box.x1), frame.width - 1);
  const std::int64_t y1 = std::min(high(y + reach_y, box.y1), frame.height - 1);
  double both = 0, either = 0, shown = 0, all = 0;
  for (std::int64_t v = y0; v <= y1; ++v) {
    const std::int16_t* owner = &frame.owner[v * frame.width];
    for (std::int64_t u = x0; u <= x1; ++u) {
      const double dx = static_cast<double>(u) + 0.5 - x, dy = static_cast<double>(v) + 0.5 - y;
      const double cover = std::clamp(0.5 - distance<kShape>(dx, dy, r), 0.0, 1.0);
      const bool mine = owner[u] == region + 1;
      all += cover;
      if (owner[u] != 0 && !mine) continue;  // another object hides what is here
      shown += cover;
      both += mine ? cover : 0;
      either += mine ? 1 : cover;
    }
  }
  return {x, y, r, either > 0 ? both / either : 0, all > 0 ? shown / all : 0};
}

ShapeFit scored(const FrameRegions& frame, int region, int shape, double x, double y, double r) {
  return with_shape(shape, [&](auto kind) { return scored_as<decltype(kind)::value>(frame, region, x, y, r); });
}

ShapeFit descend(const FrameRegions& frame, int region, int shape, ShapeFit best) {
  constexpr int kRounds = 12;
  for (double step = std::max(1.0, best.radius / 8); step >= 0.2; step /= 2) {
    for (int round = 0; round < kRounds; ++round) {
      const double before = best.score;
      for (int direction = 0; direction < 6; ++direction) {
        const double d = direction % 2 == 0 ? step : -step;
        const double r = std::max(best.radius + (direction / 2 == 2 ? d : 0), 1.0);
        const ShapeFit next = scored(frame, region, shape, best.x + (direction / 2 == 0 ? d : 0),
                                     best.y + (direction / 2 == 1 ? d : 0), r);
        if (next.score > best.score) best = next;
      }
      if (best.score <= before) break;
    }
  }
  return best;
}

}  // namespace

double shape_distance(int shape, double dx, double dy, double r) {
  return with_shape(shape, [&](auto kind) { return distance<decltype(kind)::value>(dx, dy, r); });
}

ShapeFit fit_shape(const FrameRegions& frame, int region, int shape, double radius_hint) {
  const Region& g = frame.regions[region];
  const double x = 0.5 * (g.box.x0 + g.box.x1 + 1), y = 0.5 * (g.box.y0 + g.box.y1 + 1);
  const double r =
      std::max(0.5 * (g.box.x1 - g.box.x0 + 1) / kExtent[shape].x, 0.5 * (g.box.y1 - g.box.y0 + 1) / kExtent[shape].y);
  ShapeFit best = descend(frame, region, shape, scored(frame, region, shape, x, y, r));
  if (radius_hint > 0) {
    const ShapeFit other = descend(frame, region, shape, scored(frame, region, shape, g.x, g.y, radius_hint));
    if (other.score > best.score) best = other;
  }
  return best;
}

}  // namespace tulle::checker
