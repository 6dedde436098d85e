// The one table of attention cases: tests compare every row with fp64, bench/attention times the rows marked `speed`.
//
// A case is a shape, a layout in memory, a mask and what of the text is hidden; make_problem() gives it tensors from a
// seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "tulle/attention.hpp"

namespace tulle::cases {

enum class Layout { kPacked, kHeadsFirst, kGaps };  // BSHD; BHSD; BSHD with unused elements behind every head

struct AttentionCase {
  std::string name;
  std::int64_t batch = 1, heads = 1, dim = 64;
  std::int64_t q_video = 64, k_video = 64;  // tokens without text
  std::int64_t text = 0;                    // joint text tokens, both as queries and as keys
  TextPlacement placement = TextPlacement::kSuffix;
  std::int32_t block_q = 64, block_k = 64;
  double density = -1;  // of the random mask; below 0: dense mode
  DType dtype = DType::kF32;
  Layout layout = Layout::kPacked;
  float scale = 0;
  std::vector<std::int64_t> hidden = {};  // text tokens hidden per sample, at the end of the text
  bool speed = false;

  std::int64_t nq() const { return q_video + text; }
  std::int64_t nk() const { return k_video + text; }
};

// Blocks of different sizes for queries and keys, the last of both ragged.
inline AttentionCase ragged_case(const char* name, double density) {
  return {.name = name,
          .batch = 2,
          .heads = 2,
          .dim = 24,
          .q_video = 150,
          .k_video = 170,
          .block_q = 32,
          .block_k = 16,
          .density = density};
}

inline Sequence sequence_of(std::int64_t video, const AttentionCase& c) {
  return {TokenGrid{1, 1, static_cast<std::int32_t>(video)}, c.text, c.placement};
}

// What holds the elements of one tensor; the view says where they are.
struct Tensor {
  std::vector<std::byte> bytes;
  TensorView view;
};

inline std::array<std::int64_t, 4> strides_of(const std::array<std::int64_t, 4>& s, Layout layout) {
  if (layout == Layout::kHeadsFirst) return {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1};
  if (layout == Layout::kGaps) return {s[1] * (s[2] * (s[3] + 3) + 5) + 7, s[2] * (s[3] + 3) + 5, s[3] + 3, 1};
  return packed_strides(s);
}

// All bytes 0xff: NaN in each of the types, so that what is not written shows.
inline Tensor make_tensor(const std::array<std::int64_t, 4>& shape, DType dtype, Layout layout) {
  Tensor t;
  const auto stride = strides_of(shape, layout);
  t.bytes.assign(static_cast<std::size_t>(shape[0] * stride[0] + 64) * size_of(dtype), std::byte{0xff});
  t.view = {t.bytes.data(), dtype, shape, stride};
  return t;
}

inline float get(const ConstTensorView& v, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i) {
  if (v.dtype == DType::kF32) return v.row<float>(b, t, h)[i];
  return v.dtype == DType::kBf16 ? to_f32(v.row<Bf16>(b, t, h)[i]) : to_f32(v.row<F16>(b, t, h)[i]);
}

inline void set(const TensorView& v, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t i, float x) {
  if (v.dtype == DType::kF32)
    v.row<float>(b, t, h)[i] = x;
  else if (v.dtype == DType::kBf16)
    v.row<Bf16>(b, t, h)[i] = from_f32<Bf16>(x);
  else
    v.row<F16>(b, t, h)[i] = from_f32<F16>(x);
}

// Calls body(b, token, head, i) for every element of a view.
template <class Body>
void for_each_element(const std::array<std::int64_t, 4>& shape, Body&& body) {
  for (std::int64_t n = 0; n < shape[0] * shape[1] * shape[2] * shape[3]; ++n) {
    const std::int64_t i = n % shape[3], h = n / shape[3] % shape[2], t = n / (shape[3] * shape[2]) % shape[1];
    body(n / (shape[3] * shape[2] * shape[1]), t, h, i);
  }
}

inline void fill_normal(const TensorView& v, std::mt19937_64& random, float deviation = 1) {
  std::normal_distribution<float> normal(0.0f, deviation);
  for_each_element(v.shape, [&](auto b, auto t, auto h, auto i) { set(v, b, t, h, i, normal(random)); });
}

// A case with its tensors. args() stays valid while the problem lives and does not move.
struct Problem {
  AttentionCase c;
  Tensor q, k, v, out;
  std::vector<float> lse;
  std::unique_ptr<BlockMask> mask;
  std::vector<std::pair<std::int64_t, std::int64_t>> hidden;

