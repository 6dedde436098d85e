// Look-up by name in tables of entries: those with a member `name`, and those that to_string() names.
#pragma once

#include <algorithm>
#include <ranges>
#include <string>
#include <string_view>

#include "base/fail.hpp"

namespace tulle {

template <class Entry>
std::string_view name_of(const Entry& entry) {
  if constexpr (requires { entry.name; })
    return entry.name;
  else
    return to_string(entry);
}

// "a, b, c"
template <class Table>
std::string known_names(const Table& table) {
  std::string known;
  for (const auto& entry : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(entry));
  return known;
}

// The entry of that name, or null.
template <class Table>
auto* look_up(const Table& table, std::string_view name) {
  const auto* const end = std::ranges::data(table) + std::ranges::size(table);
  const auto* const found =
      std::find_if(std::ranges::data(table), end, [&](const auto& entry) { return name_of(entry) == name; });
  return found == end ? nullptr : found;
}

// The entry of that name. Throws Error(kInvalidArgument): "there is no <noun> ...", with the names that there are.
template <class Table>
const auto& find_named(const Table& table, std::string_view name, const char* noun) {
  const auto* found = look_up(table, name);
  require(found != nullptr, "there is no {} \"{}\"; choose one of: {}", noun, name, known_names(table));
  return *found;
}

}  // namespace tulle
