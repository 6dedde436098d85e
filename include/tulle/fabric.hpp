// Fabric: ranks and the ways bytes move between them. It knows nothing of attention.
//
// One Fabric object belongs to one rank and is used by one thread at a time. All ranks call the same collectives in
// the same order with the same phase text; a call that does not match its peers' (operation, sequence number, phase) is
// Error(kInternal) on every rank, not a hang. Every wait is bounded by timeout_s; Error(kTimeout) names rank, peer,
// operation and phase. When one rank fails, abort() makes all others fail too, within a second. A Fabric that is
// destroyed is a lost rank: peers that wait for it, or call later, fail at once. A group that failed stays failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tulle {

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // send[p] goes to peer p and arrives in its recv[rank()]. The receiver must expect exactly the sent length, else
  // Error(kInternal) names both, and nothing is written. send and recv have size() entries; own parts are copied.
  // When the call returns, peers have read `send`. `phase` says what the bytes are; it is compared between ranks.
  virtual void all_to_all(std::span<const std::span<const std::byte>> send, std::span<const std::span<std::byte>> recv,
                          const char* phase) = 0;

  // Everyone's bytes to everyone: recv[p] gets what p sent. Lengths may differ by rank.
  virtual void all_gather(std::span<const std::byte> send, std::span<const std::span<std::byte>> recv,
                          const char* phase) = 0;

  virtual void barrier(const char* phase) = 0;

  // Marks the group as failed with a reason; every rank that waits or calls from now on throws Error(kCancelled or the
  // given code) with it. Safe to call from any thread.
  virtual void abort(const std::string& reason) = 0;

  // Bytes that this rank sent to each peer so far (own entry 0).
  virtual std::vector<std::int64_t> bytes_sent() const = 0;
};

// A group of one: collectives are copies.
std::unique_ptr<Fabric> make_self_fabric();

// N ranks as threads of this process; element r belongs to rank r. timeout_s bounds every wait.
// Throws Error(kInvalidArgument) unless 1 <= ranks <= 4096 and timeout_s > 0.
std::vector<std::unique_ptr<Fabric>> make_thread_fabrics(int ranks, double timeout_s);

// Runs body(fabric) on `ranks` threads and joins them. If bodies throw, the group is aborted and the first error (by
// time) is rethrown once all threads have ended. Ranks == 1 runs in the calling thread. Throws as make_thread_fabrics.
void run_ranks(int ranks, double timeout_s, const std::function<void(Fabric&)>& body);

}  // namespace tulle
