#include "tulle/tensor.hpp"

#include <sys/mman.h>

#include <cstdlib>

#include "base/checked.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{1} << 21;

}  // namespace

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  return "unknown";
}

void* allocate_aligned(std::size_t count, std::size_t element_bytes) {
  const auto bytes = checked_mul(count, element_bytes);
  if (bytes && *bytes == 0) return nullptr;
  // Large buffers lie in huge pages where the system gives them: sparse attention jumps about in them.
  const std::size_t align = bytes && *bytes >= 2 * kHugePage ? kHugePage : kLine;
  void* p = nullptr;
  if (bytes && *bytes <= SIZE_MAX - align) p = std::aligned_alloc(align, (*bytes + align - 1) / align * align);
  if (p != nullptr && align == kHugePage) ::madvise(p, *bytes, MADV_HUGEPAGE);  // a wish; its refusal changes nothing
  if (p == nullptr) {
    fail(ErrorCode::kOutOfMemory, "cannot allocate {} elements of {} bytes: use a smaller grid or fewer ranks", count,
         element_bytes);
  }
  return p;
}

void free_aligned(void* p) { std::free(p); }

}  // namespace tulle
