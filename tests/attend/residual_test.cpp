// Residuals: what dropped blocks change in the output.
#include "attend/residual.hpp"

#include <gtest/gtest.h>

#include "attend/attend_cpu.hpp"
#include "compare.hpp"
#include "tulle/error.hpp"

namespace tulle::cases {
namespace {

AttentionCase shape(double density, DType dtype = DType::kF32) {
  AttentionCase c = ragged_case("residual", density);
  c.dtype = dtype;
  return c;
}

// A problem whose output was completed, with its residual.
struct Completed {
  Problem problem;
  std::vector<std::byte> bytes;
  TensorView residual;
};

Completed completed(const AttentionCase& c, std::int32_t tail) {
  Completed done{make_problem(c), {}, {}};
  const Threads threads(2);
  const TensorView out = done.problem.out.view;
  done.bytes.assign(done.problem.out.bytes.size(), std::byte{0x7f});  // every element must be written
  done.residual = {done.bytes.data(), out.dtype, out.shape, packed_strides(out.shape)};
  attend_cpu(done.problem.args(), {.tail = tail, .residual = done.residual}, threads);
  return done;
}

// The same problem with every block kept.
Problem whole_of(const AttentionCase& c) {
  Problem whole = make_problem(c);
  whole.mask.reset();
  attend_cpu(whole.args(), Threads(2));
  return whole;
}

TEST(Residual, CompletesToAllBlocks) {
  for (const double density : {0.1, 0.5, 1.0}) {
    Completed done = completed(shape(density), 0);
    Problem whole = whole_of(shape(density));
    const Exact truth = exact(whole);
    EXPECT_LE(distance_of_kernel(done.problem, truth).relative(),
              2 * distance_of_kernel(whole, truth).relative() + 1e-6);
    expect_lse(done.problem.lse, truth.lse);
  }
}

// The call it was made in, done again from the kept blocks alone, comes to the same.
TEST(Residual, StandsForTheDroppedBlocks) {
  for (const std::int32_t tail : {0, 8, 16}) {
    Completed done = completed(shape(0.3), tail);
    Problem again = make_problem(shape(0.3));
    const Threads threads(2);
    attend_cpu(again.args(), Dropped{.tail = tail}, threads);
    add_scaled(again.out.view, again.out.view, 1.0f, done.residual, threads);
    Problem whole = whole_of(shape(0.3));
    const Exact truth = exact(whole);
    EXPECT_LE(distance_of_kernel(again, truth).relative(), 4 * distance_of_kernel(whole, truth).relative() + 1e-6)
        << tail;
  }
}

TEST(Residual, IsZeroWhereNothingIsDropped) {
  Completed done = completed(shape(1.0), 0);
  Problem whole = whole_of(shape(1.0));
  EXPECT_EQ(done.problem.out.bytes, whole.out.bytes);
  for (std::int64_t i = 0; i < done.residual.elements(); ++i)
    EXPECT_EQ(static_cast<float*>(done.residual.data)[i], 0.0f);
}

TEST(Residual, DoesNotDependOnThreads) {
  const AttentionCase c = shape(0.2, DType::kBf16);
  std::vector<std::vector<std::byte>> outs;
  for (const int width : {1, 3}) {
    Problem p = make_problem(c);
    const Threads threads(width);
    std::vector<std::byte> bytes(p.out.bytes.size());
    const TensorView residual{bytes.data(), p.out.view.dtype, p.out.view.shape, packed_strides(p.out.view.shape)};
    attend_cpu(p.args(), {.tail = 8, .residual = residual}, threads);
    outs.push_back(bytes);
  }
  EXPECT_EQ(outs[0], outs[1]);
}

TEST(Residual, RefusesWhatDoesNotFit) {
  Problem p = make_problem(shape(0.5));
  const Threads threads(1);
  TensorView small = p.out.view;
  small.shape[1] -= 1;
  EXPECT_THROW(attend_cpu(p.args(), {.tail = 0, .residual = small}, threads), Error);
  EXPECT_THROW(add_scaled(p.out.view, p.out.view, 1.0f, small, threads), Error);
  AttentionArgs args = p.args();
  args.mask = nullptr;
  EXPECT_THROW(attend_cpu(args, {.tail = 0, .residual = p.out.view}, threads), Error);
}

}  // namespace
}  // namespace tulle::cases
