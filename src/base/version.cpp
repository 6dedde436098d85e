#include "tulle/version.hpp"

namespace tulle {

const char* version() { return TULLE_VERSION; }

const char* commit() {
  return
#include "generated/commit.inc"
      ;
}

}  // namespace tulle
