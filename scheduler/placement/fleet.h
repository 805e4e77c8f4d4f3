// The workers that a decision can choose from, and who holds what.
//
// Made for many workers: one is found, drawn, changed or removed in constant
// time, and who holds a piece of state without looking at the others.
//
// Not thread-safe. Pointers to members stay valid until their removal.
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
#include "scheduler/semantics/meaning.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::scheduler {

// Names a piece of a tenant's state: the hash of whatever identifies it. Two
// that clash cost a worse choice, nothing else.
using StateKey = uint64_t;

// What is known of one worker when a decision is made.
struct WorkerFacts {
  std::string id;
  // "cpu", "cuda": devices of a kind share what was learnt of operators.
  std::string device;
  uint64_t memory_bytes = 0;
  // Free, or held by what would give way, and promised to nobody.
  uint64_t available_bytes = 0;
  // Received and not completed, and how long they will take.
  uint32_t queued_runs = 0;
  double queued_seconds = 0;
  // Of all sessions.
  uint32_t leases = 0;
  // Share of the last minute in which the device was busy.
  double busy_share = 0;
  // Zeros: not known.
  semantics::DeviceSpeed speed;
  double price_per_second = 0;
  // As the worker is configured. 0: not known.
  double link_bytes_per_second = 0;
  // What clients' uploads moved over it lately. 0: none did.
  double client_bytes_per_second = 0;
  std::vector<std::string> capabilities;
  // Bit N stands for phase N; 0 for all phases.
  uint32_t phases = 0;
  bool cordoned = false;
};

class Fleet {
 public:
  struct Member {
    WorkerFacts facts;
    absl::flat_hash_set<StateKey> held;
    // Its place among all().
    size_t place = 0;
  };

  // Adds a worker, or replaces what is known of it; what it holds stays.
  void Put(WorkerFacts facts);
  // Replaces what a worker of the fleet holds.
  void SetHeld(absl::string_view id, absl::flat_hash_set<StateKey> held);
  // The same, piece by piece.
  void Hold(absl::string_view id, StateKey key);
  void Release(absl::string_view id, StateKey key);
  // Changes what is known of a worker of the fleet, but id and memory.
  void Update(absl::string_view id,
              absl::FunctionRef<void(WorkerFacts* facts)> change) {
    change(&members_.at(id)->facts);
  }
  void Remove(absl::string_view id);

  // Null when there is none.
  const Member* Find(absl::string_view id) const;
  // In no particular order.
  const std::vector<Member*>& all() const { return all_; }
  size_t size() const { return all_.size(); }
  absl::Span<Member* const> Holders(StateKey key) const;
  // Of all workers; 0 without any.
  uint64_t largest_memory() const {
    return memories_.empty() ? 0 : memories_.rbegin()->first;
  }

 private:
  void CountMemory(uint64_t bytes, int change);
  void DropHeld(Member* member, StateKey key);

  absl::flat_hash_map<std::string, std::unique_ptr<Member>> members_;
  std::vector<Member*> all_;
  absl::flat_hash_map<StateKey, std::vector<Member*>> holders_;
  // How many workers have so much memory.
  std::map<uint64_t, int> memories_;
};

}  // namespace djinn::scheduler

#endif  // SCHEDULER_PLACEMENT_FLEET_H_
