// Model: a video diffusion transformer (Wan 2.1's architecture), its sampler, text encoder and codec.
//
//     prompt ──► PromptEncoder ──► text [slots, text_dim] ─┐
//     noise(seed) ──► latent tokens ──► WanModel + Sampler, steps times ──► latents ──► Codec ──► frames
//
// Latent tokens are [batch, local tokens, patch_features] f32 in memory order; features are (channel, pt, ph, pw).
// Thread safety: a WanModel is immutable after load and may be shared by ranks; its Workspace may not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tulle/engine.hpp"
#include "tulle/grid.hpp"
#include "tulle/threads.hpp"

namespace tulle {

// From the config.json of diffusers' WanTransformer3DModel or of the official repositories (text-to-video only; image
// conditioning is refused).
struct WanConfig {
  std::int64_t heads = 0, head_dim = 0, layers = 0, ffn_dim = 0;
  std::int64_t in_channels = 0, out_channels = 0, text_dim = 0, freq_dim = 0;
  std::int64_t patch_t = 1, patch_h = 2, patch_w = 2;
  bool cross_attn_norm = true;  // affine layer norm before cross-attention
  bool qk_norm = true;          // RMS norm over all heads of a token
  float eps = 1e-6f;

  std::int64_t hidden() const { return heads * head_dim; }
  std::int64_t patch_features() const { return in_channels * patch_t * patch_h * patch_w; }
  std::int64_t out_features() const { return out_channels * patch_t * patch_h * patch_w; }
};

// Throws Error(kBadFile) for unknown or missing keys, wrong types, or sizes out of bounds.
WanConfig parse_wan_config(const std::string& json_text, const std::string& where);

enum class Precision : std::uint8_t { kF32, kBf16 };
// bf16 where the processor multiplies bf16 matrices in hardware (AMX, AVX-512 BF16), f32 elsewhere.
Precision default_precision();

class WanModel {
 public:
  // Reads config.json and one or more safetensors shards of `folder` (official Wan or diffusers names).
  // Throws Error(kBadFile) naming file and tensor for anything missing, superfluous, mis-shaped, or not finite.
  static WanModel load(const std::filesystem::path& folder, Precision precision);
  ~WanModel();
  WanModel(WanModel&&) noexcept;
  WanModel& operator=(WanModel&&) noexcept;

  const WanConfig& config() const;
  Precision precision() const;
  std::int64_t weight_bytes() const;  // in memory
  Route gemm_route() const;           // what multiplies matrices, and why it is not bf16 when that was asked for

  struct Input {
    std::span<const float> latents;    // [batch, local tokens, patch_features], memory order
    std::span<const float> timesteps;  // [batch], in [0, 1000]
    std::span<const float> text;       // [batch, text_tokens, text_dim]
    std::int64_t batch = 1, text_tokens = 0;
    std::int32_t step = 0, steps = 1;
    Branch branch = Branch::kConditional;
  };

  // Reused buffers of one rank. Sized at the first forward, or again when shapes change.
  class Workspace;
  struct WorkspaceDeleter {
    void operator()(Workspace* w) const;
  };
  using WorkspacePtr = std::unique_ptr<Workspace, WorkspaceDeleter>;
  WorkspacePtr make_workspace() const;

  // One forward pass over this rank's tokens; attention over all tokens goes through `engine`, whose order also fixes
  // the RoPE angles. Writes the predicted velocity [batch, local tokens, out_features] (features as the input's).
  // If `check_finite`, throws Error(kNotFinite) naming the step and layer where a NaN or infinity first appears.
  void forward(const Input& input, Engine& engine, const Threads& threads, Workspace& workspace,
               std::span<float> velocity, bool check_finite = false) const;

 private:
  struct Impl;
  explicit WanModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Bytes that one rank's Workspace and its latents need at most (f32), from checked arithmetic alone: for refusing a
// grid before anything is allocated. Throws Error(kInvalidArgument) when the sum leaves 64 bits.
std::int64_t predicted_activation_bytes(const WanConfig& config, std::int64_t local_tokens, std::int64_t batch,
                                        std::int64_t text_tokens = 0);

// Patchify: latents [channels, frames, height, width] f32 -> tokens [range.size(), features] in memory order, for the
// memory positions in `range`; and back (writes only those tokens).
void patchify(std::span<const float> latents, const WanConfig& config, const TokenOrder& order, Range range,
              std::span<float> tokens);
void unpatchify(std::span<const float> tokens, const WanConfig& config, const TokenOrder& order, Range range,
                std::span<float> latents);

// Standard normal numbers by a counter-based generator (Philox 4x32-10 and Box-Muller): value i depends on (seed, i)
// alone, so that any rank can draw any part. out[j] = value first + j.
void fill_noise(std::uint64_t seed, std::uint64_t first, std::span<float> out);

// Flow-matching samplers over x_t = (1 - sigma) x_0 + sigma noise, velocity = noise - x_0.
struct SamplerOptions {
  std::string kind = "euler";  // "euler" or "unipc" (order 2, bh2, as UniPCMultistepScheduler with flow sigmas)
  std::int32_t steps = 30;     // >= 1
  double shift = 3.0;          // sigma' = shift sigma / (1 + (shift - 1) sigma)
  double guidance = 4.0;       // classifier-free guidance scale; 1 runs the conditional branch only
};

class Sampler {
 public:
  // Throws Error(kInvalidArgument): steps < 1, unknown kind, shift <= 0.
  explicit Sampler(const SamplerOptions& options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  std::int32_t steps() const;
  double sigma(std::int32_t step) const;
  float timestep(std::int32_t step) const;  // what the model is given, in [0, 1000]
  // Advances `latents` from step to step + 1 in place, given the velocity at `step`. Steps must come in order from 0.
  void advance(std::int32_t step, std::span<const float> velocity, std::span<float> latents);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// velocity = uncond + guidance * (cond - uncond), into cond.
void apply_guidance(std::span<float> cond, std::span<const float> uncond, float guidance);

// The word encoder of models/tiny: vocabulary.json + text.safetensors (models/tiny/README.md has the rules).
class PromptEncoder {
 public:
  static PromptEncoder load(const std::filesystem::path& folder);
  ~PromptEncoder();
  PromptEncoder(PromptEncoder&&) noexcept;
  std::int64_t slots() const;
  std::int64_t text_dim() const;
  // slot -> word ("" when not filled). Throws Error(kInvalidArgument) naming a word outside the vocabulary and the
  // nearest known ones, or a word that finds no free slot.
  std::vector<std::string> parse(const std::string& prompt) const;
  // [slots, text_dim]; an empty prompt gives zeros, the unconditional text.
  std::vector<float> encode(const std::string& prompt) const;

 private:
  struct Impl;
  explicit PromptEncoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The fixed linear codec of models/tiny (codec.safetensors): 4x4 pixels <-> 16 channels, frame by frame.
class Codec {
 public:
  static Codec load(const std::filesystem::path& folder);
  std::int64_t channels() const { return channels_; }
  std::int64_t stride() const { return 4; }  // pixels per latent position, both axes
  // latents [channels, frames, h, w] -> RGB frames [frames, 4 h, 4 w, 3] in [0, 1] (clipped).
  void decode(std::span<const float> latents, std::int64_t frames, std::int64_t h, std::int64_t w,
              std::span<float> rgb) const;
  void encode(std::span<const float> rgb, std::int64_t frames, std::int64_t h, std::int64_t w,
              std::span<float> latents) const;

 private:
  std::int64_t channels_ = 0;
  std::vector<float> mean_, basis_, scale_;
};

}  // namespace tulle
