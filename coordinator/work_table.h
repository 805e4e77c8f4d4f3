// What is known of work: of each structure's, of what programs did before, and
// how long devices really take for it.
//
// Entries beyond the limits push out the oldest. Not thread-safe: the cluster's
// lock guards it.
#ifndef COORDINATOR_WORK_TABLE_H_
#define COORDINATOR_WORK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::coordinator {

using SharedWork = std::shared_ptr<const scheduler::Work>;

// A map that forgets what was added first.
template <typename Value>
class RecentMap {
 public:
  explicit RecentMap(size_t max_entries) : max_entries_(max_entries) {}

  void Put(const std::string& key, Value value) {
    const auto [it, added] = entries_.insert_or_assign(key, std::move(value));
    if (!added) return;
    oldest_first_.push_back(key);
    if (oldest_first_.size() <= max_entries_) return;
    entries_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  // Null when there is none.
  const Value* Find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  size_t size() const { return entries_.size(); }

 private:
  const size_t max_entries_;
  absl::flat_hash_map<std::string, Value> entries_;
  std::deque<std::string> oldest_first_;
};

class WorkTable {
 public:
  static constexpr size_t kMaxStructures = 1 << 16;
  static constexpr size_t kMaxPrograms = 1 << 12;

  void AddStructure(const std::string& fingerprint, SharedWork work) {
    structures_.Put(fingerprint, std::move(work));
  }
  // Null when nothing is known.
  SharedWork OfStructure(const std::string& fingerprint) const;

  // A session of the tenant's program did this, in so many structures; a
  // session that is only beginning does not take the place of a whole one.
  void NoteProgram(const std::string& tenant, const std::string& program,
                   SharedWork work, size_t structures);
  // What to expect of the next one. Null when nothing is known.
  SharedWork OfProgram(const std::string& tenant,
                       const std::string& program) const;

  // So many runs of the structure kept a device of the kind busy for so long.
  // What it took beyond the roofline goes to every class of operators that has
  // a tenth of the predicted time, alike.
  void Learn(const std::string& fingerprint, const std::string& device,
             const semantics::DeviceSpeed& speed, uint64_t runs,
             absl::Duration time);
  const semantics::CostFactors& factors() const { return factors_; }

 private:
  struct Program {
    SharedWork work;
    size_t structures = 0;
  };

  RecentMap<SharedWork> structures_{kMaxStructures};
  RecentMap<Program> programs_{kMaxPrograms};
  semantics::CostFactors factors_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_WORK_TABLE_H_
