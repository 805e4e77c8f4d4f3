// Records what is known of work: of each graph, of earlier runs of programs,
// and of the time that devices really take for it.
//
// Each tenant sees a graph's work as the tenant's own sessions showed it. Work
// that is asked for without a tenant is what all tenants that defined the graph
// agree on, or else what the graph shows without a program.
//
// When there are more entries than the limits allow, the tenant with the most
// loses the entry that it named least recently (common/base/tenant_order.h).
// Not thread-safe: the cluster's lock guards it.
#ifndef COORDINATOR_TABLES_WORK_TABLE_H_
#define COORDINATOR_TABLES_WORK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/tenant_order.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/cost/roofline.h"

namespace djinn::coordinator {

using SharedWork = std::shared_ptr<const scheduler::Work>;

// Returns whether both have the same phase and caches. Null means no phase and
// no caches.
bool AreAlike(const SharedWork& a, const SharedWork& b);

// A map whose limits tenants share. When it is full, the tenant that holds most
// loses entries first.
template <typename Value>
class TenantMap {
 public:
  explicit TenantMap(size_t max_entries,
                     uint64_t max_bytes = std::numeric_limits<uint64_t>::max())
      : max_entries_(max_entries),
        max_bytes_(max_bytes),
        order_({.items = max_entries, .bytes = max_bytes}) {}

  // Sets the entry and counts it for the tenant as well. The size of an entry
  // that several tenants hold stays the same.
  void Put(absl::string_view tenant, absl::string_view key, Value value,
           uint64_t bytes = 0) {
    std::unique_ptr<Entry>& entry = entries_[key];
    if (entry == nullptr) {
      entry = std::make_unique<Entry>();
      entry->key = std::string(key);
    }
    entry->value = std::move(value);
    bytes_ += bytes - entry->bytes;
    entry->bytes = bytes;
    order_.Take(tenant, entry.get(), bytes);
    const Entry* const newest = entry.get();
    while (entries_.size() > max_entries_ || bytes_ > max_bytes_) {
      const auto let_go = order_.Release(newest);
      if (!let_go.has_value()) return;
      if (!let_go->item->holders.empty()) continue;
      bytes_ -= let_go->item->bytes;
      entries_.erase(entries_.find(let_go->item->key));
    }
  }
  // Returns the value, or null.
  const Value* Find(absl::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second->value;
  }
  size_t size() const { return entries_.size(); }
  std::vector<Value> Values() const {
    std::vector<Value> values;
    values.reserve(size());
    for (const auto& [key, entry] : entries_) values.push_back(entry->value);
    return values;
  }

 private:
  struct Entry {
    std::string key;
    Value value;
    uint64_t bytes = 0;
    typename TenantOrder<Entry>::Holders holders;
  };

  const size_t max_entries_;
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  absl::flat_hash_map<std::string, std::unique_ptr<Entry>> entries_;
  TenantOrder<Entry> order_;
};

// Records the graphs of all tenants, each with its work to each tenant.
class GraphWorks {
 public:
  struct Graph {
    // The work that the graph shows by itself; null while that is not known.
    SharedWork shown;
    // The work by tenant.
    std::map<std::string, SharedWork, std::less<>> own;
    std::string fingerprint;
    TenantOrder<Graph>::Holders holders;
  };

  // Keeps at most `max_works`. Each graph counts once for every tenant that
  // named it.
  explicit GraphWorks(size_t max_works)
      : max_works_(max_works), order_({.items = max_works}) {}

  // Does what WorkTable::AddGraph() describes.
  bool Put(const std::string& tenant, const std::string& fingerprint,
           SharedWork own, SharedWork shown);
  // Returns the graph, or null.
  const Graph* Find(absl::string_view fingerprint) const;

 private:
  const size_t max_works_;
  size_t works_ = 0;
  absl::flat_hash_map<std::string, std::unique_ptr<Graph>> graphs_;
  TenantOrder<Graph> order_;
};

class WorkTable {
 public:
  static constexpr size_t kMaxGraphs = 1 << 16;
  static constexpr size_t kMaxPrograms = 1 << 12;
  static constexpr uint64_t kMaxProgramBytes = 4 << 20;

  // The work of a session of a tenant's program, from `graphs` graphs.
  struct Program {
    std::string tenant;
    std::string name;
    SharedWork work;
    size_t graphs = 0;
  };
  // The predictions for next sessions, which are saved. Graphs are not saved,
  // because clients define them again.
  struct ProgramMemory {
    std::vector<std::shared_ptr<const Program>> programs;
    semantics::CostFactors factors;
  };

  // Notes that a session of the tenant defined the graph: its work to the
  // tenant, and the work that it shows by itself, which is null if unknown.
  // Returns whether its phase or its caches changed, to the tenant or by
  // itself.
  bool AddGraph(const std::string& tenant, const std::string& fingerprint,
                SharedWork own, SharedWork shown = nullptr) {
    return graphs_.Put(tenant, fingerprint, std::move(own), std::move(shown));
  }
  // Returns the graph with its work to each tenant; null when nothing is known.
  const GraphWorks::Graph* FindGraph(absl::string_view fingerprint) const {
    return graphs_.Find(fingerprint);
  }
  // Returns the work to the tenant; null when the tenant did not define the
  // graph.
  SharedWork OfGraphTo(absl::string_view tenant,
                       absl::string_view fingerprint) const;
  // Returns the work without regard to a tenant. Null when nothing is known.
  SharedWork OfGraph(absl::string_view fingerprint) const;

  // Notes the work of a session so far. A session that has only begun does not
  // replace a whole one. Programs without a name have no history.
  void NoteProgram(Program program);
  // Notes the work of a session that has closed.
  void NoteEnded(Program program);
  // Returns the expected work of the program's next session. Null when nothing
  // is known.
  SharedWork OfProgram(const std::string& tenant,
                       const std::string& program) const;

  // Learns that `runs` runs of the graph kept a device of the kind `device`
  // busy for `time`. Attributes the ratio of measured to predicted time alike
  // to every class of operators that has at least a tenth of the predicted
  // time.
  void Learn(const std::string& fingerprint, const std::string& device,
             const semantics::DeviceSpeed& speed, uint64_t runs,
             absl::Duration time);
  const semantics::CostFactors& factors() const { return factors_; }

  // Takes over the program memory of another table. Call it before this table
  // has learned anything.
  void Restore(ProgramMemory memory);
  // Returns the program memory; nothing if it has not changed since the last
  // call.
  std::optional<ProgramMemory> TakeProgramMemory();

 private:
  GraphWorks graphs_{kMaxGraphs};
  TenantMap<std::shared_ptr<const Program>> programs_{kMaxPrograms,
                                                      kMaxProgramBytes};
  semantics::CostFactors factors_;
  // True when the program memory has changed since TakeProgramMemory().
  bool memory_changed_ = false;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WORK_TABLE_H_
