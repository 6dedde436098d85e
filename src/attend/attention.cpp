#include "tulle/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/shape.hpp"
#include "base/fail.hpp"

namespace tulle {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

void check_view(const ConstTensorView& view, const char* name) {
  static constexpr const char* kDims[] = {"batch", "tokens", "heads", "head_dim"};
  for (std::size_t i = 0; i < 4; ++i) {
    require(view.shape[i] >= 0, "attention: {} has {} {}; give a size of at least 0", name, view.shape[i], kDims[i]);
  }
  require(view.elements() == 0 || view.data != nullptr, "attention: {} has no memory; pass a pointer to its data",
          name);
  require(view.stride[3] == 1, "attention: {} has stride {} in head_dim; make the last dimension contiguous (stride 1)",
          name, view.stride[3]);
}

void check_same(const ConstTensorView& a, const char* a_name, const ConstTensorView& b, const char* b_name,
                std::size_t dim, const char* what) {
  require(a.shape[dim] == b.shape[dim], "attention: {} has {} {} but {} has {}; they must be equal", a_name,
          a.shape[dim], what, b_name, b.shape[dim]);
}

void check_mask(const AttentionArgs& args) {
  const BlockMask& mask = *args.mask;
  require(mask.batch() == 1 || mask.batch() == args.q.batch(),
          "attention: the mask is for batch {} but q has batch {}; use a mask of batch 1 or of the same batch",
          mask.batch(), args.q.batch());
  require(mask.heads() == args.q.heads(),
          "attention: the mask has {} heads but q has {}; make the mask for these heads", mask.heads(), args.q.heads());
  require(mask.q().tokens() == args.q.tokens(),
          "attention: the mask is for {} query tokens but q has {}; make the mask for this sequence", mask.q().tokens(),
          args.q.tokens());
  require(mask.k().tokens() == args.k.tokens(),
          "attention: the mask is for {} key tokens but k has {}; make the mask for this sequence", mask.k().tokens(),
          args.k.tokens());
}

void check_hidden(const AttentionArgs& args) {
  if (args.hidden_keys.empty()) return;
  require(static_cast<std::int64_t>(args.hidden_keys.size()) == args.q.batch(),
          "attention: {} hidden key ranges for batch {}; give one range per sample, or none", args.hidden_keys.size(),
          args.q.batch());
  for (const auto& [first, second] : args.hidden_keys) {
    require(0 <= first && first <= second && second <= args.k.tokens(),
            "attention: the hidden key range [{}, {}) does not lie in [0, {}); give first <= second within the keys",
            first, second, args.k.tokens());
  }
}

// Keys of [begin, end) that sample b sees.
std::int64_t seen_keys(const AttentionArgs& args, std::int64_t b, std::int64_t begin, std::int64_t end) {
  if (args.hidden_keys.empty()) return end - begin;
  const auto [first, second] = args.hidden_keys[static_cast<std::size_t>(b)];
  return end - begin - std::max<std::int64_t>(0, std::min(end, second) - std::max(begin, first));
}

std::int64_t seen_pairs(const AttentionArgs& args, std::int64_t b, std::int64_t head) {
  if (args.mask == nullptr) return args.q.tokens() * seen_keys(args, b, 0, args.k.tokens());
  const BlockMask& mask = *args.mask;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < mask.q_blocks(); ++i) {
    std::int64_t keys = 0;
    for_each_block(mask.row(mask_batch(mask, b), head, i),
                   [&](std::int64_t j) { keys += seen_keys(args, b, mask.k().begin(j), mask.k().end(j)); });
    pairs += keys * mask.q().size(i);
  }
  return pairs;
}

// One row of the merge; weights in double so that the result is the rounded exact combination.
void merge_row(float* out, float& lse, const float* other, float other_lse, std::int64_t dim) {
  if (other_lse == kEmpty) return;
  if (lse == kEmpty) {
    std::copy_n(other, dim, out);
    lse = other_lse;
    return;
  }
  const double top = std::max(lse, other_lse);
  const double mine = std::exp(lse - top), theirs = std::exp(other_lse - top), sum = mine + theirs;
  for (std::int64_t i = 0; i < dim; ++i) {
    out[i] = static_cast<float>((mine * out[i] + theirs * other[i]) / sum);
  }
  lse = static_cast<float>(top + std::log(sum));
}

}  // namespace

void check(const AttentionArgs& args) {
  check_view(args.q, "q");
  check_view(args.k, "k");
  check_view(args.v, "v");
  check_view(args.out, "out");
  for (const auto& [view, name] : {std::pair{args.k, "k"}, {args.v, "v"}, {ConstTensorView(args.out), "out"}}) {
    check_same(args.q, "q", view, name, 0, "samples");
    check_same(args.q, "q", view, name, 2, "heads");
    check_same(args.q, "q", view, name, 3, "head_dim");
  }
  check_same(args.k, "k", args.v, "v", 1, "tokens");
  check_same(args.q, "q", args.out, "out", 1, "tokens");
  require(args.q.dtype == args.k.dtype && args.q.dtype == args.v.dtype,
          "attention: q is {}, k is {} and v is {}; convert them to one type", to_string(args.q.dtype),
          to_string(args.k.dtype), to_string(args.v.dtype));
  const std::int64_t dim = args.q.head_dim();
  require(dim >= 8 && dim <= kMaxHeadDim && dim % 8 == 0,
          "attention: head_dim is {}; it must be a multiple of 8 between 8 and {}", dim, kMaxHeadDim);
  require(std::isfinite(args.scale), "attention: the scale is {}; give a finite number, or 0 for 1 / sqrt(head_dim)",
          args.scale);
  if (args.mask != nullptr) check_mask(args);
  check_hidden(args);
}

double attention_flops(const AttentionArgs& args) {
  double pairs = 0;
  for (std::int64_t b = 0; b < args.q.batch(); ++b) {
    for (std::int64_t h = 0; h < args.q.heads(); ++h) pairs += static_cast<double>(seen_pairs(args, b, h));
  }
  return 4.0 * static_cast<double>(args.q.head_dim()) * pairs;
}

void merge_parts(TensorView out, float* lse, ConstTensorView other_out, const float* other_lse) {
  require(out.dtype == DType::kF32 && other_out.dtype == DType::kF32,
          "merge_parts: the parts are {} and {}; both must be f32", to_string(out.dtype), to_string(other_out.dtype));
  require(out.shape == other_out.shape,
          "merge_parts: the two parts have different shapes; merge parts of the same rows");
  require(lse != nullptr && other_lse != nullptr, "merge_parts: an LSE is missing; ask both kernels for it");
  for (std::int64_t b = 0; b < out.batch(); ++b) {
    for (std::int64_t h = 0; h < out.heads(); ++h) {
      for (std::int64_t i = 0; i < out.tokens(); ++i) {
        const std::int64_t at = lse_index(out.shape, b, h, i);
        merge_row(out.row<float>(b, i, h), lse[at], other_out.row<float>(b, i, h), other_lse[at], out.head_dim());
      }
    }
  }
}

}  // namespace tulle
