// What an Engine computes, books and refuses.
#include <gtest/gtest.h>

#include <chrono>

#include "run/engine_fixture.hpp"
#include "tulle/attention.hpp"

namespace tulle {
namespace {

double relative_error(const Tensor& value, const std::vector<double>& truth) {
  const auto* x = reinterpret_cast<const float*>(value.bytes.data());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += (x[i] - truth[i]) * (x[i] - truth[i]);
    norm += truth[i] * truth[i];
  }
  return std::sqrt(error / norm);
}

std::vector<double> reference(Tensor& q, Tensor& k, Tensor& v, const BlockMask* mask,
                              std::span<const std::pair<std::int64_t, std::int64_t>> hidden) {
  Tensor out(DType::kF32, q.shape);
  std::vector<double> truth(out.bytes.size() / sizeof(float));
  AttentionArgs args;
  args.q = q.view(), args.k = k.view(), args.v = v.view(), args.out = out.view();
  args.mask = mask;
  args.hidden_keys = hidden;
  attend_reference(args, truth.data());
  return truth;
}

Trial small_sparse() {
  Trial trial;
  trial.options.policy = small_blocks("dfsattn");
  trial.options.sequence.grid = {3, 7, 11};
  trial.steps_run = {3};
  return trial;
}

template <class Body>
Error caught(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

void expect_mentions(const Error& e, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in: " << e.what();
  }
}

TEST(Engine, AgreesWithTheReferenceOnItsOwnMask) {
  for (bool sparse : {false, true}) {
    Trial trial = small_sparse();
    if (!sparse) trial.options.policy = load_policy("dense");
    trial.options.batch = 2;
    trial.options.sequence.text_tokens = 20;
    trial.text_lengths = {20, 7};
    const TrialResult result = run_trial(trial, 2);
    const TrialResult one = run_trial(trial, 1);
    // Call 2 is layer 1, the conditional branch.
    Tensor q = input_of(trial, 3, 1, Branch::kConditional, 0), k = input_of(trial, 3, 1, Branch::kConditional, 1),
           v = input_of(trial, 3, 1, Branch::kConditional, 2);
    const std::int64_t end = trial.options.sequence.tokens();
    const std::pair<std::int64_t, std::int64_t> hidden[] = {{end, end}, {end - 13, end}};
    ASSERT_EQ(one.masks[2][0].size(), sparse ? 1u : 0u);
    const BlockMask* mask = sparse ? &one.masks[2][0][0] : nullptr;
    EXPECT_LT(relative_error(result.outputs[2], reference(q, k, v, mask, hidden)), 1e-5);
  }
}

// RMS norm over all heads of a token, then interleaved rotation, both in double here.
void rope_norm_truth(Tensor& t, const std::vector<float>& weight, const TrialPrologue& p) {
  auto* x = reinterpret_cast<float*>(t.bytes.data());
  const std::int64_t hidden = t.shape[2] * t.shape[3], half = t.shape[3] / 2;
  for (std::int64_t token = 0; token < t.shape[1]; ++token, x += hidden) {
    double square = 0;
    for (std::int64_t i = 0; i < hidden; ++i) square += static_cast<double>(x[i]) * x[i];
    const double factor = 1.0 / std::sqrt(square / static_cast<double>(hidden) + 1e-6);
    for (std::int64_t i = 0; i < hidden; i += 2) {
      const std::size_t angle = static_cast<std::size_t>(token * half + i % t.shape[3] / 2);
      const double a = x[i] * factor * weight[i], b = x[i + 1] * factor * weight[i + 1];
      x[i] = static_cast<float>(a * p.cos[angle] - b * p.sin[angle]);
      x[i + 1] = static_cast<float>(a * p.sin[angle] + b * p.cos[angle]);
    }
  }
}

TEST(Engine, PrologueNormsOverAllHeadsAndRotates) {
  Trial trial = small_sparse();
  trial.options.policy = load_policy("dense");
  trial.options.layers = 1;
  trial.prologue = true;
  const TrialPrologue weights(trial);
  Tensor q = input_of(trial, 3, 0, Branch::kConditional, 0), k = input_of(trial, 3, 0, Branch::kConditional, 1),
         v = input_of(trial, 3, 0, Branch::kConditional, 2);
  rope_norm_truth(q, weights.norm_q, weights);
  rope_norm_truth(k, weights.norm_k, weights);
  const std::vector<double> truth = reference(q, k, v, nullptr, {});
  for (int ranks : {1, 3}) EXPECT_LT(relative_error(run_trial(trial, ranks).outputs[0], truth), 1e-5) << ranks;
}

TEST(Engine, BooksDenseCallsAsAllPairs) {
  Trial trial = small_sparse();
  trial.options.policy = load_policy("dense");
  const EngineStats stats = run_trial(trial, 1).stats[0];
  const double n = static_cast<double>(trial.options.sequence.tokens());
  EXPECT_EQ(stats.kept_by_step, (std::vector<double>{0, 0, 0, 4 * 6 * n * n}));  // 2 layers, 2 branches, 6 heads
  EXPECT_EQ(stats.kept_by_step, stats.all_by_step);
  EXPECT_EQ(stats.kept_by_layer, (std::vector<double>{2 * 6 * n * n, 2 * 6 * n * n}));
  EXPECT_EQ(stats.kept_by_head[1], std::vector<double>(6, 2 * n * n));
  EXPECT_GT(stats.attention_s, 0);
  EXPECT_EQ(stats.communication_s, 0);
}

TEST(Engine, BooksSparseCallsByTheirMasks) {
  Trial trial = small_sparse();
  trial.steps_run = {0, 3};
  const TrialResult result = run_trial(trial, 1);
  const EngineStats& stats = result.stats[0];
  double kept = 0, all = 0;
  for (std::size_t i = 0; i < result.masks.size(); ++i) {
    const double n = static_cast<double>(trial.options.sequence.tokens());
    all += 6 * n * n;
    kept += result.masks[i][0].empty() ? 6 * n * n : static_cast<double>(kept_pairs(result.masks[i][0][0]));
  }
  EXPECT_EQ(stats.kept_by_step[0] + stats.kept_by_step[3], kept);
  EXPECT_EQ(stats.all_by_step[0] + stats.all_by_step[3], all);
  EXPECT_LT(stats.kept_by_step[3], stats.all_by_step[3]);
  EXPECT_EQ(stats.kept_by_step[0], stats.all_by_step[0]);  // warm-up
  EXPECT_GT(stats.select_s, 0);
}

std::vector<std::string> routes_of(const EngineStats& stats, const std::string& what) {
  std::vector<std::string> found;
  for (const Route& r : stats.routes) {
    EXPECT_FALSE(r.why.empty());
    if (r.what == what) found.push_back(r.route);
  }
  return found;
}

TEST(Engine, RoutesSayWhatRanAndWhy) {
  Trial trial = small_sparse();
  trial.steps_run = {0, 3};
  trial.options.policy.dense_layers = {1};
  const EngineStats stats = run_trial(trial, 2).stats[0];
  EXPECT_EQ(routes_of(stats, "attention"),
            std::vector<std::string>{"cpu-highway/" + attention_target(trial.options.dtype)});
  EXPECT_EQ(routes_of(stats, "parallel"), std::vector<std::string>{"ulysses"});
  EXPECT_EQ(routes_of(stats, "dense calls"), (std::vector<std::string>{"warm-up", "dense layer"}));
  EXPECT_EQ(routes_of(stats, "selection"), std::vector<std::string>{"pooled_softmax/top_k"});
  trial.options.policy = load_policy("dense");
  EXPECT_EQ(routes_of(run_trial(trial, 1).stats[0], "dense calls"), std::vector<std::string>{"policy"});
}

// One rank, one layer, by hand.
struct Single {
  explicit Single(const Trial& t)
      : trial(t),
        fabric(make_self_fabric()),
        threads(1),
        engine(t.options, *fabric, threads),
        q(input_of(t, 3, 0, Branch::kConditional, 0)),
        k(input_of(t, 3, 0, Branch::kConditional, 1)),
        v(input_of(t, 3, 0, Branch::kConditional, 2)),
        out(t.options.dtype, t.shape()) {
    call.step = 3, call.steps = 4;
  }
  void attend() { engine.attend(call, q.view(), k.view(), v.view(), out.view()); }

