#include "calibrate/settings.hpp"

#include <fmt/format.h>

#include <sstream>

namespace tulle {
namespace {

class Lines {
 public:
  template <class T>
  void add(const std::string& name, const T& value) {
    text_ += fmt::format("{} = {}\n", name, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// "steps = 8" as name and value.
std::pair<std::string, std::string> split(const std::string& line) {
  const auto at = line.find(" = ");
  return at == std::string::npos ? std::pair{line, std::string()} : std::pair{line.substr(0, at), line.substr(at + 3)};
}

void add_captions(Lines& lines, const char* name, const std::vector<std::string>& captions) {
  lines.add(fmt::format("number of {}s", name), captions.size());
  for (std::size_t i = 0; i < captions.size(); ++i) {
    std::string flat = captions[i];  // one line each
    for (char& c : flat) c = c == '\n' ? ' ' : c;
    lines.add(fmt::format("{} {}", name, i + 1), flat);
  }
}

}  // namespace

std::string settings_text(const CalibrationPlan& plan) {
  Lines lines;
  lines.add("model", plan.model_hash);
  lines.add("grid", to_string(plan.q.sequence.grid));
  lines.add("order", to_string(plan.order));
  lines.add("query block", plan.q.block);
  lines.add("key block", plan.k.block);
  lines.add("layers", plan.layers);
  lines.add("heads", plan.heads);
  lines.add("steps", plan.steps);
  lines.add("bins", plan.bins);
  lines.add("rows", plan.rows);
  for (const auto& [name, value] : plan.settings) lines.add(name, value);
  add_captions(lines, "caption", plan.captions);
  add_captions(lines, "fidelity caption", plan.fast_captions);
  return lines.take();
}

std::string first_difference(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours), b(theirs);
  std::string x, y;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, x)), more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) return "";
    if (!more_a || !more_b) return fmt::format("{} is set in one of them only", split(more_a ? x : y).first);
    if (x == y) continue;
    const auto [name, here] = split(x);
    const auto [other, there] = split(y);
    if (name != other) return fmt::format("{} is set here where {} is set there", name, other);
    return fmt::format("{} is {} here and {} there", name, here, there);
  }
}

}  // namespace tulle
