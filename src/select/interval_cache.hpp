// What was chosen for a call, remembered for the length of a schedule interval.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <utility>

#include "tulle/grid.hpp"
#include "tulle/policy.hpp"

namespace tulle {

// What calls must share for one of them to use what was chosen for another.
struct CacheKey {
  std::int32_t steps, layer;
  Branch branch;
  BlockPartition partition;
  std::int64_t batch, heads, first_head;
  bool operator==(const CacheKey&) const = default;
};

// One entry per key; beyond kCapacity the oldest is dropped. A call only ever gets what was last used at an earlier
// step, so a new or restarted video never gets an old one's. Not thread-safe.
template <class Value>
class IntervalCache {
 public:
  static constexpr std::size_t kCapacity = 512;

  struct Entry {
    CacheKey key;
    std::int32_t interval_id, last_step;
    Value value;
  };

  // The entry of the same video at an earlier step, of whichever interval; null where there is none.
  Entry* earlier(const CacheKey& key, std::int32_t step) {
    const auto found = std::ranges::find(entries_, key, &Entry::key);
    return found != entries_.end() && found->last_step < step ? &*found : nullptr;
  }

  // The pointer is valid until the same key is put again, or kCapacity others are.
  Value* put(const CacheKey& key, std::int32_t interval_id, std::int32_t step, Value value) {
    entries_.remove_if([&](const Entry& e) { return e.key == key; });
    if (entries_.size() >= kCapacity) entries_.pop_front();
    return &entries_.emplace_back(Entry{key, interval_id, step, std::move(value)}).value;
  }

  std::size_t size() const { return entries_.size(); }
  void clear() { entries_.clear(); }

 private:
  std::list<Entry> entries_;  // oldest first; a list, so that pointers to values stay
};

}  // namespace tulle
