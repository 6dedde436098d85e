#include "cli/study_records.hpp"

#include <cmath>

namespace tulle::cli {
namespace {

OrderedJson known(double v) { return std::isfinite(v) ? OrderedJson(v) : OrderedJson(nullptr); }

}  // namespace

void Records::add(const std::string& name, const Figure& f, const Made& made) {
  if (f.value.n == 0) return;
  list_.push_back({{"bench", "quality"},
                   {"name", name},
                   {"metric", f.metric},
                   {"unit", f.unit},
                   {"better", f.higher_is_better ? "higher" : "lower"},
                   {"value", known(f.value.mean)},
                   {"spread", known(f.value.half_width)},
                   {"n", f.value.n},
                   {"baseline", f.baseline},
                   {"baseline_value", known(f.baseline_value)},
                   {"ratio", known(f.value.mean / f.baseline_value)},
                   {"machine", made.machine},
                   {"commit", made.commit},
                   {"date", made.date},
                   {"command", command_}});
}

std::string Records::text() const { return list_.dump(1) + "\n"; }

std::string grid_prefix(const std::string& grid) { return grid == kMainGrid ? "" : grid + "/"; }

}  // namespace tulle::cli
