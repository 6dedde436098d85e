// Runs Engines on any number of ranks over the same tensors, so that results can be compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "tulle/engine.hpp"

namespace tulle {

// A whole [batch, tokens, heads, head_dim] tensor that ranks see their tokens of.
struct Tensor {
  DType dtype = DType::kF32;
  std::array<std::int64_t, 4> shape{};
  std::vector<std::byte> bytes;

  Tensor() = default;
  Tensor(DType type, const std::array<std::int64_t, 4>& s) : dtype(type), shape(s) {
    bytes.resize(static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]) * size_of(type));
  }
  TensorView view(Range tokens) {
    const auto stride = packed_strides(shape);
    std::byte* first = bytes.data() + tokens.begin * stride[1] * static_cast<std::int64_t>(size_of(dtype));
    return {first, dtype, {shape[0], tokens.size(), shape[2], shape[3]}, stride};
  }
  TensorView view() { return view({0, shape[1]}); }
  bool operator==(const Tensor&) const = default;
};

// Neighbouring tokens are alike, as in a video: block choice has something to find.
inline Tensor random_tensor(DType dtype, const std::array<std::int64_t, 4>& shape, std::uint32_t seed) {
  Tensor t(dtype, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> state(static_cast<std::size_t>(shape[2] * shape[3]));
  for (float& x : state) x = normal(random);
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    for (std::size_t j = 0; j < state.size(); ++j) {
      state[j] = 0.95f * state[j] + 0.31f * normal(random);
      const std::size_t at = static_cast<std::size_t>(i) * state.size() + j;
      if (dtype == DType::kF32)
        reinterpret_cast<float*>(t.bytes.data())[at] = state[j];
      else
        reinterpret_cast<Bf16*>(t.bytes.data())[at] = from_f32<Bf16>(state[j]);
    }
  }
  return t;
}

// Blocks for the few tokens of a test, and no layer that is always dense.
inline Policy small_blocks(const std::string& preset) {
  Policy policy = load_policy(preset);
  policy.dense_layers.clear();
  policy.block_q = policy.block_k = 32;
  policy.sub_block = 8;
  return policy;
}

struct Trial {
  EngineOptions options;
  std::vector<std::int32_t> steps_run;  // of `steps`
  std::int32_t steps = 4;
  std::vector<std::int64_t> text_lengths;
  bool prologue = false;
  bool split_calls = false;  // begin and finish instead of attend, and q, k spoilt in between

  Trial() {
    options.policy = load_policy("dense");
    options.heads = 6;
    options.head_dim = 16;
    options.layers = 2;
    options.keep_masks = true;
    options.sequence.grid = {7, 11, 13};
    steps_run = {0};
  }
  std::array<std::int64_t, 4> shape() const {
    return {options.batch, options.sequence.tokens(), options.heads, options.head_dim};
  }
};

// What all ranks did together: one entry a call, in the order of the calls.
struct TrialResult {
  std::vector<Tensor> outputs;
  std::vector<std::vector<std::vector<BlockMask>>> masks;  // [call][rank], empty for dense calls
  std::vector<EngineStats> stats;                          // [rank]
  std::vector<std::vector<std::int64_t>> sent;             // [from][to]
  Plan plan;
};

// Weights and angles for raw q and k: the same on every rank count.
struct TrialPrologue {
  std::vector<float> norm_q, norm_k, cos, sin;
  explicit TrialPrologue(const Trial& trial) {
    const EngineOptions& o = trial.options;
    for (std::int64_t i = 0; i < o.heads * o.head_dim; ++i) {
      norm_q.push_back(1.0f + 0.1f * std::sin(static_cast<float>(i)));
      norm_k.push_back(1.0f + 0.1f * std::cos(static_cast<float>(i)));
    }
    for (std::int64_t i = 0; i < o.sequence.tokens() * o.head_dim / 2; ++i) {
      cos.push_back(std::cos(0.01f * static_cast<float>(i % 9973)));
      sin.push_back(std::sin(0.01f * static_cast<float>(i % 9973)));
    }
  }
  Prologue at(std::int64_t token, std::int64_t head_dim) const {
    const std::int64_t offset = token * head_dim / 2;
    return {norm_q.data(), norm_k.data(), 1e-6f, cos.data() + offset, sin.data() + offset};
  }
};

