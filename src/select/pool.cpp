#include "select/pool.hpp"

#include <algorithm>
#include <cmath>

#include "base/fail.hpp"
#include "base/half.hpp"

namespace tulle {
namespace {

using TokenRange = std::pair<std::int64_t, std::int64_t>;

template <class T>
void add_row(const T* row, std::int64_t head_dim, float* sum) {
  for (std::int64_t c = 0; c < head_dim; ++c) sum[c] += to_f32(row[c]);
}

template <class T>
void add_squares(const T* row, const float* mean, std::int64_t head_dim, float* sum) {
  for (std::int64_t c = 0; c < head_dim; ++c) {
    const float away = to_f32(row[c]) - mean[c];
    sum[c] += away * away;
  }
}

template <class T>
float cosine(const T* row, const float* mean, std::int64_t head_dim) {
  float dot = 0, row_square = 0, mean_square = 0;
  for (std::int64_t c = 0; c < head_dim; ++c) {
    const float x = to_f32(row[c]);
    dot += x * mean[c];
    row_square += x * x;
    mean_square += mean[c] * mean[c];
  }
  const float norms = std::sqrt(row_square) * std::sqrt(mean_square);
  return norms == 0 ? 0.0f : dot / norms;
}

std::int32_t tokens_seen(const BlockPartition& subs, std::int64_t sub, TokenRange hidden) {
  const std::int64_t lost = std::min(subs.end(sub), hidden.second) - std::max(subs.begin(sub), hidden.first);
  return static_cast<std::int32_t>(subs.size(sub) - std::max<std::int64_t>(0, lost));
}

// The seen tokens of one sub-block.
struct SubTokens {
  std::int64_t b, sub;
  TokenRange range, hidden;
  std::int32_t count;  // seen

  template <class Body>
  void for_each(Body&& body) const {
    for (std::int64_t t = range.first; t < range.second; ++t) {
      if (t < hidden.first || t >= hidden.second) body(t);
    }
  }
  // Token number n of those seen.
  std::int64_t token(std::int32_t n) const {
    std::int64_t found = range.first;
    for_each([&](std::int64_t t) { found = n-- == 0 ? t : found; });
    return found;
  }
  float share() const { return count > 0 ? 1.0f / static_cast<float>(count) : 0.0f; }
};

// All heads of one sub-block: tokens are read in memory order.
template <class T>
void pool_means(ConstTensorView x, const SubTokens& s, PooledTokens& out) {
  s.for_each([&](std::int64_t t) {
    for (std::int64_t h = 0; h < out.heads; ++h) {
      add_row(x.template row<T>(s.b, t, h), out.head_dim, out.means.data() + out.at(s.b, h, s.sub));
    }
  });
  for (std::int64_t h = 0; h < out.heads; ++h) {
    float* mean = out.means.data() + out.at(s.b, h, s.sub);
    for (std::int64_t c = 0; c < out.head_dim; ++c) mean[c] *= s.share();
  }
}

template <class T>
void pick_middles(ConstTensorView x, const SubTokens& s, PooledTokens& out) {
  if (s.count == 0) return;
  const std::int64_t middle = s.token(s.count / 2);
  for (std::int64_t h = 0; h < out.heads; ++h) {
    add_row(x.template row<T>(s.b, middle, h), out.head_dim, out.means.data() + out.at(s.b, h, s.sub));
  }
}

template <class T>
void pool_variances(ConstTensorView x, const SubTokens& s, PooledTokens& out) {
  for (std::int64_t h = 0; h < out.heads; ++h) {
    const std::int64_t at = out.at(s.b, h, s.sub);
    float* sum = out.variances.data() + at;
    s.for_each(
        [&](std::int64_t t) { add_squares(x.template row<T>(s.b, t, h), out.means.data() + at, out.head_dim, sum); });
    for (std::int64_t c = 0; c < out.head_dim; ++c) sum[c] *= s.share();
  }
}

template <class T>
void pool_likeness(ConstTensorView x, const SubTokens& s, PooledTokens& out) {
  for (std::int64_t h = 0; h < out.heads; ++h) {
    const std::int64_t at = out.at(s.b, h, s.sub);
    float& sum = out.likeness[static_cast<std::size_t>(at / out.head_dim)];
    s.for_each(
        [&](std::int64_t t) { sum += cosine(x.template row<T>(s.b, t, h), out.means.data() + at, out.head_dim); });
    sum *= s.share();
  }
}

template <class T>
void pool_sub(ConstTensorView x, const SubTokens& s, const PoolExtras& extras, PooledTokens& out) {
  if (extras.middle)
    pick_middles<T>(x, s, out);
  else
    pool_means<T>(x, s, out);
  if (extras.variances) pool_variances<T>(x, s, out);
  if (extras.likeness) pool_likeness<T>(x, s, out);
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

PooledTokens pool_tokens(ConstTensorView x, const BlockPartition& subs, HiddenTokens hidden, const Threads& threads,
                         const PoolExtras& extras) {
  check_partition(subs);
  check_input(x, subs, hidden);
  if (x.dtype == DType::kF16) fail(ErrorCode::kUnsupported, "selection works on f32 or bf16, not f16; convert q and k");
  PooledTokens out{subs, x.batch(), x.heads(), x.head_dim(), {}, {}, {}, {}};
  const auto rows = static_cast<std::size_t>(x.batch() * x.heads() * subs.count());
  out.means.assign(rows * static_cast<std::size_t>(x.head_dim()), 0.0f);
  if (extras.variances) out.variances.assign(out.means.size(), 0.0f);
  if (extras.likeness) out.likeness.assign(rows, 0.0f);
  const auto hidden_of = [&](std::int64_t b) {
    return hidden.empty() ? TokenRange{} : hidden[static_cast<std::size_t>(b)];
  };
  for (std::int64_t b = 0; b < x.batch(); ++b) {
    for (std::int64_t s = 0; s < subs.count(); ++s) out.counts.push_back(tokens_seen(subs, s, hidden_of(b)));
  }
  threads.parallel_ranges(x.batch() * subs.count(), kSubsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / subs.count(), sub = i % subs.count();
      const SubTokens tokens{
          b, sub, {subs.begin(sub), subs.end(sub)}, hidden_of(b), out.counts[static_cast<std::size_t>(i)]};
      if (x.dtype == DType::kF32)
        pool_sub<float>(x, tokens, extras, out);
      else
        pool_sub<Bf16>(x, tokens, extras, out);
    }
  });
  return out;
}

}  // namespace tulle
