#include "tulle/tensor.hpp"

#include <cstdlib>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBf16: return "bf16";
    case DType::kF16: return "f16";
  }
  return "unknown";
}

void* allocate_aligned(std::size_t count, std::size_t element_bytes) {
  constexpr std::size_t kAlign = 64;
  const auto bytes = checked_mul(count, element_bytes);
  if (bytes && *bytes == 0) return nullptr;
  void* p = nullptr;
  if (bytes && *bytes <= SIZE_MAX - kAlign) p = std::aligned_alloc(kAlign, (*bytes + kAlign - 1) / kAlign * kAlign);
  if (p == nullptr) {
    fail(ErrorCode::kOutOfMemory, "cannot allocate {} elements of {} bytes: use a smaller grid or fewer ranks", count,
         element_bytes);
  }
  return p;
}

void free_aligned(void* p) { std::free(p); }

}  // namespace tulle
