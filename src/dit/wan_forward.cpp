#include "dit/wan_forward.hpp"

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"
#include "base/hash.hpp"
#include "dit/elementwise.hpp"

namespace tulle {
namespace {

constexpr double kMaxPeriod = 10000;  // of the time embedding

// Chunks of a block's modulation.
enum Chunk : std::int64_t { kShift1, kScale1, kGate1, kShift2, kScale2, kGate2, kChunks };

// Cosines first. Angles are products of two f32 numbers rounded to f32, as in diffusers: at timesteps near 1000 that
// rounding is the largest error of the whole embedding, and a checkpoint was trained with it.
void sinusoid(float timestep, std::span<float> out) {
  const std::size_t half = out.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(-std::log(kMaxPeriod)) * static_cast<float>(i) / static_cast<float>(half);
    const float angle = timestep * static_cast<float>(std::exp(static_cast<double>(exponent)));
    out[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    out[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

float silu(float x) { return static_cast<float>(x / (1 + std::exp(-static_cast<double>(x)))); }

class Pass {
 public:
  Pass(const WanWeights& weights, const WanModel::Input& input, Engine& engine, const Threads& threads,
       WanModel::Workspace& workspace)
      : w_(weights),
        in_(input),
        engine_(engine),
        threads_(threads),
        ws_(workspace),
        type_(weights.activation()),
        d_(weights.config.hidden()) {}

  void run(std::span<float> velocity, bool check_finite) {
    check_ = check_finite;
    require_finite(in_.latents, "the latents given");
    fit_rope();
    embed_time();
    embed_text();
    w_.patch.run(in_.latents.data(), rows(), ws_.x.data(), threads_);
    modulate(0);
    residual_norm(first_norm(0), threads_);
    for (std::size_t layer = 0; layer < w_.blocks.size(); ++layer) block(layer);
    w_.head.run(ws_.update.data(), rows(), velocity.data(), threads_);
    require_finite(velocity, "the head");
  }

 private:
  std::int64_t rows() const { return ws_.shape.rows(); }

  void require_finite(std::span<const float> values, const std::string& where) const {
    if (!check_ || all_finite(values, threads_)) return;
    fail(ErrorCode::kNotFinite, "step {} of {}, {}: a NaN or infinity appeared; check weights and latents, or use f32",
         in_.step, in_.steps, where);
  }

  void fit_rope() {
    const TokenOrder& order = engine_.order();
    const auto key = std::pair(order.kind, order.grid);
    const Range range = engine_.local_tokens();
    if (ws_.rope_order == key && ws_.rope_range == range) return;
    ws_.rope = make_rope(order, w_.config.head_dim, range.begin, range.end);
    ws_.rope_order = key, ws_.rope_range = range;
  }

  // Regions of ws_.time: sinusoids, a hidden layer, the embedding, and its projection to 6 chunks.
  std::span<float> time_part(std::int64_t skip, std::int64_t width) {
    const std::int64_t batch = ws_.shape.batch;
    return {ws_.time.data() + batch * skip, static_cast<std::size_t>(batch * width)};
  }
  std::span<float> embedding() { return time_part(w_.config.freq_dim + d_, d_); }
  std::span<float> projection() { return time_part(w_.config.freq_dim + 2 * d_, kChunks * d_); }

  void embed_time() {
    const std::int64_t freq = w_.config.freq_dim, batch = ws_.shape.batch;
    const auto waves = time_part(0, freq), hidden = time_part(freq, d_);
    for (std::size_t b = 0; b < static_cast<std::size_t>(batch); ++b) {
      sinusoid(in_.timesteps[b], waves.subspan(b * static_cast<std::size_t>(freq), static_cast<std::size_t>(freq)));
    }
    w_.time1.run(waves.data(), batch, hidden.data(), threads_);
    w_.time2.run(hidden.data(), batch, embedding().data(), threads_);
    std::transform(embedding().begin(), embedding().end(), hidden.begin(), silu);
    w_.time_proj.run(hidden.data(), batch, projection().data(), threads_);
  }

  TextKeys& text() { return ws_.text[static_cast<std::size_t>(in_.branch)]; }

  // Text passes through the same layers at every step: done once for a branch, and again when the text changes.
  void embed_text() {
    const std::uint64_t hash = hash_span(in_.text);
    if (!text().layers.empty() && text().text_hash == hash) return;
    const std::int64_t tokens = ws_.shape.batch * ws_.shape.text_tokens;
    const auto count = static_cast<std::size_t>(tokens * d_);
    Buffer<float> hidden(count), embedded(count);
    w_.text1.run(in_.text.data(), tokens, hidden.data(), threads_);
    w_.text2.run(hidden.data(), tokens, embedded.data(), threads_);
    Buffer<std::byte> narrow(count * size_of(type_));
    convert_to(embedded.span(), narrow.data(), type_);
    text().layers.clear();
    for (const WanBlock& b : w_.blocks) {
      Buffer<std::byte> keys(2 * count * size_of(type_));
      b.cross_kv.run(narrow.data(), tokens, keys.data(), threads_);
      if (!b.cross_norm_k.empty()) {
        rms_norm(keys.data(), type_, tokens, d_, 2 * d_, b.cross_norm_k.data(), w_.config.eps, threads_);
      }
      text().layers.push_back(std::move(keys));
    }
    text().text_hash = hash;
  }

  float* modulation(std::size_t layer) { return ws_.modulation[layer % 2].data(); }

  // Table plus projected time, for one block; scales get their 1.
  void modulate(std::size_t layer) {
    const auto time = projection();
    const Buffer<float>& table = w_.blocks[layer].modulation;
    for (std::size_t i = 0; i < time.size(); ++i) {
      const std::size_t within = i % table.size();
      const auto chunk = static_cast<std::int64_t>(within) / d_;
      const float one = chunk == kScale1 || chunk == kScale2 ? 1.f : 0.f;
      modulation(layer)[i] = one + (table[within] + time[i]);
    }
  }

  // The head has two chunks and takes the embedding itself; laid out as a block's shift and scale.
  void modulate_head(std::size_t slot) {
    const auto hidden = static_cast<std::size_t>(d_);
    for (std::size_t i = 0; i < embedding().size(); ++i) {
      const std::size_t b = i / hidden, c = i % hidden;
      float* out = modulation(slot) + b * kChunks * hidden;
      out[kShift1 * d_ + static_cast<std::int64_t>(c)] = w_.head_modulation[c] + embedding()[i];
      out[kScale1 * d_ + static_cast<std::int64_t>(c)] = 1.f + (w_.head_modulation[hidden + c] + embedding()[i]);
    }
  }

  // What all norms share.
  ResidualNorm plain_norm() {
    ResidualNorm p;
    p.x = ws_.x.data(), p.update = ws_.update.data();
    p.out = ws_.narrow.data(), p.out_type = type_;
    p.dim = d_, p.rows = rows(), p.rows_per_sample = ws_.shape.tokens, p.eps = w_.config.eps;
    p.gate_stride = p.scale_stride = kChunks * d_;
    return p;
  }

  ResidualNorm first_norm(std::size_t layer) {
    ResidualNorm p = plain_norm();
    p.update = nullptr;
    p.shift = modulation(layer) + kShift1 * d_, p.scale = modulation(layer) + kScale1 * d_;
    return p;
  }

  ResidualNorm norm_before_cross(std::size_t layer) {
    const WanBlock& b = w_.blocks[layer];
    ResidualNorm p = plain_norm();
    p.gate = modulation(layer) + kGate1 * d_;
    p.scale_stride = 0;
    if (b.norm2_weight.empty())
      p.norm = RowNorm::kNone;
    else
      p.scale = b.norm2_weight.data(), p.shift = b.norm2_bias.data();
    return p;
  }

  ResidualNorm norm_before_ffn(std::size_t layer) {
    ResidualNorm p = plain_norm();
    p.shift = modulation(layer) + kShift2 * d_, p.scale = modulation(layer) + kScale2 * d_;
    return p;
  }

  // The FFN's residual, and the norm of what comes next: another block, or the head.
  ResidualNorm norm_of_next(std::size_t layer) {
    ResidualNorm p = plain_norm();
    p.gate = modulation(layer) + kGate2 * d_;
    p.shift = modulation(layer + 1) + kShift1 * d_, p.scale = modulation(layer + 1) + kScale1 * d_;
    if (layer + 1 == w_.blocks.size()) p.out = ws_.update.data(), p.out_type = DType::kF32;
    return p;
  }

  // [batch, tokens, heads, head_dim] within rows of `width` elements, `skip` elements from a row's start.
  TensorView heads_of(std::byte* data, std::int64_t tokens, std::int64_t width, std::int64_t skip) const {
    const WanConfig& c = w_.config;
    return {data + static_cast<std::size_t>(skip) * size_of(type_),
            type_,
            {ws_.shape.batch, tokens, c.heads, c.head_dim},
            {tokens * width, width, c.head_dim, 1}};
  }
  TensorView local(Buffer<std::byte>& buffer, std::int64_t width, std::int64_t skip) const {
    return heads_of(buffer.data(), ws_.shape.tokens, width, skip);
  }

  void self_attention(std::size_t layer) {
    const WanBlock& b = w_.blocks[layer];
    AttendCall call;
    call.step = in_.step, call.steps = in_.steps, call.layer = static_cast<std::int32_t>(layer),
    call.branch = in_.branch;
    const TensorView out = local(ws_.narrow, d_, 0);
    if (engine_.follows(call)) {
      engine_.follow(call, out);
    } else {
      b.qkv.run(ws_.narrow.data(), rows(), ws_.wide.data(), threads_);
      call.prologue = {b.norm_q.empty() ? nullptr : b.norm_q.data(), b.norm_k.empty() ? nullptr : b.norm_k.data(),
                       w_.config.eps, ws_.rope.cos.data(), ws_.rope.sin.data()};
      engine_.begin(call, local(ws_.wide, 3 * d_, 0), local(ws_.wide, 3 * d_, d_));
      engine_.finish(local(ws_.wide, 3 * d_, 2 * d_), out);
    }
    b.out.run(ws_.narrow.data(), rows(), ws_.update.data(), threads_);
  }

  // Every rank holds the whole text, so that cross-attention needs no exchange. It is dense: keys are few.
  void cross_attention(std::size_t layer) {
    const WanBlock& b = w_.blocks[layer];
    b.cross_q.run(ws_.narrow.data(), rows(), ws_.wide.data(), threads_);
    if (!b.cross_norm_q.empty()) {
      rms_norm(ws_.wide.data(), type_, rows(), d_, d_, b.cross_norm_q.data(), w_.config.eps, threads_);
    }
    std::byte* keys = text().layers[layer].data();
    engine_.attend_context(local(ws_.wide, d_, 0), heads_of(keys, ws_.shape.text_tokens, 2 * d_, 0),
                           heads_of(keys, ws_.shape.text_tokens, 2 * d_, d_), local(ws_.narrow, d_, 0));
    b.cross_out.run(ws_.narrow.data(), rows(), ws_.update.data(), threads_);
  }

  void feed_forward(std::size_t layer) {
    const WanBlock& b = w_.blocks[layer];
    b.ffn_up.run(ws_.narrow.data(), rows(), ws_.wide.data(), threads_);
    b.ffn_down.run(ws_.wide.data(), rows(), ws_.update.data(), threads_);
  }

  // Enters with the block's normed input in ws_.narrow, and leaves the next one's there.
  void block(std::size_t layer) {
    self_attention(layer);
    residual_norm(norm_before_cross(layer), threads_);
    cross_attention(layer);
    residual_norm(norm_before_ffn(layer), threads_);
    feed_forward(layer);
    if (layer + 1 < w_.blocks.size())
      modulate(layer + 1);
    else
      modulate_head(layer + 1);
    residual_norm(norm_of_next(layer), threads_);
    if (check_) require_finite(ws_.x.span(), fmt::format("layer {}", layer));
  }

  const WanWeights& w_;
  const WanModel::Input& in_;
  Engine& engine_;
  const Threads& threads_;
  WanModel::Workspace& ws_;
  const DType type_;
  const std::int64_t d_;
  bool check_ = false;
};

void check(const WanWeights& w, const WanModel::Input& in, const Engine& engine, const WanModel::Workspace& workspace,
           std::span<const float> velocity) {
  const WanConfig& c = w.config;
  const std::int64_t rows = in.batch * engine.local_tokens().size();
  const auto needs = [](const char* what, std::size_t have, std::int64_t want) {
    require(static_cast<std::int64_t>(have) == want, "{}: {} values were given, {} are needed", what, have, want);
  };
  require(in.batch >= 1, "a batch of {} samples has no sense", in.batch);
  require(in.text_tokens >= 1, "cross-attention needs at least one text token, {} were given", in.text_tokens);
  require(engine.plan().tokens.back().end == engine.order().grid.tokens(),
          "Wan has no joint text tokens: the Engine's sequence must be video alone");
  require(workspace.owner == &w, "the workspace was made for another model");
  needs("latents", in.latents.size(), rows * c.patch_features());
  needs("timesteps", in.timesteps.size(), in.batch);
  needs("text", in.text.size(), in.batch * in.text_tokens * c.text_dim);
  needs("velocity", velocity.size(), rows * c.out_features());
}

}  // namespace

void wan_forward(const WanWeights& weights, const WanModel::Input& input, Engine& engine, const Threads& threads,
                 WanModel::Workspace& workspace, std::span<float> velocity, bool check_finite) {
  check(weights, input, engine, workspace, velocity);
  fit(workspace, {input.batch, engine.local_tokens().size(), input.text_tokens});
  Pass(weights, input, engine, threads, workspace).run(velocity, check_finite);
}

}  // namespace tulle
