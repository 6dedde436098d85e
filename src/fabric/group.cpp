#include "fabric/group.hpp"

#include <algorithm>
#include <cstring>

#include "base/fail.hpp"

namespace tulle {

const char* to_string(Collective operation) {
  switch (operation) {
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kBarrier:
      return "barrier";
  }
  return "unknown";
}

namespace {

std::string name_of(const Posted& call) {
  return fmt::format("{} number {} (phase \"{}\")", to_string(call.operation), call.sequence, call.phase);
}

bool same_call(const Posted& a, const Posted& b) {
  return a.operation == b.operation && a.sequence == b.sequence && a.phase == b.phase;
}

}  // namespace

Group::Group(int ranks, double timeout_s)
    : timeout_(timeout_s), posted_(static_cast<std::size_t>(ranks)), gone_(static_cast<std::size_t>(ranks), 0) {}

void Group::meet(int rank, Collective operation, SendParts send, RecvParts recv, const char* phase) {
  Lock lock(mutex_);
  throw_if_failed(lock, rank);
  post(lock, rank, operation, send, recv, phase);
  start_if_complete(lock);
  wait_for_peers(lock, rank);
  lock.unlock();
  copy_parts(rank);
  lock.lock();
  wait_for_copies(lock);
  throw_if_failed(lock, rank);
}

void Group::post(Lock&, int rank, Collective operation, SendParts send, RecvParts recv, const char* phase) {
  Posted& mine = posted_[static_cast<std::size_t>(rank)];
  mine.operation = operation;
  mine.send = send;
  mine.recv = recv;
  mine.phase = phase;
  ++mine.sequence;
}

// The last rank to arrive checks the call of everyone before anyone copies.
void Group::start_if_complete(Lock&) {
  const auto arrived = [&](const Posted& p) { return p.sequence > started_; };
  if (!std::all_of(posted_.begin(), posted_.end(), arrived)) return;
  if (const std::string difference = mismatch(); !difference.empty()) {
    fail_locked(ErrorCode::kInternal, difference);
    return;
  }
  ++started_;
  copying_ = size();
  changed_.notify_all();
}

// The calls of a group that is about to start differ: "" if they do not.
std::string Group::mismatch() const {
  for (std::size_t r = 1; r < posted_.size(); ++r) {
    if (same_call(posted_[0], posted_[r])) continue;
    return fmt::format(
        "ranks have diverged: rank 0 calls {} while rank {} calls {}; all ranks must make the same calls",
        name_of(posted_[0]), r, name_of(posted_[r]));
  }
  if (posted_[0].operation == Collective::kBarrier) return "";
  for (std::size_t from = 0; from < posted_.size(); ++from) {
    for (std::size_t to = 0; to < posted_.size(); ++to) {
      if (std::string text = size_mismatch(from, to); !text.empty()) return text;
    }
  }
  return "";
}

std::string Group::size_mismatch(std::size_t from, std::size_t to) const {
  const std::size_t sent = posted_[from].part_for(to).size();
  const std::size_t expected = posted_[to].recv[from].size();
  if (sent == expected) return "";
  return fmt::format("in {} rank {} sends {} bytes to rank {}, which expects {}: the ranks' plans differ",
                     name_of(posted_[from]), from, sent, to, expected);
}

void Group::wait_for_peers(Lock& lock, int rank) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout_);
  const std::int64_t mine = posted_[static_cast<std::size_t>(rank)].sequence;
  // A call that has started is finished even if the group fails meanwhile: peers count on it.
  while (started_ < mine) {
    throw_if_failed(lock, rank);
    if (const int peer = gone_peer(rank); peer >= 0) {
      fail_locked(ErrorCode::kInternal, waiting_text(rank, fmt::format("rank {}, which has ended", peer)));
    } else if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && started_ < mine && !failed_) {
      fail_locked(ErrorCode::kTimeout, fmt::format("{} for {:g} s; raise the time-out if the peer is only slow",
                                                   waiting_text(rank, missing_peers(rank)), timeout_.count()));
    }
  }
}

std::string Group::waiting_text(int rank, const std::string& peers) const {
  return fmt::format("rank {} waits in {} for {}", rank, name_of(posted_[static_cast<std::size_t>(rank)]), peers);
}

std::string Group::missing_peers(int rank) const {
  const std::int64_t mine = posted_[static_cast<std::size_t>(rank)].sequence;
  std::string text;
  for (std::size_t p = 0; p < posted_.size(); ++p) {
    if (posted_[p].sequence >= mine) continue;
    const std::string last = posted_[p].sequence == 0 ? "no call at all" : name_of(posted_[p]);
    text += fmt::format("{}rank {} (its last call: {})", text.empty() ? "" : ", ", p, last);
  }
  return text;
}

// A peer that has ended without the call that `rank` waits in, or -1.
int Group::gone_peer(int rank) const {
  const std::int64_t mine = posted_[static_cast<std::size_t>(rank)].sequence;
  for (std::size_t p = 0; p < posted_.size(); ++p) {
    if (gone_[p] != 0 && posted_[p].sequence < mine) return static_cast<int>(p);
  }
  return -1;
}

// Without the lock: from start to the last finish, parts are only read, and every rank writes its own recv alone.
void Group::copy_parts(int rank) const {
  const auto me = static_cast<std::size_t>(rank);
  const RecvParts recv = posted_[me].recv;
  for (std::size_t step = 0; step < recv.size(); ++step) {
    const std::size_t peer = (me + step) % recv.size();  // ranks start at different peers, to spread the reads
    const auto part = posted_[peer].part_for(me);
    if (!part.empty()) std::memcpy(recv[peer].data(), part.data(), part.size());
  }
}

// Waits without a time-out: every rank that copies is past its last wait, so that the copies alone bound this.
void Group::wait_for_copies(Lock& lock) {
  if (--copying_ == 0) changed_.notify_all();
  changed_.wait(lock, [&] { return copying_ == 0; });
}

void Group::fail_locked(ErrorCode code, const std::string& reason) {
  if (!failed_) {
    failed_ = true;
    code_ = code;
    reason_ = reason;
  }
  changed_.notify_all();
}

void Group::fail_all(ErrorCode code, const std::string& reason) {
  Lock lock(mutex_);
  fail_locked(code, reason);
}

void Group::leave(int rank) {
  Lock lock(mutex_);
  gone_[static_cast<std::size_t>(rank)] = 1;
  changed_.notify_all();
}

void Group::throw_if_failed(Lock&, int rank) const {
  if (failed_) fail(code_, "rank {} stops: {}", rank, reason_);
}

}  // namespace tulle