  Trial trial;
  std::unique_ptr<Fabric> fabric;
  Threads threads;
  Engine engine;
  Tensor q, k, v, out;
  AttendCall call;
};

TEST(Engine, ResetForgetsMasksAndBooks) {
  Single s(small_sparse());
  s.call.steps = 50, s.call.step = 40;
  s.attend();
  ASSERT_NE(s.engine.mask(0, Branch::kConditional), nullptr);
  const BlockMask old = *s.engine.mask(0, Branch::kConditional);
  s.q = random_tensor(DType::kF32, s.trial.shape(), 77);
  s.call.step = 41;
  s.attend();
  EXPECT_TRUE(*s.engine.mask(0, Branch::kConditional) == old);  // the same interval: remembered
  s.engine.reset();
  EXPECT_EQ(s.engine.mask(0, Branch::kConditional), nullptr);
  EXPECT_TRUE(s.engine.stats().kept_by_step.empty());
  EXPECT_EQ(s.engine.stats().attention_s, 0);
  s.call.step = 42;
  s.attend();
  EXPECT_FALSE(*s.engine.mask(0, Branch::kConditional) == old);  // a new video must not see the old one's mask
}

TEST(Engine, MasksAreKeptOnlyWhenAsked) {
  Trial trial = small_sparse();
  trial.options.keep_masks = false;
  Single s(trial);
  s.attend();
  EXPECT_EQ(s.engine.mask(0, Branch::kConditional), nullptr);
}

TEST(Engine, RefusesCallsThatMakeNoSense) {
  Single s(small_sparse());
  expect_mentions(caught([&] { s.engine.finish(s.v.view(), s.out.view()); }), {"without begin"});
  s.engine.begin(s.call, s.q.view(), s.k.view());
  expect_mentions(caught([&] { s.engine.begin(s.call, s.q.view(), s.k.view()); }), {"begin was called twice"});
  s.engine.finish(s.v.view(), s.out.view());

  const auto refused = [&](auto change) {
    AttendCall call = s.call;
    change(call);
    return caught([&] { s.engine.begin(call, s.q.view(), s.k.view()); });
  };
  expect_mentions(refused([](AttendCall& c) { c.step = 4; }), {"step 4 of 4"});
  expect_mentions(refused([](AttendCall& c) { c.step = -1; }), {"step -1"});
  expect_mentions(refused([](AttendCall& c) { c.layer = 2; }), {"layer 2", "2 layers"});
  expect_mentions(refused([](AttendCall& c) { c.text_lengths = {0, 0}; }), {"2 text lengths", "batch of 1"});
  expect_mentions(refused([](AttendCall& c) { c.text_lengths = {1}; }), {"text length is 1", "0 text tokens"});
  const float one = 1;
  expect_mentions(refused([&](AttendCall& c) { c.prologue.rope_cos = &one; }), {"rope_sin"});
  EXPECT_THROW(s.engine.mask(2, Branch::kConditional), Error);
}

TEST(Engine, RefusesTensorsThatDoNotFit) {
  Single s(small_sparse());
  const auto refused = [&](const Tensor& wrong) {
    Tensor copy = wrong;
    return caught([&] { s.engine.begin(s.call, copy.view(), s.k.view()); });
  };
  expect_mentions(refused(Tensor(DType::kF32, {1, 230, 6, 16})), {"q is [1, 230, 6, 16]", "[1, 231, 6, 16]"});
  expect_mentions(refused(Tensor(DType::kF32, {1, 231, 3, 16})), {"q is [1, 231, 3, 16]"});
  expect_mentions(refused(Tensor(DType::kF16, s.q.shape)), {"q is f16"});
  expect_mentions(refused(Tensor(DType::kBf16, s.q.shape)), {"q is bf16 and k is f32"});
  s.engine.begin(s.call, s.q.view(), s.k.view());
  Tensor half(DType::kBf16, s.q.shape);
  expect_mentions(caught([&] { s.engine.finish(half.view(), s.out.view()); }), {"v is bf16"});
}

TEST(Engine, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](auto change) {
    Trial trial = small_sparse();
    change(trial.options);
    return caught([&] { Single s(trial); });
  };
  expect_mentions(refused([](EngineOptions& o) { o.head_dim = 12; }), {"head dimension is 12"});
  expect_mentions(refused([](EngineOptions& o) { o.head_dim = 512; }), {"head dimension is 512"});
  expect_mentions(refused([](EngineOptions& o) { o.heads = 0; }), {"heads is 0"});
  expect_mentions(refused([](EngineOptions& o) { o.batch = 0; }), {"batch is 0"});
  EXPECT_EQ(caught([] {
              run_ranks(3, 10, [](Fabric& f) {
                Trial trial = small_sparse();
                trial.options.heads = 2;
                const Threads threads(1);
                Engine engine(trial.options, f, threads);
              });
            }).code(),
            ErrorCode::kInvalidArgument);
}

