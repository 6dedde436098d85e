// What a calibration learned, for people: read off a profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tulle/profile.hpp"

namespace tulle {

// Density at which a head keeps this mean share of its mass is what it "needs".
constexpr double kNeededMass = 0.9;

struct HeadNeed {
  std::int64_t layer = 0, head = 0;
  double density = 0;  // of the smallest sampled level at which the mean mass over the run is kNeededMass
};

struct Findings {
  std::vector<HeadNeed> heads;   // all, the least needy first; ties by layer and head
  std::vector<double> by_bin;    // [bins] the same, mean over layers and heads
  std::vector<double> by_layer;  // [layers] the same, mean over bins and heads
  double union_density = 0;      // of all captions, at density 0.25 of each
  double last_quarter = 0;       // what the last quarter of the captions added to it
  double held_out_mass = 0;      // both say nothing of one caption
  bool settled = false;          // last_quarter, of two captions or more, is at most 5 % of the union
  std::size_t captions = 0;
};

Findings find(const Profile& profile);

// Some sentences, one a line.
std::string words(const Findings& findings);

}  // namespace tulle
