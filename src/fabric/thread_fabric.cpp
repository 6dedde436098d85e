#include "base/fail.hpp"
#include "fabric/group.hpp"
#include "fabric/parts.hpp"
#include "tulle/fabric.hpp"

namespace tulle {
namespace {

constexpr int kMostRanks = 4096;

class ThreadFabric final : public Fabric {
 public:
  ThreadFabric(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), sent_(static_cast<std::size_t>(group_->size()), 0) {}
  ~ThreadFabric() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_to_all(SendParts send, RecvParts recv, const char* phase) override {
    checked([&] {
      check_parts("the send list of all_to_all", send.size(), size());
      check_parts("the receive list of all_to_all", recv.size(), size());
    });
    group_->meet(rank_, Collective::kAllToAll, send, recv, phase);
    count_parts(sent_, rank_, send);
  }

  void all_gather(std::span<const std::byte> send, RecvParts recv, const char* phase) override {
    checked([&] { check_parts("the receive list of all_gather", recv.size(), size()); });
    const SendParts one(&send, 1);
    group_->meet(rank_, Collective::kAllGather, one, recv, phase);
    count_parts(sent_, rank_, one);
  }

  void barrier(const char* phase) override { group_->meet(rank_, Collective::kBarrier, {}, {}, phase); }

  void abort(const std::string& reason) override { group_->fail_all(ErrorCode::kCancelled, reason); }

  std::vector<std::int64_t> bytes_sent() const override { return sent_; }

 private:
  // A rank that cannot make the call at all must not leave its peers waiting for it.
  template <class Check>
  void checked(const Check& check) {
    try {
      check();
    } catch (const Error& e) {
      group_->fail_all(e.code(), fmt::format("rank {}: {}", rank_, e.what()));
      throw;
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::vector<std::int64_t> sent_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_thread_fabrics(int ranks, double timeout_s) {
  require(ranks >= 1 && ranks <= kMostRanks, "{} ranks cannot be threads of one process: 1 to {} can", ranks,
          kMostRanks);
  // The upper bound keeps the deadline inside the clock's range.
  require(timeout_s > 0 && timeout_s <= 1e8, "a time-out of {} s was given: it must be above 0 and at most 1e8",
          timeout_s);
  const auto group = std::make_shared<Group>(ranks, timeout_s);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int r = 0; r < ranks; ++r) fabrics.push_back(std::make_unique<ThreadFabric>(group, r));
  return fabrics;
}

}  // namespace tulle
