// Keeps what is known of work: of each graph, of earlier runs of programs, and
// how long devices really take for it.
//
// A graph is to each tenant what the tenant's own sessions showed it to be.
// Without a tenant, it is what all tenants that defined it agree on, or what it
// shows by itself.
//
// Where there are more entries than the limits, the tenant with the most loses
// what it told of least recently (common/base/tenant_order.h). Not thread-safe:
// the cluster's lock guards it.
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

// Returns whether both have the same phase and caches. Null has no phase and no
// caches.
bool AreAlike(const SharedWork& a, const SharedWork& b);

// A map that tenants share: each has its part of the entries.
template <typename Value>
class TenantMap {
 public:
  explicit TenantMap(size_t max_entries,
                     uint64_t max_bytes = std::numeric_limits<uint64_t>::max())
      : max_entries_(max_entries),
        max_bytes_(max_bytes),
        order_({.items = max_entries, .bytes = max_bytes}) {}

  // The entry is the tenant's, too, from now on. One that is several tenants'
  // keeps its size.
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
  // Null when there is none.
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

// Graphs of all tenants, each with what it is to whom.
class GraphWorks {
 public:
  struct Graph {
    // By itself; null when nobody has said so.
    SharedWork shown;
    // By tenant.
    std::map<std::string, SharedWork, std::less<>> own;
    std::string fingerprint;
    TenantOrder<Graph>::Holders holders;
  };

  // At most so many, each counted for every tenant that told of it.
  explicit GraphWorks(size_t max_works)
      : max_works_(max_works), order_({.items = max_works}) {}

  // As WorkTable::AddGraph().
  bool Put(const std::string& tenant, const std::string& fingerprint,
           SharedWork own, SharedWork shown);
  // Null when there is none.
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

  // What a session of a tenant's program did, in so many graphs.
  struct Program {
    std::string tenant;
    std::string name;
    SharedWork work;
    size_t graphs = 0;
  };
  // All that is not told of again: clients define their graphs anew.
  struct Learned {
    std::vector<std::shared_ptr<const Program>> programs;
    semantics::CostFactors factors;
  };

  // A session of the tenant defined it: what it is to that one, and what it
  // shows by itself, which may be null where nobody knows. True when it is of
  // another phase than before, to the tenant or by itself, or has other caches.
  bool AddGraph(const std::string& tenant, const std::string& fingerprint,
                SharedWork own, SharedWork shown = nullptr) {
    return graphs_.Put(tenant, fingerprint, std::move(own), std::move(shown));
  }
  // What it is to each tenant; null when nothing is known.
  const GraphWorks::Graph* FindGraph(absl::string_view fingerprint) const {
    return graphs_.Find(fingerprint);
  }
  // To the tenant, as far as it told. Null when nothing is known.
  SharedWork OfGraphTo(absl::string_view tenant,
                       absl::string_view fingerprint) const;
  // To nobody in particular. Null when nothing is known.
  SharedWork OfGraph(absl::string_view fingerprint) const;

  // A session did so much so far: one that is only beginning does not take the
  // place of a whole one. Programs without a name have no history.
  void NoteProgram(Program program);
  // A session has closed, and did no more.
  void NoteEnded(Program program);
  // What to expect of the next one. Null when nothing is known.
  SharedWork OfProgram(const std::string& tenant,
                       const std::string& program) const;

  // So many runs of the graph kept a device of the kind busy for so long.
  // What it took beyond the roofline goes to every class of operators that has
  // a tenth of the predicted time, alike.
  void Learn(const std::string& fingerprint, const std::string& device,
             const semantics::DeviceSpeed& speed, uint64_t runs,
             absl::Duration time);
  const semantics::CostFactors& factors() const { return factors_; }

  // Takes up what another table had learned, before anything else is learned.
  void Restore(Learned learned);
  // Nothing when it is as it was at the last call.
  std::optional<Learned> TakeLearned();

 private:
  GraphWorks graphs_{kMaxGraphs};
  TenantMap<std::shared_ptr<const Program>> programs_{kMaxPrograms,
                                                      kMaxProgramBytes};
  semantics::CostFactors factors_;
  // Since it was taken.
  bool learned_ = false;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_TABLES_WORK_TABLE_H_
