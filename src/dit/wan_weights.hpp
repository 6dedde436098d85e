// The weights of a Wan transformer as it is computed here: projections fused and packed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "dit/gemm.hpp"
#include "tulle/model.hpp"

namespace tulle {

struct WanBlock {
  Linear qkv, out;                      // self-attention; q, k and v in one product
  Linear cross_q, cross_kv, cross_out;  // cross-attention
  Linear ffn_up, ffn_down;
  Buffer<float> norm_q, norm_k;              // [hidden], empty without qk_norm
  Buffer<float> cross_norm_q, cross_norm_k;  // as above
  Buffer<float> norm2_weight, norm2_bias;    // [hidden], empty without cross_attn_norm
  Buffer<float> modulation;                  // [6, hidden]: shift, scale, gate of attention, then of the FFN
};

struct WanWeights {
  WanConfig config;
  Precision precision = Precision::kF32;
  Linear patch, time1, time2, time_proj, text1, text2, head;
  Buffer<float> head_modulation;  // [2, hidden]: shift, scale
  std::vector<WanBlock> blocks;

  // Type of the activations between a block's products.
  DType activation() const { return precision == Precision::kBf16 ? DType::kBf16 : DType::kF32; }
};

// Errors as WanModel::load.
WanWeights load_wan_weights(const std::filesystem::path& folder, Precision precision);

// Bytes that the weights take in memory.
std::int64_t weight_bytes(const WanWeights& weights);

}  // namespace tulle
