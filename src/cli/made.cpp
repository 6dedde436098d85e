#include "cli/made.hpp"

#include <fmt/format.h>

#include "base/system.hpp"
#include "tulle/attention.hpp"
#include "tulle/model.hpp"
#include "tulle/version.hpp"

namespace tulle::cli {

Made made_here() {
  const DType dtype = default_precision() == Precision::kBf16 ? DType::kBf16 : DType::kF32;
  return {fmt::format("{}, {} cores, {}", cpu_name(), cpu_count(), attention_target(dtype)), commit(), utc_date()};
}

}  // namespace tulle::cli
