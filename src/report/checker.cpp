// Checker, last stage: regions are linked over frames, shapes are voted, motion is fitted.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/fail.hpp"
#include "report/checker_regions.hpp"
#include "report/checker_shapes.hpp"
#include "tulle/report.hpp"

namespace tulle {
namespace {

using checker::FrameRegions;
using checker::Region;
using checker::ShapeFit;

constexpr double kLeastScore = 0.80;    // worse fits are no known shape
constexpr double kLeastVisible = 0.55;  // of a shape, for its fitted position to count
constexpr double kMoving = 1.2;         // pixels a frame at 128 x 128; half of the slowest motion there is
constexpr double kAcross = 0.6;         // largest share of the speed that may run across the main direction
constexpr double kLineError = 2.5;      // pixels at 128 x 128; median distance of the path from a straight line
constexpr double kLinkReach = 24.0;     // pixels at 128 x 128 that a visible centroid may jump, being uncovered
constexpr double kLinkSpeed = 6.0;      // and per frame
constexpr double kLeastZoom = 0.025, kLargestZoom = 0.13;
constexpr const char* kUnclear = "unclear";

struct Sighting {
  std::size_t frame = 0;
  int region = 0;
};

struct Track {
  int colour = 0;
  std::vector<Sighting> seen;
};

struct Point {
  double time = 0, x = 0, y = 0, radius = 0;
};

struct Judged {  // a track that is an object
  int colour = 0, shape = -1;
  std::vector<Point> path;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

const Region& region_of(const std::vector<FrameRegions>& frames, const Sighting& s) {
  return frames[s.frame].regions[static_cast<std::size_t>(s.region)];
}

// The track of the same colour whose last sighting is nearest, and near enough.
Track* nearest_track(std::vector<Track>& tracks, const std::vector<FrameRegions>& frames, std::size_t frame,
                     const Region& region) {
  const double scale = checker::length_scale(frames[frame].height, frames[frame].width);
  Track* best = nullptr;
  double best_distance = 0;
  for (Track& track : tracks) {
    if (track.colour != region.colour || track.seen.back().frame == frame) continue;
    const Region& last = region_of(frames, track.seen.back());
    const double gap = static_cast<double>(frame - track.seen.back().frame);
    const double distance = std::hypot(region.x - last.x, region.y - last.y);
    if (distance > scale * (kLinkReach + kLinkSpeed * gap)) continue;
    if (best == nullptr || distance < best_distance) best = &track, best_distance = distance;
  }
  return best;
}

std::vector<Track> link(const std::vector<FrameRegions>& frames) {
  std::vector<Track> tracks;
  for (std::size_t f = 0; f < frames.size(); ++f) {
    std::vector<int> by_area(frames[f].regions.size());
    for (std::size_t i = 0; i < by_area.size(); ++i) by_area[i] = static_cast<int>(i);
    std::stable_sort(by_area.begin(), by_area.end(), [&](int a, int b) {
      return frames[f].regions[static_cast<std::size_t>(a)].area > frames[f].regions[static_cast<std::size_t>(b)].area;
    });
    for (const int i : by_area) {
      const Region& region = frames[f].regions[static_cast<std::size_t>(i)];
      Track* track = nearest_track(tracks, frames, f, region);
      if (track == nullptr) track = &tracks.emplace_back(Track{region.colour, {}});
      track->seen.push_back({f, i});
    }
  }
  return tracks;
}

// Sightings on which the shape is judged: the unhidden ones, or all when fewer than two are unhidden.
std::vector<Sighting> clear_sightings(const std::vector<FrameRegions>& frames, const Track& track) {
  std::vector<Sighting> whole;
  for (const Sighting& s : track.seen) {
    if (region_of(frames, s).whole) whole.push_back(s);
  }
  return whole.size() >= 2 ? whole : track.seen;
}

Point point_of(const Sighting& s, const ShapeFit& fit) {
  return {static_cast<double>(s.frame), fit.x, fit.y, fit.radius};
}

// Adds the positions in frames where the object is partly hidden, when the clear frames are too few for a line.
void add_hidden(const std::vector<FrameRegions>& frames, const Track& track, int shape, std::vector<Point>& path) {
  std::vector<double> radii;
  for (const Point& p : path) radii.push_back(p.radius);
  const double radius = median(radii);
  for (const Sighting& s : track.seen) {
    const auto same = [&](const Point& p) { return p.time == static_cast<double>(s.frame); };
    if (std::any_of(path.begin(), path.end(), same)) continue;
    const ShapeFit fit = checker::fit_shape(frames[s.frame], s.region, shape, radius);
    if (fit.visible >= kLeastVisible) path.push_back(point_of(s, fit));
  }
}

Judged judge(const std::vector<FrameRegions>& frames, const Track& track) {
  const std::vector<Sighting> clear = clear_sightings(frames, track);
  std::array<std::vector<ShapeFit>, checker::kShapes> fits;
  std::array<double, checker::kShapes> score{};
  for (const Sighting& s : clear) {
    for (int shape = 0; shape < checker::kShapes; ++shape) {
      fits[shape].push_back(checker::fit_shape(frames[s.frame], s.region, shape));
      score[shape] += fits[shape].back().score / static_cast<double>(clear.size());
    }
  }
  const auto best = static_cast<int>(std::max_element(score.begin(), score.end()) - score.begin());
  Judged judged{track.colour, score[best] >= kLeastScore ? best : -1, {}};
  for (std::size_t i = 0; i < clear.size(); ++i) judged.path.push_back(point_of(clear[i], fits[best][i]));
  if (judged.path.size() < 4) add_hidden(frames, track, best, judged.path);
  return judged;
}

// Theil and Sen's line: the median of the slopes between all pairs of points.
double slope(const std::vector<Point>& path, double Point::*value) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < path.size(); ++i) {
    for (std::size_t j = i + 1; j < path.size(); ++j) {
      slopes.push_back((path[j].*value - path[i].*value) / (path[j].time - path[i].time));
    }
  }
  return median(slopes);
}

double line_error(const std::vector<Point>& path, double Point::*value, double rate) {
  std::vector<double> starts, errors;
  for (const Point& p : path) starts.push_back(p.*value - rate * p.time);
  const double start = median(starts);
  for (const double s : starts) errors.push_back(std::fabs(s - start));
  return median(errors);
}

// Relative growth of all sizes per frame, 0 for a camera that does not zoom.
double zoom_rate(const std::vector<Judged>& objects, std::size_t frames) {
  std::vector<double> rates;
  for (const Judged& object : objects) {
    std::vector<Point> logs = object.path;
    for (Point& p : logs) p.radius = std::log(p.radius);
    if (logs.size() >= 4) rates.push_back(slope(logs, &Point::radius));
  }
  const double span = static_cast<double>(frames) - 1;
  const double total = median(rates) * span;
  return std::fabs(total) < kLeastZoom ? 0 : std::clamp(total, -kLargestZoom, kLargestZoom) / span;
}

std::string motion_word(const Judged& object, double zoom, const FrameRegions& frame) {
  if (object.path.size() < 2) return kUnclear;
  const double scale = checker::length_scale(frame.height, frame.width);
  const double dx = slope(object.path, &Point::x), dy = slope(object.path, &Point::y);
  const double error = std::hypot(line_error(object.path, &Point::x, dx), line_error(object.path, &Point::y, dy));
  if (error > kLineError * scale) return kUnclear;
  // A zoom moves everything away from the middle of the frame; what is asked about is the rest.
  std::vector<double> xs, ys;
  for (const Point& p : object.path) xs.push_back(p.x), ys.push_back(p.y);
  const double vx = (dx - zoom * (median(xs) - 0.5 * static_cast<double>(frame.width))) / scale;
  const double vy = (dy - zoom * (median(ys) - 0.5 * static_cast<double>(frame.height))) / scale;
  const double main = std::max(std::fabs(vx), std::fabs(vy)), across = std::min(std::fabs(vx), std::fabs(vy));
  if (main < kMoving) return "still";
  if (across > kAcross * main) return kUnclear;
  if (std::fabs(vx) > std::fabs(vy)) return vx > 0 ? "right" : "left";
  return vy > 0 ? "down" : "up";
}

std::vector<FrameRegions> regions_of(const Video& video) {
  require(video.frames >= 1 && video.height >= 1 && video.width >= 1 &&
              video.rgb.size() == static_cast<std::size_t>(video.frames * video.height * video.width * 3),
          "a clip of {} frames of {} x {} pixels cannot have {} values: give frames * height * width * 3", video.frames,
          video.height, video.width, video.rgb.size());
  const auto frame_size = static_cast<std::size_t>(video.height * video.width * 3);
  std::vector<FrameRegions> frames;
  for (std::int64_t f = 0; f < video.frames; ++f) {
    const std::span<const float> all = video.rgb;
    frames.push_back(checker::find_regions(all.subspan(static_cast<std::size_t>(f) * frame_size, frame_size),
                                           video.height, video.width));
  }
  return frames;
}

bool asked_of_seen(std::span<const ObjectFacts> expected, const std::vector<ObjectFacts>& seen,
                   std::string ObjectFacts::*attribute) {
  return std::all_of(expected.begin(), expected.end(), [&](const ObjectFacts& e) {
    return std::any_of(seen.begin(), seen.end(),
                       [&](const ObjectFacts& s) { return s.colour == e.colour && s.*attribute == e.*attribute; });
  });
}

std::vector<std::string> sorted_colours(std::span<const ObjectFacts> facts) {
  std::vector<std::string> colours;
  for (const ObjectFacts& f : facts) colours.push_back(f.colour);
  std::sort(colours.begin(), colours.end());
  return colours;
}

}  // namespace

