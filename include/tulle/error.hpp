// Errors: one exception type with a code, and Expected<T> for parsers of foreign bytes.
//
// Every message is one sentence that says what went wrong, where, and what to do about it.
// Thread safety: all types here are values; they can be moved between threads.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace tulle {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense (exit code 2 on the command line)
  kBadFile,          // bytes of a file break its format
  kIo,               // the operating system refused a read or a write
  kUnsupported,      // a legal request that this build or machine cannot serve
  kOutOfMemory,      // the predicted or actual need exceeds what there is
  kTimeout,          // a bounded wait ran out; the text names rank, peer, step and phase
  kCancelled,        // interrupted by the user (exit code 130)
  kNotFinite,        // a NaN or infinity where none may be
  kInternal,         // a broken invariant: a defect of the library itself
};

const char* to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// A value or an Error. Parsers of foreign bytes return this and never throw on bad input.
template <class T>
class Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  const Error& error() const { return std::get<1>(state_); }

  // The value; throws the held Error if there is none.
  T& value() & {
    if (!has_value()) throw error();
    return std::get<0>(state_);
  }
  const T& value() const& {
    if (!has_value()) throw error();
    return std::get<0>(state_);
  }
  T&& value() && {
    if (!has_value()) throw error();
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

}  // namespace tulle
