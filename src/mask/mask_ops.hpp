// BlockMask bits on the GPU: combine and count, without the host looking at them.
//
// All pointers are device memory; words are laid out as in BlockMask (rows of words_per_row 32-bit words, padding bits
// 0). Work is queued on `stream` (a cudaStream_t as void*, null for the default stream); nothing synchronises, so the
// calls can be captured in a CUDA graph. Throws Error(kInternal) with CUDA's words when a launch is refused.
#pragma once

#include <cstdint>

namespace tulle {

enum class MaskCombine : std::uint8_t { kUnite, kIntersect };

// into[i] = into[i] op other[i] for i < words. Both 16-byte aligned.
void combine_masks_cuda(MaskCombine op, std::uint32_t* into, const std::uint32_t* other, std::int64_t words,
                        void* stream);

// counts[r] = kept blocks of row r.
void count_rows_cuda(const std::uint32_t* words, std::int64_t rows, std::int64_t words_per_row, std::int32_t* counts,
                     void* stream);

}  // namespace tulle
