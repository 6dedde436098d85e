#include "tulle/error.hpp"

namespace tulle {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kBadFile:
      return "bad file";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kNotFinite:
      return "not finite";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

}  // namespace tulle
