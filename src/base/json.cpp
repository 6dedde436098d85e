#include "base/json.hpp"

#include <algorithm>
#include <numeric>

namespace tulle {
namespace {

constexpr int kMaxDepth = 64;

// nlohmann's parser recurses in its value destructor; a bound on nesting keeps hostile files from using the stack.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"')
      in_string = true;
    else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']')
      --depth;
  }
  return false;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

Expected<Json> parse_json(std::string_view text, const std::string& where) {
  if (too_deep(text)) return make_error(ErrorCode::kBadFile, "{}: JSON nests deeper than {} levels", where, kMaxDepth);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    const std::string what = e.what();
    const auto at = what.find("] ");
    return make_error(ErrorCode::kBadFile, "{}: not valid JSON: {}", where,
                      at == std::string::npos ? what : what.substr(at + 2));
  }
}

std::string nearest_word(std::string_view word, std::span<const std::string> known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const std::string& k : known) {
    const std::size_t d = edit_distance(word, k);
    if (d < best_distance) best_distance = d, best = k;
  }
  return best;
}

void refuse_unknown_keys(const Json& object, std::span<const std::string_view> known, const std::string& where) {
  if (!object.is_object()) fail(ErrorCode::kBadFile, "{}: expected a JSON object, found {}", where, object.type_name());
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::vector<std::string> words(known.begin(), known.end());
    const std::string near = nearest_word(key, words);
    fail(ErrorCode::kBadFile, "{}: unknown key \"{}\"{}", where, key,
         near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  }
}

}  // namespace tulle
