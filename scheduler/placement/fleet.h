// The workers that a placement can choose from, and which state each one holds.
//
// The table scales to many workers: finding, drawing, changing and removing a
// worker take constant time, and so does finding the holders of a piece of
// state.
//
// Not thread-safe. Pointers to members stay valid until the member is removed.
#ifndef SCHEDULER_PLACEMENT_FLEET_H_
#define SCHEDULER_PLACEMENT_FLEET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "scheduler/semantics/cost/meaning.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::scheduler {

// A hash that names a piece of a tenant's state. A collision only leads to a
// worse choice.
using StateKey = uint64_t;

// The facts about one worker that a decision uses.
struct WorkerFacts {
  std::string id;
  // Kind of device, "cpu" or "cuda". Devices of a kind share learned operator
  // costs.
  std::string device;
  // Workers with the same text compute the same bits; empty when unknown.
  std::string numerics;
  uint64_t memory_bytes = 0;
  // Bytes that are free or evictable, and not promised to a session.
  uint64_t available_bytes = 0;
  // Runs received and not completed, and their predicted time in seconds.
  uint32_t queued_runs = 0;
  double queued_seconds = 0;
  // Number of leases of all sessions.
  uint32_t leases = 0;
  // Fraction of the last minute in which the device was busy, 0 to 1.
  double busy_share = 0;
  // All zeros when unknown.
  semantics::DeviceSpeed speed;
  double price_per_second = 0;
  // Configured link speed; 0 when unknown.
  double link_bytes_per_second = 0;
  // Measured speed of recent uploads from clients; 0 without any.
  double client_bytes_per_second = 0;
  std::vector<std::string> capabilities;
  // Bit N stands for phase N; 0 means all phases.
  uint32_t phases = 0;
  bool cordoned = false;
  // Why the device must not get work; empty when nothing is wrong with it.
  std::string failure;
};

class Fleet {
 public:
  struct Member {
    WorkerFacts facts;
    absl::flat_hash_set<StateKey> held;
    // Position in all().
    size_t place = 0;
  };

  // Adds a worker, or replaces its facts and keeps the state that it holds.
  void Put(WorkerFacts facts);
  // Replaces the state that a worker of the fleet holds.
  void SetHeld(absl::string_view id, absl::flat_hash_set<StateKey> held);
  // Adds or removes one piece of state.
  void Hold(absl::string_view id, StateKey key);
  void Release(absl::string_view id, StateKey key);
  // Lets `change` modify the facts of a worker of the fleet, except its id and
  // memory.
  void Update(absl::string_view id,
              absl::FunctionRef<void(WorkerFacts* facts)> change) {
    change(&members_.at(id)->facts);
  }
  void Remove(absl::string_view id);

  // Returns the worker, or null.
  const Member* Find(absl::string_view id) const;
  // Returns all workers in no particular order.
  const std::vector<Member*>& all() const { return all_; }
  size_t size() const { return all_.size(); }
  absl::Span<Member* const> Holders(StateKey key) const;
  // Returns the largest memory of any worker, in bytes; 0 without workers.
  uint64_t largest_memory() const {
    return memories_.empty() ? 0 : memories_.rbegin()->first;
  }

 private:
  void CountMemory(uint64_t bytes, int change);
  void DropHeld(Member* member, StateKey key);

  absl::flat_hash_map<std::string, std::unique_ptr<Member>> members_;
  std::vector<Member*> all_;
  absl::flat_hash_map<StateKey, std::vector<Member*>> holders_;
  // Number of workers by memory size.
  std::map<uint64_t, int> memories_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_FLEET_H_
