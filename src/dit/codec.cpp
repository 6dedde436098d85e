// The linear codec of models/tiny: a frame's 4x4 blocks of RGB, channel (dy * 4 + dx) * 3 + c, projected on `basis`.
#include <algorithm>
#include <array>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "dit/safetensors.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr std::int64_t kSide = 4, kPixels = kSide * kSide * 3;
constexpr std::int64_t kMaxChannels = 1024;

std::vector<float> read(const SafetensorsSet& set, const char* name, std::vector<std::int64_t> shape) {
  const Buffer<float> values = set.read_f32(name, shape);
  return {values.data(), values.data() + values.size()};
}

struct Frames {
  std::int64_t frames, h, w;

  std::size_t latent(std::int64_t channel, std::int64_t f, std::int64_t y, std::int64_t x) const {
    return static_cast<std::size_t>(((channel * frames + f) * h + y) * w + x);
  }
  std::size_t pixel(std::int64_t f, std::int64_t y, std::int64_t x) const {  // of the block's first pixel
    return static_cast<std::size_t>(((f * h * kSide + y * kSide) * w * kSide + x * kSide) * 3);
  }
  std::size_t row() const { return static_cast<std::size_t>(w * kSide * 3); }

  template <class Body>
  void each_block(Body&& body) const {
    for (std::int64_t f = 0; f < frames; ++f) {
      for (std::int64_t i = 0; i < h * w; ++i) body(f, i / w, i % w);
    }
  }
};

void check(const Frames& at, std::int64_t channels, std::size_t latents, std::size_t rgb) {
  const auto blocks = checked_product({at.frames, at.h, at.w});
  require(blocks.has_value(), "{} x {} x {} latent positions are too many", at.frames, at.h, at.w);
  require(
      static_cast<std::int64_t>(latents) == *blocks * channels && static_cast<std::int64_t>(rgb) == *blocks * kPixels,
      "{} latents and {} colour values do not fit {} frames of {} x {} positions", latents, rgb, at.frames, at.h, at.w);
}

}  // namespace

Codec Codec::load(const std::filesystem::path& folder) {
  const SafetensorsSet set = SafetensorsSet::open_file(folder / "codec.safetensors").value();
  const auto& shape = set.tensor("basis").shape;
  if (shape.size() != 2 || shape[1] != kPixels || shape[0] < 1 || shape[0] > kMaxChannels) {
    fail(ErrorCode::kBadFile, "{} has shape {}; [channels, {}] is needed", set.where("basis"), shape_text(shape),
         kPixels);
  }
  Codec codec;
  codec.channels_ = shape[0];
  codec.mean_ = read(set, "mean", {kPixels});
  codec.basis_ = read(set, "basis", {shape[0], kPixels});
  codec.scale_ = read(set, "scale", {shape[0]});
  if (std::any_of(codec.scale_.begin(), codec.scale_.end(), [](float s) { return s <= 0; })) {
    fail(ErrorCode::kBadFile, "{} must be positive", set.where("scale"));
  }
  return codec;
}

void Codec::decode(std::span<const float> latents, std::int64_t frames, std::int64_t h, std::int64_t w,
                   std::span<float> rgb) const {
  const Frames at{frames, h, w};
  check(at, channels_, latents.size(), rgb.size());
  at.each_block([&](std::int64_t f, std::int64_t y, std::int64_t x) {
    std::array<float, kPixels> v;
    std::copy(mean_.begin(), mean_.end(), v.begin());
    for (std::int64_t c = 0; c < channels_; ++c) {
      const float z = latents[at.latent(c, f, y, x)] * scale_[static_cast<std::size_t>(c)];
      const float* row = basis_.data() + c * kPixels;
      for (std::int64_t i = 0; i < kPixels; ++i) v[static_cast<std::size_t>(i)] += z * row[i];
    }
    for (std::int64_t dy = 0; dy < kSide; ++dy) {
      float* out = rgb.data() + at.pixel(f, y, x) + static_cast<std::size_t>(dy) * at.row();
      for (std::int64_t i = 0; i < kSide * 3; ++i)
        out[i] = std::clamp(v[static_cast<std::size_t>(dy * kSide * 3 + i)], 0.f, 1.f);
    }
  });
}

void Codec::encode(std::span<const float> rgb, std::int64_t frames, std::int64_t h, std::int64_t w,
                   std::span<float> latents) const {
  const Frames at{frames, h, w};
  check(at, channels_, latents.size(), rgb.size());
  at.each_block([&](std::int64_t f, std::int64_t y, std::int64_t x) {
    std::array<float, kPixels> v;
    for (std::int64_t i = 0; i < kPixels; ++i) {
      const auto row = static_cast<std::size_t>(i / (kSide * 3)), within = static_cast<std::size_t>(i % (kSide * 3));
      v[static_cast<std::size_t>(i)] =
          rgb[at.pixel(f, y, x) + row * at.row() + within] - mean_[static_cast<std::size_t>(i)];
    }
    for (std::int64_t c = 0; c < channels_; ++c) {
      float z = 0;
      for (std::int64_t i = 0; i < kPixels; ++i)
        z += v[static_cast<std::size_t>(i)] * basis_[static_cast<std::size_t>(c * kPixels + i)];
      latents[at.latent(c, f, y, x)] = z / scale_[static_cast<std::size_t>(c)];
    }
  });
}

}  // namespace tulle
