// An Engine on three ranks (threads of this process): the model gives its own tokens, the Engine does the rest.
#include <tulle/tulle.hpp>

#include <cstdio>
#include <random>
#include <vector>

int main() {
  using namespace tulle;
  const std::int64_t heads = 4, head_dim = 32, layers = 2;
  EngineOptions options;
  options.policy = load_policy("dfsattn");
  options.sequence.grid = parse_grid("5x12x14");
  options.heads = heads, options.head_dim = head_dim, options.layers = layers;

  run_ranks(3, 60.0, [&](Fabric& fabric) {
    const Threads threads(1);
    Engine engine(options, fabric, threads);
    const Range local = engine.local_tokens();
    const std::array<std::int64_t, 4> shape{1, local.size(), heads, head_dim};
    std::vector<float> qkv(local.size() * heads * head_dim), out(qkv.size());
    std::mt19937 random(static_cast<unsigned>(fabric.rank()));
    std::normal_distribution<float> normal;
    for (float& x : qkv) x = normal(random);
    const auto view = view_of<const float>(qkv.data(), shape);

    AttendCall call;
    call.step = 20, call.steps = 30, call.layer = 1;
    engine.attend(call, view, view, view, view_of(out.data(), shape));
    if (fabric.rank() == 0) {
      std::printf("%s", describe(engine.plan()).c_str());
      for (const Route& r : engine.stats().routes)
        std::printf("%s: %s (%s)\n", r.what.c_str(), r.route.c_str(), r.why.c_str());
    }
  });
  return 0;
}
