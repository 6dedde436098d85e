// fail(): throws tulle::Error with a formatted sentence. require(): the same unless a condition holds.
#pragma once

#include <fmt/format.h>

#include "tulle/error.hpp"

namespace tulle {

template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw make_error(code, format, std::forward<Args>(args)...);
}

// Throws Error(kInvalidArgument) with the sentence unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace tulle
