#include "dit/gemm.hpp"

#include <dnnl.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/half.hpp"
#include "dit/elementwise.hpp"

namespace tulle {
namespace {

using dnnl::memory;
using Product = dnnl::inner_product_forward;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type onednn_type(DType type) {
  return type == DType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A scratch area of the calling thread that only grows. Each user names its own slot.
std::byte* scratch(std::size_t slot, std::size_t bytes) {
  thread_local std::vector<Buffer<std::byte>> slots(4);
  if (slots[slot].size() < bytes) slots[slot] = Buffer<std::byte>(bytes);
  return slots[slot].data();
}
enum ScratchSlot : std::size_t { kLibrary, kInTile, kOutTile, kConverted };

void convert(const void* from, DType from_type, void* to, DType to_type, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(from_type));
  } else if (to_type == DType::kF32) {
    for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = to_f32(static_cast<const Bf16*>(from)[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      static_cast<Bf16*>(to)[i] = from_f32<Bf16>(static_cast<const float*>(from)[i]);
  }
}

// GELU follows the product while its tile is in cache, by our own vector code: oneDNN's costs half as much as a product
// of 384 channels on AVX2. Where oneDNN itself writes bf16 it must come before that rounding, as a post-op.
bool own_gelu(Activation activation, DType out) { return activation == Activation::kGeluTanh && out == DType::kF32; }

dnnl::primitive_attr attributes(Activation activation, DType out) {
  dnnl::primitive_attr attr;
  // The library's own scratchpad is not safe when one primitive runs on several threads.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (activation == Activation::kGeluTanh && !own_gelu(activation, out))
    ops.append_eltwise(dnnl::algorithm::eltwise_gelu_tanh, 0.f, 0.f);
  if (activation == Activation::kSilu) ops.append_eltwise(dnnl::algorithm::eltwise_swish, 1.f, 0.f);
  if (ops.len() > 0) attr.set_post_ops(ops);
  return attr;
}

Product::primitive_desc describe(const LinearSpec& spec, DType in, DType out) {
  using tag = memory::format_tag;
  const memory::desc src({spec.tile, spec.inputs}, onednn_type(in), tag::ab);
  const memory::desc weights({spec.outputs, spec.inputs}, onednn_type(in), tag::any);
  const memory::desc bias({spec.outputs}, memory::data_type::f32, tag::a);
  const memory::desc dst({spec.tile, spec.outputs}, onednn_type(out), tag::ab);
  return Product::primitive_desc(cpu_engine(), dnnl::prop_kind::forward_inference, src, weights, bias, dst,
                                 attributes(spec.activation, out), /*allow_empty=*/true);
}

// One-thread arena: a primitive made in it never splits its work, so its result cannot depend on the width.
const Threads& single() {
  static const Threads threads(1);
  return threads;
}

// The weights in `wanted` layout and type.
memory pack(const LinearSpec& spec, std::span<const float> weight, const memory::desc& wanted) {
  const memory::dims dims{spec.outputs, spec.inputs};
  std::vector<Bf16> rounded;
  const void* from = weight.data();
  if (wanted.get_data_type() == memory::data_type::bf16) {
    rounded.resize(weight.size());
    convert(from, DType::kF32, rounded.data(), DType::kBf16, static_cast<std::int64_t>(weight.size()));
    from = rounded.data();
  }
  memory plain({dims, wanted.get_data_type(), memory::format_tag::ab}, cpu_engine(), const_cast<void*>(from));
  memory packed(wanted, cpu_engine());
  dnnl::stream stream(cpu_engine());
  dnnl::reorder(plain, packed).execute(stream, plain, packed);
  stream.wait();
  return packed;
}

}  // namespace

struct Linear::Impl {
  LinearSpec spec;
  DType in = DType::kF32, out = DType::kF32;  // what oneDNN computes in; differs from the spec on conversion
  Product::primitive_desc description;
  Product product;
  memory weights, bias;
  std::string reason;

  void choose();
  void take(std::span<const float> weight, std::span<const float> given_bias);

  // One tile of packed rows of the spec's types.
  void run_tile(const void* from, void* to) const {
    if (in != spec.in) {
      auto* wide = scratch(kConverted, static_cast<std::size_t>(spec.tile * spec.inputs) * size_of(in));
      convert(from, spec.in, wide, in, spec.tile * spec.inputs);
      from = wide;
    }
    if (out == spec.out) return multiply(from, to);
    auto* result = scratch(kOutTile, static_cast<std::size_t>(spec.tile * spec.outputs) * size_of(out));
    multiply(from, result);
    convert(result, out, to, spec.out, spec.tile * spec.outputs);
  }

  void multiply(const void* from, void* to) const {
    thread_local dnnl::stream stream(cpu_engine());
    const std::size_t bytes = description.scratchpad_desc().get_size();
    memory src(description.src_desc(), cpu_engine(), const_cast<void*>(from));
    memory dst(description.dst_desc(), cpu_engine(), to);
    memory pad(description.scratchpad_desc(), cpu_engine(), bytes == 0 ? nullptr : scratch(kLibrary, bytes));
    product.execute(stream, {{DNNL_ARG_SRC, src},
                             {DNNL_ARG_WEIGHTS, weights},
                             {DNNL_ARG_BIAS, bias},
                             {DNNL_ARG_DST, dst},
                             {DNNL_ARG_SCRATCHPAD, pad}});
    if (own_gelu(spec.activation, out)) {
      gelu_tanh({static_cast<float*>(to), static_cast<std::size_t>(spec.tile * spec.outputs)});
    }
  }

