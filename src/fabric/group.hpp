// What the ranks of a thread fabric share: one meeting point, where every collective starts and ends.
//
//     post ──► last one to arrive checks all ──► all copy ──► last one to finish lets all go
//
// Nothing is copied before everything was checked, so that a failing rank never takes back memory that a peer reads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tulle/error.hpp"

namespace tulle {

enum class Collective : std::uint8_t { kAllToAll, kAllGather, kBarrier };
const char* to_string(Collective operation);

using SendParts = std::span<const std::span<const std::byte>>;
using RecvParts = std::span<const std::span<std::byte>>;

// One rank's side of a collective. `send` has one part a peer, or a single part for all of them.
struct Posted {
  Collective operation = Collective::kBarrier;
  SendParts send;
  RecvParts recv;
  std::string phase;
  std::int64_t sequence = 0;  // 0: nothing was called yet

  std::span<const std::byte> part_for(std::size_t peer) const { return send.size() == 1 ? send[0] : send[peer]; }
};

class Group {
 public:
  Group(int ranks, double timeout_s);

  int size() const { return static_cast<int>(posted_.size()); }

  // Runs one collective for `rank`: returns when all ranks have copied what is theirs. Throws Error, see Fabric.
  void meet(int rank, Collective operation, SendParts send, RecvParts recv, const char* phase);

  // Marks the group as failed; the first failure wins. Any thread.
  void fail_all(ErrorCode code, const std::string& reason);

  // `rank` will call no more collectives.
  void leave(int rank);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void post(Lock& lock, int rank, Collective operation, SendParts send, RecvParts recv, const char* phase);
  void start_if_complete(Lock& lock);
  void wait_for_peers(Lock& lock, int rank);
  void copy_parts(int rank) const;
  void wait_for_copies(Lock& lock);
  std::string mismatch() const;
  std::string size_mismatch(std::size_t from, std::size_t to) const;
  std::string waiting_text(int rank, const std::string& peers) const;
  std::string missing_peers(int rank) const;
  int gone_peer(int rank) const;
  void fail_locked(ErrorCode code, const std::string& reason);
  void throw_if_failed(Lock& lock, int rank) const;

  std::chrono::duration<double> timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Posted> posted_;  // [rank], the current or last call
  std::vector<char> gone_;      // [rank]
  std::int64_t started_ = 0;    // sequence number of the last collective that all ranks entered
  int copying_ = 0;             // ranks that still copy in it
  bool failed_ = false;
  ErrorCode code_ = ErrorCode::kCancelled;
  std::string reason_;
};

}  // namespace tulle
