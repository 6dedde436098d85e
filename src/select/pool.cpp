#include "select/pool.hpp"

#include <algorithm>

#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

using TokenRange = std::pair<std::int64_t, std::int64_t>;

template <class T>
void add_row(const T* row, std::int64_t head_dim, float* sum) {
  for (std::int64_t c = 0; c < head_dim; ++c) sum[c] += to_f32(row[c]);
}

std::int32_t tokens_seen(const BlockPartition& subs, std::int64_t sub, TokenRange hidden) {
  const std::int64_t lost = std::min(subs.end(sub), hidden.second) - std::max(subs.begin(sub), hidden.first);
  return static_cast<std::int32_t>(subs.size(sub) - std::max<std::int64_t>(0, lost));
}

// All heads of one sub-block: tokens are read in memory order.
template <class T>
void pool_sub(ConstTensorView x, std::int64_t b, std::int64_t sub, TokenRange hidden, PooledTokens& out) {
  const std::int64_t head_stride = out.subs.count() * out.head_dim;
  float* first = out.means.data() + (b * out.heads * out.subs.count() + sub) * out.head_dim;
  for (std::int64_t t = out.subs.begin(sub); t < out.subs.end(sub); ++t) {
    if (t >= hidden.first && t < hidden.second) continue;
    for (std::int64_t h = 0; h < out.heads; ++h) {
      add_row(x.template row<T>(b, t, h), out.head_dim, first + h * head_stride);
    }
  }
  const std::int32_t count = out.counts[static_cast<std::size_t>(b * out.subs.count() + sub)];
  const float share = count > 0 ? 1.0f / static_cast<float>(count) : 0.0f;
  for (std::int64_t h = 0; h < out.heads; ++h) {
    float* mean = first + h * head_stride;
    for (std::int64_t c = 0; c < out.head_dim; ++c) mean[c] *= share;
  }
}

void check_input(ConstTensorView x, const BlockPartition& subs, HiddenTokens hidden) {
  require(x.tokens() == subs.tokens(), "selection got {} tokens but the sequence has {}; pass the whole sequence",
          x.tokens(), subs.tokens());
  require(x.batch() >= 1 && x.heads() >= 1 && x.head_dim() >= 1,
          "selection got a tensor of {} samples x {} heads x {}; "
          "none may be 0",
          x.batch(), x.heads(), x.head_dim());
  require(hidden.empty() || static_cast<std::int64_t>(hidden.size()) == x.batch(),
          "{} ranges of hidden keys were given for {} samples; give one for each or none", hidden.size(), x.batch());
  const Sequence& s = subs.sequence;
  const bool prefix = s.placement == TextPlacement::kPrefix;
  const std::int64_t text_begin = prefix ? 0 : s.video_end(), text_end = prefix ? s.text_tokens : s.tokens();
  for (const auto& [begin, end] : hidden) {
    require(begin >= end || (begin >= text_begin && end <= text_end),
            "hidden keys [{}, {}) lie outside the text tokens [{}, {}); only text can be hidden", begin, end,
            text_begin, text_end);
  }
}

constexpr std::int64_t kSubsPerTask = 8;

}  // namespace

PooledTokens pool_tokens(ConstTensorView x, const BlockPartition& subs, HiddenTokens hidden, const Threads& threads) {
  check_partition(subs);
  check_input(x, subs, hidden);
  if (x.dtype == DType::kF16) fail(ErrorCode::kUnsupported, "selection works on f32 or bf16, not f16; convert q and k");
  PooledTokens out{subs, x.batch(), x.heads(), x.head_dim(), {}, {}};
  out.means.assign(static_cast<std::size_t>(x.batch() * x.heads() * subs.count() * x.head_dim()), 0.0f);
  const auto hidden_of = [&](std::int64_t b) {
    return hidden.empty() ? TokenRange{} : hidden[static_cast<std::size_t>(b)];
  };
  for (std::int64_t b = 0; b < x.batch(); ++b) {
    for (std::int64_t s = 0; s < subs.count(); ++s) out.counts.push_back(tokens_seen(subs, s, hidden_of(b)));
  }
  threads.parallel_ranges(x.batch() * subs.count(), kSubsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / subs.count(), sub = i % subs.count();
      if (x.dtype == DType::kF32)
        pool_sub<float>(x, b, sub, hidden_of(b), out);
      else
        pool_sub<Bf16>(x, b, sub, hidden_of(b), out);
    }
  });
  return out;
}

}  // namespace tulle
