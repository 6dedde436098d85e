// One suite for every fabric: what a collective does, and how it fails.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>

#include "fabric/fabrics.hpp"
#include "tulle/error.hpp"

namespace tulle {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr double kLong = 60;    // never runs out in a healthy test
constexpr double kShort = 0.2;  // seconds

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Byte i of what `from` sends to `to` in round `round`: any mix-up of the three shows.
std::byte expected_byte(int from, int to, int round, std::size_t i) {
  return static_cast<std::byte>((static_cast<std::size_t>(from * 31 + to * 7 + round * 13) + i * 3) & 0xff);
}

std::size_t part_size(int from, int to, int round) {
  return static_cast<std::size_t>((from * 5 + to * 11 + round) % 17);
}

Bytes make_part(int from, int to, int round, std::size_t size) {
  Bytes part(size);
  for (std::size_t i = 0; i < size; ++i) part[i] = expected_byte(from, to, round, i);
  return part;
}

struct Exchange {
  std::vector<Bytes> out, in;
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> recv;

  void add(Bytes sent, std::size_t received) {
    out.push_back(std::move(sent));
    in.emplace_back(received);
  }
  void finish() {
    send.assign(out.begin(), out.end());
    recv.assign(in.begin(), in.end());
  }
};

Exchange ragged_exchange(int rank, int size, int round) {
  Exchange e;
  for (int p = 0; p < size; ++p) e.add(make_part(rank, p, round, part_size(rank, p, round)), part_size(p, rank, round));
  e.finish();
  return e;
}

// What everyone ended with: 0 for success.
struct Outcomes {
  std::mutex mutex;
  std::vector<ErrorCode> codes;
  std::vector<std::string> texts;

  void record(const RankBody& body, Fabric& fabric) {
    try {
      body(fabric);
    } catch (const Error& e) {
      const std::lock_guard lock(mutex);
      codes.push_back(e.code());
      texts.emplace_back(e.what());
      throw;
    }
  }
};

class FabricTest : public testing::TestWithParam<FabricCase> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(double timeout_s, const RankBody& body) const { GetParam().run(ranks(), timeout_s, body); }
  Error run_and_catch(double timeout_s, const RankBody& body) const {
    try {
      run(timeout_s, body);
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "no rank failed";
    return Error(ErrorCode::kInternal, "");
  }
};

// What needs somebody to disagree with.
class PeerTest : public FabricTest {};

TEST_P(FabricTest, RanksAreDistinct) {
  std::atomic<int> sum{0};
  run(kLong, [&](Fabric& f) {
    EXPECT_EQ(f.size(), ranks());
    EXPECT_GE(f.rank(), 0);
    sum += 1 << f.rank();
  });
  EXPECT_EQ(sum.load(), (1 << ranks()) - 1);
}

TEST_P(FabricTest, AllToAllDeliversRaggedParts) {
  run(kLong, [](Fabric& f) {
    for (int round = 0; round < 50; ++round) {
      Exchange e = ragged_exchange(f.rank(), f.size(), round);
      f.all_to_all(e.send, e.recv, "ragged");
      for (int p = 0; p < f.size(); ++p) {
        ASSERT_EQ(e.in[p], make_part(p, f.rank(), round, part_size(p, f.rank(), round))) << "from " << p;
      }
    }
  });
}

TEST_P(FabricTest, AllGatherDeliversLengthsThatDiffer) {
  run(kLong, [](Fabric& f) {
    for (int round = 0; round < 20; ++round) {
      Exchange e;
      for (int p = 0; p < f.size(); ++p) e.add({}, part_size(p, 0, round));
      e.finish();
      f.all_gather(make_part(f.rank(), 0, round, part_size(f.rank(), 0, round)), e.recv, "gather");
      for (int p = 0; p < f.size(); ++p) ASSERT_EQ(e.in[p], make_part(p, 0, round, part_size(p, 0, round)));
    }
  });
}

TEST_P(FabricTest, SendMayBeReusedAfterTheCall) {
  run(kLong, [](Fabric& f) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(f.size())), in(out.size());
    std::vector<std::span<const std::byte>> send;
    std::vector<std::span<std::byte>> recv;
    for (std::size_t p = 0; p < out.size(); ++p) {
      send.push_back(std::as_bytes(std::span(&out[p], 1)));
      recv.push_back(std::as_writable_bytes(std::span(&in[p], 1)));
    }
    for (std::int32_t round = 0; round < 200; ++round) {
      std::fill(out.begin(), out.end(), round * 100 + f.rank());
      f.all_to_all(send, recv, "reuse");
      for (std::size_t p = 0; p < in.size(); ++p) ASSERT_EQ(in[p], round * 100 + static_cast<std::int32_t>(p));
    }
  });
}

