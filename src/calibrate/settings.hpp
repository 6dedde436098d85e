// Everything that a calibration's result depends on, as lines "name = value": what a saved state is compared by.
#pragma once

#include <string>

#include "calibrate/calibration.hpp"

namespace tulle {

std::string settings_text(const CalibrationPlan& plan);

// "steps is 8 here and 10 there" of the first line that differs; "" when none does.
std::string first_difference(const std::string& ours, const std::string& theirs);

}  // namespace tulle
