// Recall: the true softmax mass of blocks, and how much of it a mask keeps. For measuring, not for selecting: it costs
// what dense scores cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "select/selector.hpp"
#include "tulle/mask.hpp"
#include "tulle/tensor.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// Mean softmax mass that the queries of a video block give each video key block: [maps][q_blocks][k_blocks], one map a
// (sample, head). What is missing to 1 in a row is the mass of the text.
struct BlockMass {
  std::int64_t maps = 0, q_blocks = 0, k_blocks = 0;
  std::vector<float> values;

  std::span<const float> row(std::int64_t map, std::int64_t q_block) const {
    return std::span(values).subspan(static_cast<std::size_t>((map * q_blocks + q_block) * k_blocks),
                                     static_cast<std::size_t>(k_blocks));
  }
};

// HeadMass of every sample and head. q and k: [batch, tokens, heads, head_dim], f32 or bf16, in memory order; query
// blocks are those of call.partition, key blocks have `block_k` tokens; of the call only partition and hidden_keys are
// read. Throws Error(kInvalidArgument) for shapes that do not fit, Error(kNotFinite) where the mass is no number.
BlockMass block_mass(ConstTensorView q, ConstTensorView k, const SelectCall& call, std::int32_t block_k,
                     const Threads& threads);

struct Recall {
  double mean = 0, low = 0;  // over the video query blocks of one map; low: the 5th percentile (nearest rank)
};

// Kept mass of each map, [maps]: 1 minus the mass of the video blocks that were dropped, because text keys are always
// kept. Throws Error(kInvalidArgument) unless mask and mass have the same samples, heads and video blocks.
std::vector<Recall> recall_of(const BlockMask& mask, const BlockMass& mass);

// The mask of the kept_count() blocks of each row that have the most mass: no other choice of as many blocks a row has
// a greater recall. One head a map, batch 1. Among equal masses a hash of (map, row, block) decides. Throws
// Error(kInvalidArgument) unless q and k, both without text, have the blocks of the mass and permille is in [1, 1000].
BlockMask best_blocks(const BlockMass& mass, const BlockPartition& q, const BlockPartition& k, OrderKind order,
                      std::int32_t permille);

}  // namespace tulle