  AttentionArgs args() { return {q.view, k.view, v.view, out.view, lse.data(), c.scale, mask.get(), hidden}; }
};

inline void fill_random(BlockMask& mask, double density, std::mt19937_64& random) {
  std::bernoulli_distribution keep(density);
  for (std::int64_t n = 0; n < mask.batch() * mask.heads() * mask.q_blocks() * mask.k_blocks(); ++n) {
    const std::int64_t j = n % mask.k_blocks(), i = n / mask.k_blocks() % mask.q_blocks();
    const std::int64_t row = n / (mask.k_blocks() * mask.q_blocks());
    if (keep(random)) mask.set(row / mask.heads(), row % mask.heads(), i, j);
  }
}

inline std::unique_ptr<BlockMask> make_mask(const AttentionCase& c, std::int32_t block_q, std::int32_t block_k) {
  return std::make_unique<BlockMask>(1, c.heads, BlockPartition{sequence_of(c.q_video, c), block_q},
                                     BlockPartition{sequence_of(c.k_video, c), block_k}, OrderKind::kRaster);
}

inline Problem make_problem(const AttentionCase& c, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Problem p;
  p.c = c;
  p.q = make_tensor({c.batch, c.nq(), c.heads, c.dim}, c.dtype, c.layout);
  p.k = make_tensor({c.batch, c.nk(), c.heads, c.dim}, c.dtype, c.layout);
  p.v = make_tensor({c.batch, c.nk(), c.heads, c.dim}, c.dtype, c.layout);
  p.out = make_tensor({c.batch, c.nq(), c.heads, c.dim}, c.dtype, c.layout);
  for (Tensor* t : {&p.q, &p.k, &p.v}) fill_normal(t->view, random);
  p.lse.assign(static_cast<std::size_t>(c.batch * c.heads * c.nq()), std::numeric_limits<float>::quiet_NaN());
  if (c.density >= 0) {
    p.mask = make_mask(c, c.block_q, c.block_k);
    fill_random(*p.mask, c.density, random);
  }
  const std::int64_t text_end = c.placement == TextPlacement::kPrefix ? c.text : c.nk();
  for (const std::int64_t n : c.hidden) p.hidden.emplace_back(text_end - n, text_end);
  return p;
}

// Shapes of the Wan and Hunyuan families at small size, their tails, and the odd ones that field reports name.
inline std::vector<AttentionCase> attention_cases() {
  using enum TextPlacement;
  constexpr DType kBf = DType::kBf16;
  return {
      {.name = "dense_64", .heads = 2, .q_video = 128, .k_video = 128},
      {.name = "dense_ragged", .heads = 3, .q_video = 131, .k_video = 197},
      {.name = "dense_one_key", .q_video = 9, .k_video = 1},
      {.name = "dense_one_query", .dim = 128, .q_video = 1, .k_video = 300},
      {.name = "dense_d8", .heads = 2, .dim = 8, .q_video = 70, .k_video = 70},
      {.name = "dense_d40", .dim = 40, .q_video = 65, .k_video = 66},
      {.name = "dense_d72_bf16", .dim = 72, .q_video = 65, .k_video = 66, .dtype = kBf},
      {.name = "dense_d128", .heads = 2, .dim = 128, .q_video = 200, .k_video = 200},
      {.name = "dense_d256", .dim = 256, .q_video = 100, .k_video = 140},
      {.name = "dense_scale", .q_video = 80, .k_video = 90, .scale = 0.7f},
      {.name = "dense_negative_scale", .q_video = 80, .k_video = 90, .scale = -0.3f},
      {.name = "dense_heads_first",
       .batch = 2,
       .heads = 3,
       .q_video = 77,
       .k_video = 78,
       .layout = Layout::kHeadsFirst},
      {.name = "dense_gaps", .batch = 2, .heads = 3, .q_video = 77, .k_video = 78, .layout = Layout::kGaps},
      {.name = "dense_bf16", .heads = 2, .q_video = 190, .k_video = 190, .dtype = kBf, .layout = Layout::kGaps},
      {.name = "sparse_half", .heads = 3, .q_video = 300, .k_video = 333, .density = 0.5},
      {.name = "sparse_thin", .heads = 3, .q_video = 512, .k_video = 512, .block_q = 32, .block_k = 32, .density = 0.1},
      {.name = "sparse_none", .heads = 2, .q_video = 150, .k_video = 150, .density = 0},
      {.name = "sparse_all", .heads = 2, .q_video = 150, .k_video = 150, .density = 1},
      {.name = "sparse_uneven_blocks", .q_video = 400, .k_video = 350, .block_q = 128, .block_k = 16, .density = 0.4},
      {.name = "sparse_odd_blocks",
       .heads = 2,
       .q_video = 200,
       .k_video = 210,
       .block_q = 7,
       .block_k = 5,
       .density = 0.3},
      {.name = "sparse_block_1", .q_video = 40, .k_video = 50, .block_q = 1, .block_k = 1, .density = 0.5},
      {.name = "sparse_large_blocks", .q_video = 300, .k_video = 280, .block_q = 256, .block_k = 200, .density = 0.6},
      {.name = "sparse_d128_bf16",
       .heads = 2,
       .dim = 128,
       .q_video = 260,
       .k_video = 260,
       .density = 0.3,
       .dtype = kBf},
      {.name = "sparse_batch",
       .batch = 3,
       .heads = 2,
       .q_video = 140,
       .k_video = 140,
       .density = 0.5,
       .layout = Layout::kHeadsFirst},
      {.name = "text_suffix_1", .heads = 2, .q_video = 130, .k_video = 130, .text = 1, .density = 0.5},
      {.name = "text_suffix_77",
       .heads = 2,
       .q_video = 130,
       .k_video = 130,
       .text = 77,
       .density = 0.5,
       .hidden = {40}},
      {.name = "text_suffix_396", .q_video = 130, .k_video = 130, .text = 396, .density = 0.5, .hidden = {133}},
      {.name = "text_prefix_1",
       .heads = 2,
       .q_video = 130,
       .k_video = 130,
       .text = 1,
       .placement = kPrefix,
       .density = 0.5},
      {.name = "text_prefix_77",
       .heads = 2,
       .q_video = 130,
       .k_video = 130,
       .text = 77,
       .placement = kPrefix,
       .density = 0.5,
       .hidden = {40}},
      {.name = "text_prefix_396",
       .q_video = 130,
       .k_video = 130,
       .text = 396,
       .placement = kPrefix,
       .density = 0.5,
       .hidden = {396}},
      {.name = "text_dense_batch",
       .batch = 2,
       .heads = 2,
       .q_video = 100,
       .k_video = 100,
       .text = 77,
       .hidden = {77, 5}},
      {.name = "text_sparse_batch_bf16",
       .batch = 2,
       .heads = 2,
       .q_video = 100,
       .k_video = 100,
       .text = 77,
       .density = 0.5,
       .dtype = kBf,
       .hidden = {0, 60}},
      {.name = "dense_6x6240x64", .heads = 6, .q_video = 6240, .k_video = 6240, .speed = true},
      {.name = "dense_6x6240x64_bf16", .heads = 6, .q_video = 6240, .k_video = 6240, .dtype = kBf, .speed = true},
      {.name = "dense_6x3120x128", .heads = 6, .dim = 128, .q_video = 3120, .k_video = 3120, .speed = true},
      {.name = "dense_6x1560x64", .heads = 6, .q_video = 1560, .k_video = 1560, .speed = true},
      {.name = "sparse50_6x6240x64", .heads = 6, .q_video = 6240, .k_video = 6240, .density = 0.5, .speed = true},
      {.name = "sparse20_6x6240x64", .heads = 6, .q_video = 6240, .k_video = 6240, .density = 0.2, .speed = true},
      {.name = "sparse10_6x6240x64", .heads = 6, .q_video = 6240, .k_video = 6240, .density = 0.1, .speed = true},
      {.name = "sparse05_6x6240x64", .heads = 6, .q_video = 6240, .k_video = 6240, .density = 0.05, .speed = true},
      {.name = "sparse20_6x6240x64_blocks_128",
       .heads = 6,
       .q_video = 6240,
       .k_video = 6240,
       .block_q = 128,
       .block_k = 128,
       .density = 0.2,
       .speed = true},
      {.name = "sparse20_6x6240x64_blocks_16",
       .heads = 6,
       .q_video = 6240,
       .k_video = 6240,
       .block_q = 64,
       .block_k = 16,
       .density = 0.2,
       .speed = true},
      {.name = "sparse20_6x3120x128",
       .heads = 6,
       .dim = 128,
       .q_video = 3120,
       .k_video = 3120,
       .density = 0.2,
       .speed = true},
  };
}

}  // namespace tulle::cases
