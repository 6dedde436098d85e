#include <exception>
#include <mutex>
#include <thread>

#include "base/fail.hpp"
#include "tulle/fabric.hpp"

namespace tulle {
namespace {

// The first error of a group by time; later ones are mostly its consequences.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

// The fabric ends with the body, so that peers see a rank that has returned.
void run_one(std::unique_ptr<Fabric> fabric, const std::function<void(Fabric&)>& body, FirstError& first) {
  try {
    body(*fabric);
  } catch (...) {
    first.keep(std::current_exception());
    fabric->abort(fmt::format("rank {} failed: {}", fabric->rank(), text_of(std::current_exception())));
  }
}

// Starts a thread a rank. If the system refuses one, the fabrics that are left end here, which ends the others.
std::vector<std::thread> start(std::vector<std::unique_ptr<Fabric>> fabrics, const std::function<void(Fabric&)>& body,
                               FirstError& first) {
  std::vector<std::thread> threads;
  threads.reserve(fabrics.size());
  try {
    for (auto& fabric : fabrics) {
      threads.emplace_back(
          [own = std::move(fabric), &body, &first]() mutable { run_one(std::move(own), body, first); });
    }
  } catch (const std::exception& e) {
    first.keep(std::make_exception_ptr(make_error(
        ErrorCode::kUnsupported, "cannot start a thread for rank {}: {}; use fewer ranks", threads.size(), e.what())));
  }
  return threads;
}

}  // namespace

void run_ranks(int ranks, double timeout_s, const std::function<void(Fabric&)>& body) {
  auto fabrics = make_thread_fabrics(ranks, timeout_s);
  if (ranks == 1) {
    body(*make_self_fabric());
    return;
  }
  FirstError first;
  for (std::thread& thread : start(std::move(fabrics), body, first)) thread.join();
  first.rethrow();
}

}  // namespace tulle