  // The last rows: padded to a whole tile with zeros, so that they go through the same kernel as all others.
  void run_tail(const std::byte* from, std::int64_t rows, std::byte* to) const {
    const auto in_row = static_cast<std::size_t>(spec.inputs) * size_of(spec.in);
    const auto out_row = static_cast<std::size_t>(spec.outputs) * size_of(spec.out);
    const auto tile = static_cast<std::size_t>(spec.tile), count = static_cast<std::size_t>(rows);
    std::byte* padded = scratch(kInTile, tile * (in_row + out_row));
    std::memcpy(padded, from, count * in_row);
    std::memset(padded + count * in_row, 0, (tile - count) * in_row);
    run_tile(padded, padded + tile * in_row);
    std::memcpy(to, padded + tile * in_row, count * out_row);
  }
};

namespace {

void check(const LinearSpec& spec, std::size_t weights, std::size_t biases) {
  const auto count = checked_product({spec.outputs, spec.inputs});
  require(count && spec.outputs > 0 && spec.inputs > 0 && spec.tile > 0,
          "a linear layer of {} x {} and tile {} has no sense", spec.outputs, spec.inputs, spec.tile);
  require(static_cast<std::int64_t>(weights) == *count && static_cast<std::int64_t>(biases) == spec.outputs,
          "a linear layer of {} x {} got {} weights and {} biases", spec.outputs, spec.inputs, weights, biases);
}

std::vector<float> rounded_to_bf16(std::span<const float> values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (float v : values) out.push_back(to_f32(from_f32<Bf16>(v)));
  return out;
}

}  // namespace

// Chooses the types in which oneDNN computes: those of the spec, or f32 where it has no bf16.
void Linear::Impl::choose() {
  in = spec.in, out = spec.out;
  description = describe(spec, in, out);
  if (!description && (in == DType::kBf16 || out == DType::kBf16)) {
    in = out = DType::kF32;
    description = describe(spec, in, out);
    reason = "oneDNN has no bf16 product for this processor: tiles are widened to f32";
  }
  if (!description) fail(ErrorCode::kUnsupported, "oneDNN has no product of {} x {}", spec.outputs, spec.inputs);
  product = Product(description);
}

void Linear::Impl::take(std::span<const float> weight, std::span<const float> given_bias) {
  const bool round = spec.in == DType::kBf16 && in == DType::kF32;
  const std::vector<float> rounded = round ? rounded_to_bf16(weight) : std::vector<float>{};
  weights = pack(spec, round ? rounded : weight, description.weights_desc());
  bias = memory(description.bias_desc(), cpu_engine());
  std::memcpy(bias.get_data_handle(), given_bias.data(), given_bias.size_bytes());
}

Linear::Linear(const LinearSpec& spec, std::span<const float> weight, std::span<const float> bias) {
  check(spec, weight.size(), bias.size());
  auto impl = std::make_unique<Impl>();
  impl->spec = spec;
  try {
    single().run_in([&] {
      impl->choose();
      impl->take(weight, bias);
    });
  } catch (const dnnl::error& e) {
    fail(ErrorCode::kUnsupported, "oneDNN refused a product of {} x {}: {}", spec.outputs, spec.inputs, e.what());
  }
  impl_ = std::move(impl);
}

Linear::Linear() = default;
Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

const LinearSpec& Linear::spec() const { return impl_->spec; }

void Linear::run(const void* in, std::int64_t rows, void* out, const Threads& threads) const {
  const LinearSpec& spec = impl_->spec;
  const auto in_row = static_cast<std::int64_t>(size_of(spec.in)) * spec.inputs;
  const auto out_row = static_cast<std::int64_t>(size_of(spec.out)) * spec.outputs;
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  threads.parallel_for(ceil_div(rows, spec.tile), [&](std::int64_t i) {
    const std::int64_t first = i * spec.tile, left = rows - first;
    try {
      if (left >= spec.tile)
        impl_->run_tile(from + first * in_row, to + first * out_row);
      else
        impl_->run_tail(from + first * in_row, left, to + first * out_row);
    } catch (const dnnl::error& e) {
      fail(ErrorCode::kInternal, "oneDNN failed in a product of {} x {}: {}", spec.outputs, spec.inputs, e.what());
    }
  });
}

std::int64_t Linear::weight_bytes() const {
  return static_cast<std::int64_t>(impl_->description.weights_desc().get_size() +
                                   impl_->description.bias_desc().get_size());
}

std::string Linear::route() const {
  return fmt::format("oneDNN {}, {}", impl_->description.impl_info_str(), to_string(impl_->in));
}
std::string Linear::route_reason() const { return impl_->reason; }

}  // namespace tulle
