#include "run/gather.hpp"

#include "base/fail.hpp"

namespace tulle {

std::vector<float> gather_tokens(Fabric& fabric, const Plan& plan, std::span<const float> local,
                                 std::int64_t features) {
  require(plan.ranks == fabric.size(), "the plan is for {} ranks, but the fabric has {}: make a plan for this fabric",
          plan.ranks, fabric.size());
  const std::int64_t mine = plan.tokens[static_cast<std::size_t>(fabric.rank())].size();
  require(features >= 1 && static_cast<std::int64_t>(local.size()) == mine * features,
          "rank {} gathers {} numbers, but its {} tokens of {} features have {}", fabric.rank(), local.size(), mine,
          features, mine * features);
  std::vector<float> all(static_cast<std::size_t>(plan.tokens.back().end * features));
  std::vector<std::span<std::byte>> parts;
  for (const Range& r : plan.tokens) {
    parts.push_back(std::as_writable_bytes(std::span(all).subspan(static_cast<std::size_t>(r.begin * features),
                                                                  static_cast<std::size_t>(r.size() * features))));
  }
  fabric.all_gather(std::as_bytes(local), parts, "gather of tokens");
  return all;
}

}  // namespace tulle
