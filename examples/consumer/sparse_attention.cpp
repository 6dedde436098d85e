// Block-sparse attention with a mask made by hand: every query block sees its neighbours in Hilbert order.
#include <tulle/attention.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

int main() {
  using namespace tulle;
  const Sequence sequence{parse_grid("5x12x14")};
  const BlockPartition blocks{sequence, 64};
  const std::int64_t tokens = sequence.tokens(), heads = 2, head_dim = 64;

  BlockMask mask(1, heads, blocks, blocks, OrderKind::kHilbert);
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < mask.q_blocks(); ++i) {
      for (std::int64_t j = 0; j < mask.k_blocks(); ++j) {
        if (std::abs(i - j) <= 1) mask.set(0, h, i, j);
      }
    }
  }

  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> q(tokens * heads * head_dim), k(q.size()), v(q.size()), out(q.size()), lse(heads * tokens);
  for (auto* x : {&q, &k, &v}) {
    for (float& value : *x) value = normal(random);
  }
  const std::array<std::int64_t, 4> shape{1, tokens, heads, head_dim};
  AttentionArgs args;
  args.q = view_of<const float>(q.data(), shape);
  args.k = view_of<const float>(k.data(), shape);
  args.v = view_of<const float>(v.data(), shape);
  args.out = view_of(out.data(), shape);
  args.lse = lse.data();
  args.mask = &mask;
  attend_cpu(args, Threads());

  std::printf("%lld tokens, density %.3f, %.1f MFLOP, lse[0] = %.4f, out[0] = %.4f\n", static_cast<long long>(tokens),
              density(mask), attention_flops(args) * 1e-6, lse[0], out[0]);
  return std::isfinite(out[0]) && std::isfinite(lse[0]) ? 0 : 1;
}
