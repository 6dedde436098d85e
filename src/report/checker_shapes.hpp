// Checker, second stage: which of the four shapes explains a region best, where, and how large.
#pragma once

#include <array>
#include <span>

#include "report/checker_regions.hpp"

namespace tulle::checker {

inline constexpr int kShapes = 4;
inline constexpr std::array<const char*, kShapes> kShapeNames = {"circle", "square", "triangle", "cross"};

struct ShapeFit {
  double x = 0, y = 0, radius = 0;  // centre of the shape's bounding box, pixels
  double score = 0;                 // intersection over union with the region, over pixels that nothing hides
  double visible = 0;               // share of the shape's area that nothing hides
};

// Signed distance (negative inside, pixels) of an axis-aligned shape of radius r, centred on its bounding box:
// circle of radius r; square of half width 0.88 r; triangle with apex up, 1.8 r high; plus sign of half width 1.05 r
// with arms a third as wide.
double shape_distance(int shape, double dx, double dy, double r);

// The best position and size of `shape`, by coordinate descent from the region's bounding box (and from
// `radius_hint` if > 0, for regions that are partly hidden).
ShapeFit fit_shape(const FrameRegions& frame, int region, int shape, double radius_hint = 0);

}  // namespace tulle::checker
