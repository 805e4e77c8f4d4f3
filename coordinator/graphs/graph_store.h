// Keeps the graphs that sessions defined, under the coordinator's own hash, and
// what they were found to mean.
//
// Holders: a graph belongs to the tenants that define it. When the store
// exceeds its size, the tenant with the greatest share of it lets go of the
// graph that it defined least recently (common/base/tenant_order.h). A graph
// without holders is removed. Notes belong to the tenant that sent them, count
// for that tenant alone, and are dropped when it lets go of the graph: no
// tenant can increase another's share.
//
// Meanings: the meaning of a graph is found for each holder, with the help of
// what else the tenant's session defined. It counts for that tenant alone, and
// is dropped when it lets go of the graph. Once several tenants have defined
// the graph, all are shown the meaning that the graph has by itself.
//
// Hints in the notes affect only what Get() shows where the meaning was not
// found, and only as long as one tenant alone has defined the graph. So no
// tenant is shown what another tenant's program or hints said, and what is
// learned of all tenants' work does not depend on hints.
//
// Thread-safe. Decoding, hashing and analysis happen without the lock.
#ifndef COORDINATOR_GRAPHS_GRAPH_STORE_H_
#define COORDINATOR_GRAPHS_GRAPH_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/base/tenant_order.h"
#include "common/srg/validate.h"
#include "coordinator/tables/page.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/srg.pb.h"
#include "scheduler/placement/work.h"
#include "scheduler/semantics/analysis/program.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator {

class GraphStore {
 public:
  // `max_bytes` bounds the encodings of graphs, notes and meanings.
  explicit GraphStore(uint64_t max_bytes, srg::GraphCaps caps = {})
      : max_bytes_(max_bytes), caps_(caps), order_({.bytes = max_bytes}) {}

  // Checks and keeps a graph; returns its fingerprint (32 bytes). Returns the
  // errors of srg::FromProto() and srg::Validate(), or InvalidArgument
  // (MALFORMED_NOTES). New notes replace earlier ones, unless they are empty.
  //
  // Analyses the graph when a tenant first adds it, and at each later Add()
  // while part of its meaning is unknown. `program` is what the tenant's
  // session defined before; the analysis uses it and adds the graph to it.
  // `program` may be null; one thread at a time uses it. The second tenant's
  // Add() also analyses the graph without a program.
  absl::StatusOr<std::string> Add(absl::string_view tenant,
                                  const v1::Graph& graph,
                                  const v1::GraphNotes& notes = {},
                                  semantics::Program* program = nullptr);
  // The work of one run of a graph.
  struct Works {
    // The work to the tenant; null when the tenant does not hold the graph.
    std::shared_ptr<const scheduler::Work> own;
    // The work that the graph shows without a program; null as long as one
    // tenant alone has defined it.
    std::shared_ptr<const scheduler::Work> shown;
  };
  Works WorksOf(absl::string_view tenant, const std::string& fingerprint);
  // Notes that one more session defined the graph.
  void CountDefinition(const std::string& fingerprint);

  struct Stats {
    uint64_t graphs = 0;
    // Bytes of the encoded graphs, notes and meanings.
    uint64_t bytes = 0;
  };
  Stats stats();

  // Returns a page of graphs by fingerprint, without the graphs themselves and
  // what workers report. Meanings have only what concerns the whole graph.
  Page<v1::GraphInfo> List(const PageRange& range = {});
  // Returns the graph with the fingerprint in lower-case hex, or with a unique
  // prefix of at least 8 digits. Includes graph, nodes and hints, but not what
  // workers report. If one tenant alone has defined the graph, includes the
  // meaning found for that tenant; otherwise the meaning found without a
  // program. Returns NotFound (GRAPH_UNKNOWN) or InvalidArgument
  // (PREFIX_AMBIGUOUS).
  absl::StatusOr<v1::GraphInfo> Get(absl::string_view hex);

 private:
  struct Found {
    // Serialised, because its size counts and its contents are rarely read.
    std::string meaning;
    v1::GraphMeaning summary;
    bool complete = false;  // nothing of the meaning is unknown
    std::shared_ptr<const scheduler::Work> work;
  };
  struct Entry {
    // Serialised, like `notes`, for the same reason.
    std::string encoding;
    std::string notes;
    std::string notes_by;
    // The meaning to each holder.
    std::map<std::string, Found, std::less<>> found;
    bool shared = false;  // several tenants have defined it
    // The meaning found without a program, once several tenants have defined
    // the graph. Without `meaning`, which Get() finds again.
    Found shown;

    // Returns the bytes that count for a holder.
    uint64_t BytesFor(absl::string_view tenant) const {
      const auto own = found.find(tenant);
      return encoding.size() +
             (own == found.end() ? 0 : own->second.meaning.size()) +
             (tenant == notes_by ? notes.size() : 0);
    }
    uint32_t node_count = 0;
    uint32_t slot_count = 0;
    uint64_t definition_count = 0;
    uint64_t ordinal = 0;
    std::string hex;
    TenantOrder<Entry>::Holders holders;
  };
  // By fingerprint in hex.
  using Entries = std::map<std::string, Entry, std::less<>>;

  // The meanings that the analysis has to find.
  struct Unknown {
    bool own = false;    // something of the meaning to the tenant
    bool shown = false;  // the meaning that the graph has by itself
  };
  // Adds or updates an entry. Returns what its analysis has to find.
  Unknown Insert(absl::string_view tenant, const std::string& hex,
                 const srg::Graph& graph, std::string encoding,
                 const v1::GraphNotes& notes);
  void KeepMeaning(absl::string_view tenant,
                   const semantics::Program::Finding& finding);
  void KeepShown(const std::string& hex, const srg::Graph& graph);
  // Returns the finding without its `meaning`.
  static Found ToFound(const srg::Graph& graph,
                       const semantics::Meaning& meaning,
                       const v1::GraphMeaning& message);
  // Returns the meaning that any tenant is shown, or null.
  static const Found* ShownOf(const Entry& entry);
  // Updates the bytes that count for the entry's holders.
  void CountAnew(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropNotes(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes graphs until the store fits its size again.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Finds the graph for Get(). Copies its serialised parts to `copy`, with what
  // is `shown` and whether it is shared.
  absl::StatusOr<v1::GraphInfo> Find(absl::string_view hex, Entry* copy);
  static v1::GraphInfo Describe(const Entries::value_type& item);

  const uint64_t max_bytes_;
  const srg::GraphCaps caps_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  TenantOrder<Entry> order_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of the newest graph.
  uint64_t ordinal_ ABSL_GUARDED_BY(mu_) = 0;
};

// Appends a node for each call of the graph, with the notes about it. Requires
// that graph and notes were checked.
void DescribeNodes(const v1::Graph& graph, const v1::GraphNotes& notes,
                   google::protobuf::RepeatedPtrField<v1::GraphNode>* nodes);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_STORE_H_
