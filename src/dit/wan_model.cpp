#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/system.hpp"
#include "dit/wan_forward.hpp"

namespace tulle {
namespace {

std::int64_t wide_channels(const WanConfig& c) { return std::max(3 * c.hidden(), c.ffn_dim); }

std::size_t count(std::int64_t rows, std::int64_t width) {
  const auto product = checked_product({rows, width});
  if (!product) fail(ErrorCode::kOutOfMemory, "{} rows of {} channels are too many for this machine", rows, width);
  return static_cast<std::size_t>(*product);
}

}  // namespace

void fit(WanModel::Workspace& ws, const WanShape& shape) {
  if (ws.shape == shape) return;
  const WanWeights& w = *ws.owner;
  const WanConfig& c = w.config;
  const std::int64_t rows = shape.rows(), d = c.hidden();
  const std::size_t bytes = size_of(w.activation());
  ws.shape = {};  // stays empty should an allocation fail
  ws.x = Buffer<float>(count(rows, d));
  ws.update = Buffer<float>(count(rows, d));
  ws.narrow = Buffer<std::byte>(count(rows, d) * bytes);
  ws.wide = Buffer<std::byte>(count(rows, wide_channels(c)) * bytes);
  ws.time = Buffer<float>(count(shape.batch, c.freq_dim + 8 * d));
  for (auto& m : ws.modulation) m = Buffer<float>(count(shape.batch, 6 * d));
  ws.text = {};
  ws.shape = shape;
}

std::int64_t predicted_activation_bytes(const WanConfig& c, std::int64_t local_tokens, std::int64_t batch,
                                        std::int64_t text_tokens) {
  const std::int64_t d = c.hidden(), element = sizeof(float);
  const std::int64_t row = 3 * d + wide_channels(c) + c.patch_features() + c.out_features();
  const std::int64_t text = 2 * c.layers * 2 * d;  // keys and values, both branches
  const auto rows = checked_product({batch, local_tokens, row, element});
  const auto keys = checked_product({batch, text_tokens, text, element});
  const auto rope = checked_product({local_tokens, c.head_dim, element});
  const auto time = checked_product({batch, c.freq_dim + 20 * d, element});
  require(rows && keys && rope && time, "{} tokens in {} samples are too many to count their bytes", local_tokens,
          batch);
  return *rows + *keys + *rope + *time;
}

Precision default_precision() {
  return cpu_has("amx_bf16") || cpu_has("avx512_bf16") ? Precision::kBf16 : Precision::kF32;
}

struct WanModel::Impl {
  WanWeights weights;
};

WanModel::WanModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WanModel::~WanModel() = default;
WanModel::WanModel(WanModel&&) noexcept = default;
WanModel& WanModel::operator=(WanModel&&) noexcept = default;

WanModel WanModel::load(const std::filesystem::path& folder, Precision precision) {
  return WanModel(std::make_unique<Impl>(Impl{load_wan_weights(folder, precision)}));
}

const WanConfig& WanModel::config() const { return impl_->weights.config; }
Precision WanModel::precision() const { return impl_->weights.precision; }
std::int64_t WanModel::weight_bytes() const { return tulle::weight_bytes(impl_->weights); }

Route WanModel::gemm_route() const {
  const Linear& product = impl_->weights.blocks.front().qkv;
  return {"matrix products", product.route(), product.route_reason()};
}

void WanModel::WorkspaceDeleter::operator()(Workspace* w) const { delete w; }
WanModel::WorkspacePtr WanModel::make_workspace() const { return WorkspacePtr(new Workspace(impl_->weights)); }

void WanModel::forward(const Input& input, Engine& engine, const Threads& threads, Workspace& workspace,
                       std::span<float> velocity, bool check_finite) const {
  wan_forward(impl_->weights, input, engine, threads, workspace, velocity, check_finite);
}

}  // namespace tulle
