// Threads: the one way in which work is spread over CPU cores.
//
// A Threads object is a oneTBB arena of fixed width. It is passed explicitly; there is no global pool to configure.
// Results never depend on the width: every parallel loop in Tulle writes disjoint outputs and reduces in a fixed order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tulle {

class Threads {
 public:
  // `width` threads at most, the caller included; 0 means all cores this process may use.
  explicit Threads(int width = 0);
  ~Threads();
  Threads(Threads&&) noexcept;
  Threads& operator=(Threads&&) noexcept;

  int width() const;

  // Calls body(i) for every i in [0, count), in any order, on up to width() threads; returns when all are done.
  // The first exception thrown by a body is rethrown. Safe to call from several threads at once.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) const;

  // Calls body(begin, end) on ranges of at most `grain` that cover [0, count).
  void parallel_ranges(std::int64_t count, std::int64_t grain,
                       const std::function<void(std::int64_t, std::int64_t)>& body) const;

  // Runs body inside the arena, so that a library that uses oneTBB (oneDNN) sees this width.
  void run_in(const std::function<void()>& body) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tulle
