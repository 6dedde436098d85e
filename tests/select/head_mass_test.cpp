#include "select/head_mass.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/half.hpp"
#include "tests/calibrate/calibrate_data.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using testing_data::block_sums;
using testing_data::Call;
using testing_data::softmax_row;

std::vector<float> all_blocks(const Call& call, std::int64_t head, int width = 2) {
  const Threads threads(width);
  std::vector<float> out(static_cast<std::size_t>(call.q_blocks.count() * call.k_blocks.count()), -1.0f);
  HeadMass(call.q.view(), call.k.view(), 0, head, call.q_blocks, call.k_blocks, {}, threads).blocks(out, threads);
  return out;
}

std::vector<float> all_rows(const Call& call, std::int64_t head, int width = 2) {
  const Threads threads(width);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(call.q_blocks.tokens()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<float> out(rows.size() * static_cast<std::size_t>(call.k_blocks.count()), -1.0f);
  HeadMass(call.q.view(), call.k.view(), 0, head, call.q_blocks, call.k_blocks, {}, threads).rows(rows, out, threads);
  return out;
}

// Ragged blocks, query and key blocks of other sizes.
const Call& ragged() {
  static const Call call("3x5x7", 16, 8, 3, 16, 1);
  return call;
}

TEST(HeadMass, RowsAreSoftmaxSumsOverBlocks) {
  const Call& call = ragged();
  for (std::int64_t head : {0, 2}) {
    const std::vector<float> rows = all_rows(call, head);
    for (std::int64_t i = 0; i < call.q_blocks.tokens(); ++i) {
      const auto want = block_sums(softmax_row(call, head, i), call.k_blocks);
      for (std::size_t v = 0; v < want.size(); ++v) {
        EXPECT_NEAR(rows[static_cast<std::size_t>(i) * want.size() + v], want[v], 3e-6) << head << " " << i << " " << v;
      }
    }
  }
}

TEST(HeadMass, BlocksAreMeansOverTheirRealRows) {
  const Call& call = ragged();
  const std::vector<float> rows = all_rows(call, 1), blocks = all_blocks(call, 1);
  const auto columns = static_cast<std::size_t>(call.k_blocks.count());
  for (std::int64_t u = 0; u < call.q_blocks.count(); ++u) {
    double row_sum = 0;
    for (std::size_t v = 0; v < columns; ++v) {
      double mean = 0;
      for (std::int64_t i = call.q_blocks.begin(u); i < call.q_blocks.end(u); ++i) {
        mean += double{rows[static_cast<std::size_t>(i) * columns + v]} / static_cast<double>(call.q_blocks.size(u));
      }
      EXPECT_NEAR(blocks[static_cast<std::size_t>(u) * columns + v], mean, 1e-6);
      row_sum += mean;
    }
    EXPECT_NEAR(row_sum, 1.0, 1e-5);
  }
}

TEST(HeadMass, DoesNotDependOnThreads) {
  EXPECT_EQ(all_blocks(ragged(), 0, 1), all_blocks(ragged(), 0, 5));
  EXPECT_EQ(all_rows(ragged(), 0, 1), all_rows(ragged(), 0, 5));
}

TEST(HeadMass, Bf16IsMeasuredAsItsValues) {
  Call call = ragged();
  std::vector<Bf16> q, k;
  for (float& x : call.q.values) q.push_back(from_f32<Bf16>(x)), x = to_f32(q.back());
  for (float& x : call.k.values) k.push_back(from_f32<Bf16>(x)), x = to_f32(k.back());
  const Threads threads(1);
  std::vector<float> out(static_cast<std::size_t>(call.q_blocks.count() * call.k_blocks.count()));
  const ConstTensorView qv = view_of(q.data(), call.q.shape), kv = view_of(k.data(), call.k.shape);
  HeadMass(qv, kv, 0, 2, call.q_blocks, call.k_blocks, {}, threads).blocks(out, threads);
  EXPECT_EQ(out, all_blocks(call, 2));
}

TEST(HeadMass, RefusesWhatItIsNotFor) {
  const Call& call = ragged();
  const Threads threads(1);
  const auto measure = [&](ConstTensorView q, std::int64_t head, BlockPartition blocks) {
    HeadMass(q, call.k.view(), 0, head, blocks, call.k_blocks, {}, threads);
  };
  EXPECT_NO_THROW(measure(call.q.view(), 0, call.q_blocks));
  EXPECT_THROW(measure(call.q.view(), 3, call.q_blocks), Error) << "no such head";
  BlockPartition text = call.q_blocks;
  text.sequence.text_tokens = 4;
  EXPECT_THROW(measure(call.q.view(), 0, text), Error) << "4 tokens too few";
  ConstTensorView two = call.q.view();
  two.shape[0] = 2;
  EXPECT_THROW(measure(two, 0, call.q_blocks), Error) << "another batch than the keys'";
  const std::vector<std::pair<std::int64_t, std::int64_t>> none;
  EXPECT_THROW(HeadMass(call.q.view(), call.k.view(), 1, 0, call.q_blocks, call.k_blocks, none, threads), Error);
  ConstTensorView few = call.q.view();
  few.shape[1] -= 1;
  EXPECT_THROW(measure(few, 0, call.q_blocks), Error);
}

}  // namespace
}  // namespace tulle