TEST_P(FabricTest, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  run(kLong, [&](Fabric& f) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      f.barrier("count");
      EXPECT_GE(arrived.load(), round * f.size());
    }
  });
}

TEST_P(FabricTest, CountsBytesToPeersOnly) {
  run(kLong, [](Fabric& f) {
    std::vector<std::int64_t> expected(static_cast<std::size_t>(f.size()), 0);
    for (int round = 0; round < 3; ++round) {
      Exchange e = ragged_exchange(f.rank(), f.size(), round);
      f.all_to_all(e.send, e.recv, "count");
      Bytes whole(10);
      for (Bytes& in : e.in) in.resize(10);
      e.finish();
      f.all_gather(whole, e.recv, "count");
      for (int p = 0; p < f.size(); ++p) {
        if (p != f.rank()) expected[p] += static_cast<std::int64_t>(part_size(f.rank(), p, round)) + 10;
      }
    }
    EXPECT_EQ(f.bytes_sent(), expected);
  });
}

TEST_P(FabricTest, SizesThatDifferAreAnErrorThatNamesBoth) {
  const Error e = run_and_catch(kLong, [](Fabric& f) {
    Exchange x = ragged_exchange(f.rank(), f.size(), 0);
    if (f.rank() == f.size() - 1) x.in[0].resize(x.in[0].size() + 9);
    x.finish();
    f.all_to_all(x.send, x.recv, "layer 3");
  });
  EXPECT_EQ(e.code(), ErrorCode::kInternal);
  const std::string text = e.what();
  const std::size_t sent = part_size(0, ranks() - 1, 0);
  EXPECT_NE(text.find("sends " + std::to_string(sent) + " bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("expects " + std::to_string(sent + 9)), std::string::npos) << text;
  EXPECT_NE(text.find("layer 3"), std::string::npos) << text;
}

TEST_P(FabricTest, WrongNumberOfPartsIsRefused) {
  const Error e = run_and_catch(kLong, [](Fabric& f) {
    Exchange x = ragged_exchange(f.rank(), f.size(), 0);
    if (f.rank() == 0) x.send.push_back({});
    f.all_to_all(x.send, x.recv, "parts");
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
}

TEST_P(PeerTest, DivergedOperationsAreAnErrorEverywhere) {
  Outcomes outcomes;
  const auto start = Clock::now();
  run_and_catch(kLong, [&](Fabric& f) {
    outcomes.record(
        [](Fabric& g) {
          g.barrier("together");
          if (g.rank() != 0) return g.barrier("mine");
          Exchange x = ragged_exchange(0, g.size(), 0);
          g.all_to_all(x.send, x.recv, "mine");
        },
        f);
  });
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(outcomes.codes, std::vector<ErrorCode>(static_cast<std::size_t>(ranks()), ErrorCode::kInternal));
  EXPECT_NE(outcomes.texts[0].find("diverged"), std::string::npos) << outcomes.texts[0];
  EXPECT_NE(outcomes.texts[0].find("number 2"), std::string::npos) << outcomes.texts[0];
}

TEST_P(PeerTest, DivergedPhasesAreAnError) {
  const Error e = run_and_catch(kLong, [](Fabric& f) { f.barrier(f.rank() == 0 ? "step 1" : "step 2"); });
  EXPECT_EQ(e.code(), ErrorCode::kInternal);
  EXPECT_NE(std::string(e.what()).find("step 2"), std::string::npos) << e.what();
}

TEST_P(PeerTest, ABodyThatThrowsEndsAllAndIsRethrown) {
  Outcomes outcomes;
  const auto start = Clock::now();
  const Error e = run_and_catch(kLong, [&](Fabric& f) {
    if (f.rank() == 1) throw Error(ErrorCode::kNotFinite, "NaN in layer 7");
    outcomes.record([](Fabric& g) { g.barrier("wait for rank 1"); }, f);
  });
  EXPECT_LT(seconds_since(start), 1.0 + 1.0);
  EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
  EXPECT_EQ(outcomes.codes.size(), static_cast<std::size_t>(ranks() - 1));
}

TEST_P(FabricTest, ForeignExceptionsAreRethrownAsTheyAre) {
  EXPECT_THROW(run(kLong,
                   [](Fabric& f) {
                     if (f.rank() == f.size() - 1) throw std::out_of_range("foreign");
                     f.barrier("wait");
                   }),
               std::out_of_range);
}

TEST_P(PeerTest, ABodyThatReturnsEarlyEndsAll) {
  const auto start = Clock::now();
  const Error e = run_and_catch(kLong, [](Fabric& f) {
    f.barrier("first");
    if (f.rank() == 1) return;
    f.barrier("second");
  });
  EXPECT_LT(seconds_since(start), 2.0);
  EXPECT_EQ(e.code(), ErrorCode::kInternal);
  EXPECT_NE(std::string(e.what()).find("rank 1, which has ended"), std::string::npos) << e.what();
  EXPECT_NE(std::string(e.what()).find("second"), std::string::npos) << e.what();
}

TEST_P(FabricTest, RanksMayEndAtDifferentTimesWhenNobodyNeedsThem) {
  run(kLong, [](Fabric& f) {
    f.barrier("last");
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * f.rank()));
  });
}

TEST_P(PeerTest, ASlowPeerRunsIntoTheTimeOut) {
  std::atomic<bool> release{false};
  std::atomic<int> failed{0};
  const auto start = Clock::now();
  const Error e = run_and_catch(kShort, [&](Fabric& f) {
    if (f.rank() == 0) {
      while (!release && seconds_since(start) < 20) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      f.barrier("late");
      return;
    }
    try {
      f.barrier("late");
    } catch (const Error&) {
      if (++failed == f.size() - 1) release = true;
      throw;
    }
  });
  EXPECT_GE(seconds_since(start), kShort * 0.9);
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_EQ(failed.load(), ranks() - 1);
  const std::string text = e.what();
  for (const char* word : {"waits in barrier number 1", "late", "rank 0 (its last call: no call at all)", "0.2 s"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST_P(FabricTest, AbortWakesEveryoneAndLasts) {
  std::atomic<int> cancelled{0};
  run(kLong, [&](Fabric& f) {
    if (f.rank() == f.size() - 1) f.abort("the user asked for it");
    for (int again = 0; again < 2; ++again) {
      try {
        f.barrier("after abort");
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kCancelled);
        EXPECT_NE(std::string(e.what()).find("the user asked for it"), std::string::npos) << e.what();
        ++cancelled;
      }
    }
  });
  EXPECT_EQ(cancelled.load(), 2 * ranks());
}

// Ranks that fail in the middle of heavy traffic: memory that a peer may read must stay theirs (sanitizers watch).
TEST_P(FabricTest, FailingUnderTrafficIsSafe) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    EXPECT_THROW(run(kLong,
                     [&](Fabric& f) {
                       for (int round = 0;; ++round) {
                         Exchange e = ragged_exchange(f.rank(), f.size(), round);
                         if (f.rank() == attempt % f.size() && round == attempt * 3) f.abort("stop");
                         f.all_to_all(e.send, e.recv, "traffic");
                       }
                     }),
                 Error);
  }
}

std::string name_of(const testing::TestParamInfo<FabricCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, FabricTest, testing::ValuesIn(all_fabrics(1)), name_of);
INSTANTIATE_TEST_SUITE_P(All, PeerTest, testing::ValuesIn(all_fabrics(2)), name_of);

TEST(MakeThreadFabrics, RefusesNonsense) {
  EXPECT_THROW(make_thread_fabrics(0, 1), Error);
  EXPECT_THROW(make_thread_fabrics(5000, 1), Error);
  EXPECT_THROW(make_thread_fabrics(2, 0), Error);
  EXPECT_THROW(make_thread_fabrics(2, std::nan("")), Error);
  EXPECT_THROW(run_ranks(0, 1, [](Fabric&) {}), Error);
}

TEST(MakeThreadFabrics, ADestroyedFabricIsALostRank) {
  auto fabrics = make_thread_fabrics(2, kLong);
  fabrics[1].reset();
  const auto start = Clock::now();
  EXPECT_THROW(fabrics[0]->barrier("alone"), Error);
  EXPECT_LT(seconds_since(start), 2);
}

TEST(RunRanks, OneRankRunsInTheCallingThread) {
  std::thread::id seen;
  run_ranks(1, kLong, [&](Fabric&) { seen = std::this_thread::get_id(); });
  EXPECT_EQ(seen, std::this_thread::get_id());
}

}  // namespace
}  // namespace tulle
