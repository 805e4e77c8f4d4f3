// Keeps the graphs that sessions defined, under the coordinator's own hash, and
// what they were found to mean.
//
// A graph is of the tenants that define it. When the store exceeds its
// size, the tenant with the greatest share of it lets go of what it defined
// least recently (common/base/tenant_order.h), and a graph of nobody goes.
// Notes are of the tenant that sent them, count for it alone and go with its
// hold: no tenant can make another's share greater.
//
// What a graph means is found for each tenant that holds it, with the help
// of what else the tenant's session defined; it counts for that tenant alone,
// and goes with its hold. Once several tenants have defined the graph, what
// is shown to all is what it shows by itself. Hints in the notes decide only
// what Get() shows beyond what was found, and count as long as one tenant alone
// has defined the graph. So what a tenant is shown is never what another
// one's program or hints said, and what is learned of all tenants' work knows
// no hints.
//
// Thread-safe. Decoding, hashing and analysis happen outside the lock.
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

  // Checks and keeps a graph; returns its fingerprint (32 bytes). Errors:
  // as srg::FromProto() and srg::Validate(); InvalidArgument (MALFORMED_NOTES).
  // Notes take the place of earlier ones, unless there are none.
  //
  // A graph is analysed once for each tenant, and again only as long as
  // something of it is unknown: `program` is what its session defined before,
  // and learns of it. It may be null, and is not used by two threads at a time.
  // Once more, by itself, when a second tenant defines it.
  absl::StatusOr<std::string> Add(absl::string_view tenant,
                                  const v1::Graph& graph,
                                  const v1::GraphNotes& notes = {},
                                  semantics::Program* program = nullptr);
  // The work of one run.
  struct Works {
    // The work to the tenant; null when the tenant does not hold the graph.
    std::shared_ptr<const scheduler::Work> own;
    // The work that the graph shows by itself; null as long as one tenant alone
    // has defined it.
    std::shared_ptr<const scheduler::Work> shown;
  };
  Works WorksOf(absl::string_view tenant, const std::string& fingerprint);
  // Notes that one more session defined the graph.
  void CountDefinition(const std::string& fingerprint);

  struct Stats {
    uint64_t graphs = 0;
    // Bytes of the encodings of graphs and notes, and of what was found in
    // them.
    uint64_t bytes = 0;
  };
  Stats stats();

  // In order of fingerprints; without graphs and what workers say, and of
  // meanings only what concerns the whole graph.
  Page<v1::GraphInfo> List(const PageRange& range = {});
  // By lower-case hex, or a unique prefix of at least 8 digits; with graph
  // and nodes, and with what hints say; without what workers say. Shows what
  // the graph is to its only tenant, or what it shows by itself. NotFound
  // (GRAPH_UNKNOWN), InvalidArgument (PREFIX_AMBIGUOUS).
  absl::StatusOr<v1::GraphInfo> Get(absl::string_view hex);

 private:
  struct Found {
    // Serialised: the size counts, the contents hardly ever matter.
    std::string meaning;
    v1::GraphMeaning summary;
    bool complete = false;  // nothing of the meaning is unknown
    std::shared_ptr<const scheduler::Work> work;
  };
  struct Entry {
    // Serialised, likewise.
    std::string encoding;
    std::string notes;  // likewise
    std::string notes_by;
    // By the tenant that holds it.
    std::map<std::string, Found, std::less<>> found;
    bool shared = false;  // several tenants have defined it
    // What the graph shows by itself, once it is shared; without `meaning`,
    // which Get() finds again.
    Found shown;

    // Bytes that a tenant that holds it is charged.
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

  // What the analysis searches in a graph.
  struct Unknown {
    bool own = false;    // something of what it is to the tenant
    bool shown = false;  // what it shows by itself
  };
  // Inserts or renews an entry.
  Unknown Insert(absl::string_view tenant, const std::string& hex,
                 const srg::Graph& graph, std::string encoding,
                 const v1::GraphNotes& notes);
  void KeepMeaning(absl::string_view tenant,
                   const semantics::Program::Finding& finding);
  void KeepShown(const std::string& hex, const srg::Graph& graph);
  // Without `meaning`.
  static Found ToFound(const srg::Graph& graph,
                       const semantics::Meaning& meaning,
                       const v1::GraphMeaning& message);
  // Describes what is known of the graph whichever tenant asks.
  static const Found* ShownOf(const Entry& entry);
  // Updates what its holders are charged.
  void CountAnew(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropNotes(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes graphs until the size fits again.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Copies what is serialised, with what is `shown`, and whether it is shared.
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

}  // namespace djinn::coordinator

#endif  // COORDINATOR_GRAPHS_GRAPH_STORE_H_