// --- ranks that do not agree, or fail ---

Error caught_on_ranks(int ranks, const std::function<void(Fabric&, Trial&)>& change) {
  return caught([&] {
    run_ranks(ranks, 30, [&](Fabric& f) {
      Trial trial = small_sparse();
      change(f, trial);
      const Threads threads(1);
      Engine engine(trial.options, f, threads);
    });
  });
}

TEST(EngineRanks, DifferentPoliciesAreNamed) {
  const Error e = caught_on_ranks(3, [](Fabric& f, Trial& t) {
    if (f.rank() == 2) t.options.policy = load_policy("dense");
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  expect_mentions(e, {"rank 2 and rank 0 differ in: policy;"});
}

TEST(EngineRanks, DifferentGridsAreNamed) {
  // As many tokens, so that the plans are equal.
  expect_mentions(caught_on_ranks(2,
                                  [](Fabric& f, Trial& t) {
                                    if (f.rank() == 1) t.options.sequence.grid = {7, 3, 11};
                                  }),
                  {"rank 1 and rank 0 differ in: shape"});
  expect_mentions(caught_on_ranks(2,
                                  [](Fabric& f, Trial& t) {
                                    if (f.rank() == 1) t.options.sequence.grid = {7, 3, 12};
                                  }),
                  {"plan", "shape"});
}

// Attends once on every rank; `change` alters the call of a rank.
Error caught_in_call(int ranks, const std::function<void(Fabric&, AttendCall&)>& change) {
  return caught([&] {
    run_ranks(ranks, 30, [&](Fabric& f) {
      const Trial trial = small_sparse();
      const Threads threads(1);
      Engine engine(trial.options, f, threads);
      Tensor x = random_tensor(DType::kF32, trial.shape(), 1), out(DType::kF32, trial.shape());
      AttendCall call;
      call.step = 3, call.steps = 4;
      change(f, call);
      const Range local = engine.local_tokens();
      engine.attend(call, x.view(local), x.view(local), x.view(local), out.view(local));
    });
  });
}

TEST(EngineRanks, CallsThatDivergeAreAnError) {
  const Error e = caught_in_call(3, [](Fabric& f, AttendCall& c) {
    if (f.rank() == 1) c.layer = 1;
  });
  EXPECT_EQ(e.code(), ErrorCode::kInternal);
  expect_mentions(e, {"diverged", "step 3 of 4, layer 0", "step 3 of 4, layer 1"});
}

TEST(EngineRanks, ALostRankEndsAllWithinTenSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const Error e = caught_in_call(5, [](Fabric& f, AttendCall&) {
    if (f.rank() == 3) throw Error(ErrorCode::kNotFinite, "NaN on rank 3");
  });
  EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace tulle
