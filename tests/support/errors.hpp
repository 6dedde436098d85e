// What an Error says, for tests of messages.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tulle/error.hpp"

namespace tulle::testing_data {

// The message of the Error that `body` throws; the test fails when it throws none, or one of another code
// (nothing: any code will do).
template <class Body>
std::string message_of(Body&& body, std::optional<ErrorCode> code = ErrorCode::kInvalidArgument) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code.value_or(e.code())) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace tulle::testing_data
