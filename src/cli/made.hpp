// Where a figure was measured.
#pragma once

#include <string>

namespace tulle::cli {

// Processor, cores and what attention is computed with there; build; day.
struct Made {
  std::string machine, commit, date;
};
Made made_here();

}  // namespace tulle::cli
