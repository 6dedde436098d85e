// Records of a study in the form of results/*.json.
#pragma once

#include <string>

#include "base/json.hpp"
#include "cli/quality.hpp"

namespace tulle::cli {

// One figure of a record file.
struct Figure {
  const char* metric;
  const char* unit;
  bool higher_is_better;
  Estimate value;
  std::string baseline;
  double baseline_value = kUnknown;
};

// A list of records, each with machine, commit, date and the command that made it.
class Records {
 public:
  explicit Records(std::string command) : command_(std::move(command)) {}

  // Figures of nothing (n = 0) are left out.
  void add(const std::string& name, const Figure& figure, const Made& made);
  std::string text() const;

 private:
  std::string command_;
  OrderedJson list_ = OrderedJson::array();
};

// What the names of records begin with: nothing for 9x16x16, else the grid.
std::string grid_prefix(const std::string& grid);

}  // namespace tulle::cli
