// Combine is bound by bytes, 12 a word; count, 4 bytes a word and 4 a row, is still bound by its instructions
// (docs/kernels/mask_ops.md). No fmt here: nvcc does not evaluate its format strings.
#include <cuda_runtime.h>

#include "mask/mask_ops.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

constexpr int kThreads = 256;

template <MaskCombine kOp>
__device__ std::uint32_t combine(std::uint32_t a, std::uint32_t b) {
  return kOp == MaskCombine::kUnite ? (a | b) : (a & b);
}

// One 16-byte vector a thread; the last thread takes the words behind the last whole vector.
template <MaskCombine kOp>
__global__ void combine_kernel(std::uint32_t* into, const std::uint32_t* other, std::int64_t words) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t vectors = words / 4;
  if (i < vectors) {
    uint4 a = reinterpret_cast<uint4*>(into)[i];
    const uint4 b = reinterpret_cast<const uint4*>(other)[i];
    a.x = combine<kOp>(a.x, b.x), a.y = combine<kOp>(a.y, b.y);
    a.z = combine<kOp>(a.z, b.z), a.w = combine<kOp>(a.w, b.w);
    reinterpret_cast<uint4*>(into)[i] = a;
  } else if (i == vectors) {
    for (std::int64_t w = vectors * 4; w < words; ++w) into[w] = combine<kOp>(into[w], other[w]);
  }
}

// One warp a row: neighbouring lanes read neighbouring words, then add up by shuffles.
__global__ void count_rows_kernel(const std::uint32_t* words, std::int64_t rows, std::int64_t words_per_row,
                                  std::int32_t* counts) {
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  std::int32_t count = 0;
  for (std::int64_t w = lane; w < words_per_row; w += 32) count += __popc(words[row * words_per_row + w]);
  for (int offset = 16; offset > 0; offset /= 2) count += __shfl_down_sync(0xffffffffu, count, offset);
  if (lane == 0) counts[row] = count;
}

unsigned grid_for(std::int64_t threads) {
  const std::int64_t blocks = (threads + kThreads - 1) / kThreads;
  if (blocks > 0x7fffffff) throw Error(ErrorCode::kInvalidArgument, "the mask is larger than one launch can take");
  return static_cast<unsigned>(blocks);
}

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(ErrorCode::kInternal,
                std::string("CUDA refused to launch ") + kernel + ": " + cudaGetErrorString(status));
  }
}

}  // namespace

void combine_masks_cuda(MaskCombine op, std::uint32_t* into, const std::uint32_t* other, std::int64_t words,
                        void* stream) {
  if (words == 0) return;
  const auto s = static_cast<cudaStream_t>(stream);
  const unsigned blocks = grid_for(words / 4 + 1);
  if (op == MaskCombine::kUnite)
    combine_kernel<MaskCombine::kUnite><<<blocks, kThreads, 0, s>>>(into, other, words);
  else
    combine_kernel<MaskCombine::kIntersect><<<blocks, kThreads, 0, s>>>(into, other, words);
  check_launch("combine_kernel");
}

void count_rows_cuda(const std::uint32_t* words, std::int64_t rows, std::int64_t words_per_row, std::int32_t* counts,
                     void* stream) {
  if (rows == 0) return;
  count_rows_kernel<<<grid_for(rows * 32), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(words, rows, words_per_row,
                                                                                             counts);
  check_launch("count_rows_kernel");
}

}  // namespace tulle
