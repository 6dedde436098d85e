// JSON: nlohmann's parser, plus strict reading (unknown keys are errors, every error names the file and the key).
#pragma once

#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.hpp"

namespace tulle {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses text; an error names `where` (a path or a description) and the byte. Depth is bounded to 64 levels.
Expected<Json> parse_json(std::string_view text, const std::string& where);

// Throws Error(kBadFile) for a key of `object` outside `known`, naming it and the nearest known key.
void refuse_unknown_keys(const Json& object, std::span<const std::string_view> known, const std::string& where);

template <class T>
concept WholeNumber = std::integral<T> && !std::same_as<T, bool>;

// Whether the value is a whole number that T holds. nlohmann's own conversion cuts fractions off and wraps around.
template <WholeNumber T>
bool holds(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<std::uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
}

// object[key] as T, or `fallback` when the key is absent; throws Error(kBadFile) naming `where` on a wrong type, and
// for a whole number that has a fraction or lies outside T.
template <class T>
T json_get(const Json& object, const char* key, T fallback, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end()) return fallback;
  if constexpr (WholeNumber<T>) {
    if (!holds<T>(*it)) {
      fail(ErrorCode::kBadFile, "{}: key \"{}\" must be a whole number in [{}, {}], not {}", where, key,
           std::numeric_limits<T>::min(), std::numeric_limits<T>::max(),
           it->dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  try {
    return it->template get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::kBadFile, "{}: key \"{}\" has the wrong type ({})", where, key, it->type_name());
  }
}

// As json_get, but the key must be there.
template <class T>
T json_need(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) fail(ErrorCode::kBadFile, "{}: key \"{}\" is missing", where, key);
  return json_get<T>(object, key, T{}, where);
}

// The word in `known` with the smallest edit distance to `word`, or "" when none is near (for "did you mean").
std::string nearest_word(std::string_view word, std::span<const std::string> known);

}  // namespace tulle
