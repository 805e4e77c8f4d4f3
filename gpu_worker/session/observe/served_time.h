// Sums up for which tenant the device worked since the worker began. The
// difference of two readings tells for whom a run waited between them.
//
// One thread gives turns, which nest. Any other thread may read at any moment
// without waiting: it repeats a reading that a change of turns interrupted.
// Times are by one clock that never runs backwards.
#ifndef GPU_WORKER_SESSION_OBSERVE_SERVED_TIME_H_
#define GPU_WORKER_SESSION_OBSERVE_SERVED_TIME_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace djinn::worker {

class ServedTime {
 public:
  // The device time of one tenant. Must outlive its turns.
  class Tenant {
   private:
    friend class ServedTime;
    std::atomic<int64_t> nanoseconds_{0};
  };
  // Nanoseconds so far.
  struct Reading {
    // The time of the tenant that the reading is for.
    int64_t own = 0;
    int64_t others = 0;
    // The time that the device waited in batching windows.
    int64_t batch = 0;
  };
  enum class Whom { kNobody, kOwn, kOthers, kBatch };

  // --- The thread that gives turns.

  // Begins a turn of the tenant, inside the current one if there is one.
  void Begin(Tenant* tenant, absl::Duration now) {
    turns_.push_back(tenant);
    Change(tenant, now);
  }
  // Ends the innermost turn.
  void End(absl::Duration now) {
    turns_.pop_back();
    Change(turns_.empty() ? nullptr : turns_.back(), now);
  }
  // These begin and end a batching window between turns.
  void AwaitBatch(absl::Duration now) { Change(&batch_, now); }
  void EndAwaiting(absl::Duration now) { Change(nullptr, now); }

  // --- Any thread.

  // Returns the times until the moment `nanoseconds`.
  Reading ReadAt(const Tenant* tenant, int64_t nanoseconds) const {
    Reading reading;
    const Tenant* current = nullptr;
    int64_t since = 0;
    uint64_t change;
    do {
      change = change_.load(std::memory_order_acquire);
      reading.own = tenant->nanoseconds_.load(std::memory_order_acquire);
      reading.others = all_.load(std::memory_order_acquire) - reading.own;
      reading.batch = batch_.nanoseconds_.load(std::memory_order_acquire);
      current = current_.load(std::memory_order_acquire);
      since = since_.load(std::memory_order_acquire);
    } while (change % 2 != 0 ||
             change_.load(std::memory_order_relaxed) != change);
    const int64_t passed = std::max<int64_t>(nanoseconds - since, 0);
    if (current == tenant) {
      reading.own += passed;
    } else if (current == &batch_) {
      reading.batch += passed;
    } else if (current != nullptr) {
      reading.others += passed;
    }
    return reading;
  }
  // Returns whom the device serves at this moment.
  Whom ServesFor(const Tenant* tenant) const {
    const Tenant* const current = current_.load(std::memory_order_relaxed);
    if (current == nullptr) return Whom::kNobody;
    if (current == tenant) return Whom::kOwn;
    return current == &batch_ ? Whom::kBatch : Whom::kOthers;
  }

 private:
  void Change(Tenant* next, absl::Duration now) {
    const uint64_t change = change_.load(std::memory_order_relaxed);
    // Odd until everything is written. A reader sees each store after the
    // stores before it.
    change_.store(change + 1, std::memory_order_relaxed);
    const int64_t since = since_.load(std::memory_order_relaxed);
    const int64_t at = std::max(absl::ToInt64Nanoseconds(now), since);
    Tenant* const current = current_.load(std::memory_order_relaxed);
    if (current != nullptr) Add(at - since, &current->nanoseconds_);
    if (current != nullptr && current != &batch_) Add(at - since, &all_);
    current_.store(next, std::memory_order_release);
    since_.store(at, std::memory_order_release);
    change_.store(change + 2, std::memory_order_release);
  }
  static void Add(int64_t nanoseconds, std::atomic<int64_t>* sum) {
    sum->store(sum->load(std::memory_order_relaxed) + nanoseconds,
               std::memory_order_release);
  }

  // Grows by two with every change.
  std::atomic<uint64_t> change_{0};
  // The tenant that has the device, and since when; null when none has it.
  std::atomic<Tenant*> current_{nullptr};
  std::atomic<int64_t> since_{0};
  // The sum over all tenants.
  std::atomic<int64_t> all_{0};
  Tenant batch_;
  // The tenants of nested turns, innermost last.
  std::vector<Tenant*> turns_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_OBSERVE_SERVED_TIME_H_
