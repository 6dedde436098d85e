// Between latents [channels, frames, height, width] and tokens in memory order.
#include "base/checked.hpp"
#include "base/fail.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

struct Patches {
  std::int64_t channels, pt, ph, pw;
  TokenGrid grid;

  std::int64_t features() const { return channels * pt * ph * pw; }

  // Calls body(feature, latent index) for the token at a raster position; features are (channel, pt, ph, pw).
  template <class Body>
  void each(std::int64_t raster, Body&& body) const {
    const std::int64_t x = raster % grid.width, y = raster / grid.width % grid.height;
    const std::int64_t f = raster / (std::int64_t{grid.width} * grid.height);
    const std::int64_t width = grid.width * pw, height = grid.height * ph, frames = grid.frames * pt;
    std::int64_t feature = 0;
    for (std::int64_t row = 0; row < channels * pt * ph; ++row) {
      const std::int64_t c = row / (pt * ph), t = row / ph % pt, h = row % ph;
      const std::int64_t at = ((c * frames + f * pt + t) * height + y * ph + h) * width + x * pw;
      for (std::int64_t w = 0; w < pw; ++w) body(feature++, at + w);
    }
  }
};

Patches patches_of(std::size_t tokens, std::size_t latents, const WanConfig& config, const TokenOrder& order,
                   Range range) {
  const TokenGrid& grid = order.grid;
  require(range.begin >= 0 && range.begin <= range.end && range.end <= grid.tokens(),
          "tokens {} ... {} do not lie within the {} of the grid {}", range.begin, range.end, grid.tokens(),
          to_string(grid));
  const std::int64_t patch = config.patch_t * config.patch_h * config.patch_w;
  const auto all = static_cast<std::int64_t>(latents), given = static_cast<std::int64_t>(tokens);
  require(all % (grid.tokens() * patch) == 0, "{} latents do not fill the grid {}", latents, to_string(grid));
  const Patches p{all / (grid.tokens() * patch), config.patch_t, config.patch_h, config.patch_w, grid};
  require(given == range.size() * p.features(), "{} token values were given; {} tokens of {} features need {}", tokens,
          range.size(), p.features(), range.size() * p.features());
  return p;
}

}  // namespace

void patchify(std::span<const float> latents, const WanConfig& config, const TokenOrder& order, Range range,
              std::span<float> tokens) {
  const Patches p = patches_of(tokens.size(), latents.size(), config, order, range);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    float* out = tokens.data() + (i - range.begin) * p.features();
    p.each(order.raster_of_memory[static_cast<std::size_t>(i)],
           [&](std::int64_t feature, std::int64_t at) { out[feature] = latents[static_cast<std::size_t>(at)]; });
  }
}

void unpatchify(std::span<const float> tokens, const WanConfig& config, const TokenOrder& order, Range range,
                std::span<float> latents) {
  const Patches p = patches_of(tokens.size(), latents.size(), config, order, range);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const float* in = tokens.data() + (i - range.begin) * p.features();
    p.each(order.raster_of_memory[static_cast<std::size_t>(i)],
           [&](std::int64_t feature, std::int64_t at) { latents[static_cast<std::size_t>(at)] = in[feature]; });
  }
}

}  // namespace tulle