inline Tensor input_of(const Trial& trial, std::int32_t step, std::int32_t layer, Branch branch, std::uint32_t which) {
  const auto b = static_cast<std::uint32_t>(branch);
  return random_tensor(trial.options.dtype, trial.shape(),
                       which + 3 * (b + 2 * static_cast<std::uint32_t>(layer + 16 * step)));
}

inline void spoil(TensorView view) {
  for (std::int64_t b = 0; b < view.batch(); ++b) {
    for (std::int64_t t = 0; t < view.tokens(); ++t) {
      auto* row = static_cast<std::byte*>(view.data) +
                  (b * view.stride[0] + t * view.stride[1]) * static_cast<std::int64_t>(size_of(view.dtype));
      std::fill(row, row + static_cast<std::size_t>(view.heads() * view.head_dim()) * size_of(view.dtype),
                std::byte{0xff});
    }
  }
}

// Every (step run, layer, branch) once, in that order, on `ranks` ranks of `width` threads each.
inline TrialResult run_trial(const Trial& trial, int ranks, int width = 1) {
  struct Inputs {
    Tensor q, k, v;
  };
  std::vector<AttendCall> calls;
  std::vector<Inputs> inputs;
  for (std::int32_t step : trial.steps_run) {
    for (std::int32_t layer = 0; layer < trial.options.layers; ++layer) {
      for (Branch branch : {Branch::kConditional, Branch::kUnconditional}) {
        AttendCall call;
        call.step = step, call.steps = trial.steps, call.layer = layer, call.branch = branch;
        call.text_lengths = trial.text_lengths;
        calls.push_back(call);
        inputs.push_back({input_of(trial, step, layer, branch, 0), input_of(trial, step, layer, branch, 1),
                          input_of(trial, step, layer, branch, 2)});
      }
    }
  }
  const TrialPrologue weights(trial);
  TrialResult result;
  result.outputs.assign(calls.size(), Tensor(trial.options.dtype, trial.shape()));
  result.masks.assign(calls.size(), std::vector<std::vector<BlockMask>>(static_cast<std::size_t>(ranks)));
  result.stats.resize(static_cast<std::size_t>(ranks));
  result.sent.resize(static_cast<std::size_t>(ranks));
  run_ranks(ranks, 60, [&](Fabric& fabric) {
    const Threads threads(width);
    Engine engine(trial.options, fabric, threads);
    const auto rank = static_cast<std::size_t>(fabric.rank());
    const Range local = engine.local_tokens();
    const std::vector<std::int64_t> before = fabric.bytes_sent();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      AttendCall call = calls[i];
      if (trial.prologue) call.prologue = weights.at(local.begin, trial.options.head_dim);
      const TensorView q = inputs[i].q.view(local), k = inputs[i].k.view(local), v = inputs[i].v.view(local);
      if (trial.split_calls) {
        engine.begin(call, q, k);
        spoil(q);
        spoil(k);
        engine.finish(v, result.outputs[i].view(local));
      } else {
        engine.attend(call, q, k, v, result.outputs[i].view(local));
      }
      const BlockMask* mask = engine.mask(call.layer, call.branch);
      if (mask != nullptr) result.masks[i][rank].push_back(*mask);
    }
    result.sent[rank] = fabric.bytes_sent();
    for (std::size_t p = 0; p < before.size(); ++p) result.sent[rank][p] -= before[p];
    result.stats[rank] = engine.stats();
    if (rank == 0) result.plan = engine.plan();
  });
  return result;
}

}  // namespace tulle
