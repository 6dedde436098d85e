// AMX, only reached where has_amx(). Written as instructions, since compilers name its registers by literals alone; so
// the file needs no flags of its own.
#include "attend/tiles.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include "attend/tile_loop.hpp"

namespace tulle::cpu {
namespace {

// Palette 1: eight registers of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);

struct Amx {
  static void begin() {
    const Configuration all;
    asm volatile("ldtilecfg %0" : : "m"(all));
  }
  static void end() { asm volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* at, std::int64_t row) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(at), "r"(row) : "memory");
  }
  template <int kTile>
  static void store(void* at, std::int64_t row) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(at), "r"(row) : "memory");
  }
  template <int kC, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace

void attend_tile_amx(const TileArgs& args) { attend_tile_by<Amx>(args); }
bool amx_compiled() { return true; }

}  // namespace tulle::cpu

#else

#include "base/fail.hpp"

namespace tulle::cpu {

void attend_tile_amx(const TileArgs&) { fail(ErrorCode::kUnsupported, "attention: this build has no AMX"); }
bool amx_compiled() { return false; }

}  // namespace tulle::cpu
#endif
