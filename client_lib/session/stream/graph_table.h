// Stores the graphs defined for one worker. Lookup compares the client's own
// key (run_encoder.h) byte by byte; the worker's fingerprint plays no part.
//
// The session's limit on graphs and a limit on bytes bound the table. A new
// graph may evict the least recently used graphs. Ids are never reused. The
// table keeps a definition until the worker has executed the message that
// forgets it, because the worker may request the definition until then. Not
// thread-safe.
#ifndef CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_
#define CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/hash/hash.h"

namespace djinn {

struct KeptRun;

// Suffices to define a graph, on the first worker and on its successors.
struct GraphDefinition {
  // An encoded v1::DefineGraph, under the id of its first use.
  std::string message;
  // The fingerprint that a worker must find.
  std::string fingerprint;
};

class GraphTable {
 public:
  // Limit on the bytes of keys and definitions.
  static constexpr size_t kMaxBytes = 128 << 20;

  explicit GraphTable(size_t max_graphs, size_t max_bytes = kMaxBytes)
      : max_graphs_(max_graphs), max_bytes_(max_bytes) {}

  // The worker's record of a run of a graph.
  struct RememberedRun {
    std::vector<uint64_t> storages;  // by slot
    std::vector<uint32_t> final_slots;
    std::vector<double> floats;  // by hole
  };
  struct RememberedRuns {
    std::vector<RememberedRun> runs;  // by index on the worker
    // The index of the last run.
    size_t last_place = 0;
    // The last run that was kept; null if none was.
    std::shared_ptr<const KeptRun> kept;
  };
  struct Entry {
    uint64_t id = 0;
    // True if the id is new. The caller must then define the id before using
    // it, and pass the definition to Keep().
    bool is_new = false;
    // Number of lookups and the addition, including this one.
    uint64_t uses = 0;
    // The epoch in which the caller last sent the graph to the coordinator; 0
    // for a new key.
    uint64_t* sent_epoch = nullptr;
    RememberedRuns* remembered = nullptr;
    // Null until Keep().
    const std::shared_ptr<const GraphDefinition>* definition = nullptr;
  };
  // Returns the key's entry, or nothing if the table has none. The pointers are
  // valid until the next call.
  std::optional<Entry> Find(absl::string_view key);
  // Adds a key that is not in the table, under a new id. Ids start at 1.
  Entry Add(absl::string_view key);
  // Returns the key's entry and adds the key if it is new.
  Entry FindOrAdd(absl::string_view key);

  // Notes that the worker accepted the definition. The graph may have left the
  // table meanwhile.
  void Admitted(uint64_t id);
  // Returns whether the worker should remember the graph's next run in addition
  // to earlier runs, and if so reserves room for it. The run has
  // `slots_and_floats` slots and float holes. The result is false if the graph
  // is not admitted or there is no room. A graph's second and later remembered
  // runs leave half of the room to other graphs.
  bool Remember(uint64_t id, size_t slots_and_floats);

  // Keeps the definition of the id that was added last.
  void Keep(std::string message, std::string fingerprint = "");
  // Returns a new id for a graph that is used under it for a while, without a
  // key. The id is among the dropped ones at once.
  uint64_t AddPassing(std::shared_ptr<const GraphDefinition> definition);
  // Returns the dropped ids that no message has made the worker forget yet.
  std::vector<uint64_t> Unsaid() const;
  // Notes that the message with this sequence tells the worker to forget them.
  void SaidIn(uint64_t sequence);
  // Notes that the worker executed the messages up to `sequence`.
  void Completed(uint64_t sequence);
  // Returns the encoded definition, or null when the worker cannot ask for it.
  const std::string* Definition(uint64_t id) const;

 private:
  struct Stored {
    std::string key;
    uint64_t id;
    uint64_t uses = 0;
    uint64_t sent_epoch = 0;
    std::shared_ptr<const GraphDefinition> definition;
    bool admitted = false;
    size_t remembered_slots = 0;
    RememberedRuns remembered;
  };
  struct Dropped {
    uint64_t id;
    std::shared_ptr<const GraphDefinition> definition;
    uint64_t said_in;  // 0: not yet
    size_t remembered_slots;
  };
  struct KeyHash {
    size_t operator()(absl::string_view key) const {
      return HashContent(key.data(), key.size()).low;
    }
  };

  void DropLeastRecentlyUsed();

  const size_t max_graphs_;
  const size_t max_bytes_;
  size_t bytes_ = 0;
  uint64_t last_id_ = 0;
  std::list<Stored> by_use_;  // most recently used first
  absl::flat_hash_map<absl::string_view, std::list<Stored>::iterator, KeyHash>
      by_key_;
  absl::flat_hash_map<uint64_t, std::list<Stored>::iterator> by_id_;
  std::deque<Dropped> dropped_;  // oldest first
  // Sum of remembered_slots over the graphs that the worker still has. A graph
  // leaves the sum when a message tells the worker to drop it.
  size_t remembered_slots_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_
