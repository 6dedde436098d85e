// The fabrics that the conformance tests run on. A new fabric is one more line of all_fabrics().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tulle/fabric.hpp"

namespace tulle {

using RankBody = std::function<void(Fabric&)>;

struct FabricCase {
  std::string name;
  int ranks;
  // Runs body on all ranks, joins them, and rethrows the first error.
  std::function<void(int ranks, double timeout_s, const RankBody& body)> run;
};

inline void run_self(int, double, const RankBody& body) { body(*make_self_fabric()); }

// All fabrics of at least `least` ranks.
inline std::vector<FabricCase> all_fabrics(int least) {
  std::vector<FabricCase> cases{{"self", 1, run_self}};
  for (int ranks : {1, 2, 3, 5, 8}) cases.push_back({"threads" + std::to_string(ranks), ranks, run_ranks});
  std::erase_if(cases, [least](const FabricCase& c) { return c.ranks < least; });
  return cases;
}

}  // namespace tulle
