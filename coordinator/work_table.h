// What is known of work: of each structure's, of what programs did before, and
// how long devices really take for it.
//
// Where there are more entries than the limits, the tenant with the most loses
// what it told of least recently (common/tenant_order.h). Not thread-safe: the
// cluster's lock guards it.
#ifndef COORDINATOR_WORK_TABLE_H_
#define COORDINATOR_WORK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tenant_order.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/roofline.h"

namespace djinn::coordinator {

using SharedWork = std::shared_ptr<const scheduler::Work>;

// A map that its tenants share: each has its part of the entries.
template <typename Value>
class TenantMap {
 public:
  explicit TenantMap(size_t max_entries)
      : max_entries_(max_entries), order_({.items = max_entries}) {}

  // The entry is the tenant's, too, from now on.
  void Put(absl::string_view tenant, absl::string_view key, Value value) {
    std::unique_ptr<Entry>& entry = entries_[key];
    if (entry == nullptr) {
      entry = std::make_unique<Entry>();
      entry->key = std::string(key);
    }
    entry->value = std::move(value);
    order_.Take(tenant, entry.get(), 0);
    const Entry* const newest = entry.get();
    while (entries_.size() > max_entries_) {
      const auto let_go = order_.Release(newest);
      if (!let_go.has_value()) return;
      if (let_go->item->holders.empty()) {
        entries_.erase(entries_.find(let_go->item->key));
      }
    }
  }
  // Null when there is none.
  const Value* Find(absl::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second->value;
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    Value value;
    typename TenantOrder<Entry>::Holders holders;
  };

  const size_t max_entries_;
  absl::flat_hash_map<std::string, std::unique_ptr<Entry>> entries_;
  TenantOrder<Entry> order_;
};

class WorkTable {
 public:
  static constexpr size_t kMaxStructures = 1 << 16;
  static constexpr size_t kMaxPrograms = 1 << 12;

  // A session of the tenant defined it.
  void AddStructure(const std::string& tenant, const std::string& fingerprint,
                    SharedWork work) {
    structures_.Put(tenant, fingerprint, std::move(work));
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

  TenantMap<SharedWork> structures_{kMaxStructures};
  TenantMap<Program> programs_{kMaxPrograms};
  semantics::CostFactors factors_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_WORK_TABLE_H_
