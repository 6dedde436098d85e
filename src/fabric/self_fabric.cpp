#include <cstring>
#include <mutex>
#include <optional>

#include "base/fail.hpp"
#include "fabric/parts.hpp"
#include "tulle/fabric.hpp"

namespace tulle {
namespace {

class SelfFabric final : public Fabric {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_to_all(SendParts send, RecvParts recv, const char* phase) override {
    throw_if_aborted();
    check_parts("the send list of all_to_all", send.size(), 1);
    copy("all_to_all", send[0], recv, phase);
  }

  void all_gather(std::span<const std::byte> send, RecvParts recv, const char* phase) override {
    throw_if_aborted();
    copy("all_gather", send, recv, phase);
  }

  void barrier(const char*) override { throw_if_aborted(); }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
  }

  std::vector<std::int64_t> bytes_sent() const override { return {0}; }

 private:
  static void copy(const char* operation, std::span<const std::byte> from, RecvParts recv, const char* phase) {
    check_parts("the receive list", recv.size(), 1);
    if (from.size() != recv[0].size()) {
      fail(ErrorCode::kInternal, "in {} (phase \"{}\") rank 0 sends {} bytes to rank 0, which expects {}", operation,
           phase, from.size(), recv[0].size());
    }
    if (!from.empty()) std::memcpy(recv[0].data(), from.data(), from.size());
  }

  void throw_if_aborted() const {
    const std::lock_guard lock(mutex_);
    if (reason_) fail(ErrorCode::kCancelled, "rank 0 stops: {}", *reason_);
  }

  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
};

}  // namespace

std::unique_ptr<Fabric> make_self_fabric() { return std::make_unique<SelfFabric>(); }

}  // namespace tulle
