#include "tulle/threads.hpp"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/env.hpp"
#include "base/system.hpp"

namespace tulle {

struct Threads::Impl {
  explicit Impl(int width) : arena(width) {}
  oneapi::tbb::task_arena arena;
};

Threads::Threads(int width) {
  if (width <= 0) width = env().threads > 0 ? env().threads : cpu_count();
  impl_ = std::make_unique<Impl>(std::max(1, width));
}
Threads::~Threads() = default;
Threads::Threads(Threads&&) noexcept = default;
Threads& Threads::operator=(Threads&&) noexcept = default;

int Threads::width() const { return impl_->arena.max_concurrency(); }

void Threads::parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) const {
  parallel_ranges(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

void Threads::parallel_ranges(std::int64_t count, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) const {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(1, grain);
  const std::int64_t pieces = ceil_div(count, grain);
  if (width() == 1 || pieces == 1) {
    for (std::int64_t i = 0; i < pieces; ++i) body(i * grain, std::min(count, (i + 1) * grain));
    return;
  }
  impl_->arena.execute([&] {
    oneapi::tbb::parallel_for(
        std::int64_t{0}, pieces, [&](std::int64_t i) { body(i * grain, std::min(count, (i + 1) * grain)); },
        oneapi::tbb::simple_partitioner());
  });
}

void Threads::run_in(const std::function<void()>& body) const { impl_->arena.execute(body); }

}  // namespace tulle