std::vector<ObjectFacts> observe_clip(const Video& video) {
  const std::vector<FrameRegions> frames = regions_of(video);
  std::vector<Judged> objects;
  for (const Track& track : link(frames)) {
    if (2 * track.seen.size() >= frames.size()) objects.push_back(judge(frames, track));
  }
  const double zoom = frames.size() > 1 ? zoom_rate(objects, frames.size()) : 0;
  std::vector<ObjectFacts> facts;
  for (const Judged& object : objects) {
    facts.push_back({checker::kColourNames[static_cast<std::size_t>(object.colour)],
                     object.shape < 0 ? kUnclear : checker::kShapeNames[static_cast<std::size_t>(object.shape)],
                     motion_word(object, zoom, frames.front())});
  }
  std::stable_sort(facts.begin(), facts.end(),
                   [](const ObjectFacts& a, const ObjectFacts& b) { return a.colour < b.colour; });
  return facts;
}

CheckResult check_clip(const Video& video, std::span<const ObjectFacts> expected) {
  const std::vector<ObjectFacts> seen = observe_clip(video);
  CheckResult result;
  result.count = seen.size() == expected.size();
  result.colours = sorted_colours(seen) == sorted_colours(expected);
  result.shapes = asked_of_seen(expected, seen, &ObjectFacts::shape);
  result.motions = asked_of_seen(expected, seen, &ObjectFacts::motion);
  return result;
}

}  // namespace tulle
