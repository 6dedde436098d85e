// One program a target; libFuzzer brings main(). An exception that leaves the target is a finding.
#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const tulle::fuzz::Target& target = tulle::fuzz::find_target(TULLE_FUZZ_TARGET);
  target.run(std::as_bytes(std::span(data, size)));
  return 0;
}
