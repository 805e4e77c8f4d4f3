// The graphs defined for one worker, found by the client's own key (see
// run_encoder.h), compared byte by byte. The worker's fingerprint is another
// matter.
//
// Holds at most as many as the session's limit and a bound on their bytes; a
// new one may make it drop those least recently used. Ids are never used again.
// A definition is kept until the worker has executed the message that
// forgets it: until then the worker may ask for it. Not thread-safe.
#ifndef CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_
#define CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/hash/hash.h"

namespace djinn {

class GraphTable {
 public:
  // Of keys and definitions.
  static constexpr size_t kMaxBytes = 128 << 20;

  explicit GraphTable(size_t max_graphs, size_t max_bytes = kMaxBytes)
      : max_graphs_(max_graphs), max_bytes_(max_bytes) {}

  // What the worker remembers of a run of a graph.
  struct RememberedRun {
    std::vector<uint64_t> storages;  // by slot
    std::vector<uint32_t> final_slots;
    std::vector<double> floats;  // by hole
  };
  struct RememberedRuns {
    std::vector<RememberedRun> runs;  // by place
    // Where the last run was kept.
    size_t last_place = 0;
  };
  struct Entry {
    uint64_t id = 0;
    // The id must be defined before it is used, and given to Keep().
    bool is_new = false;
    // Times that it was found or added, this one included.
    uint64_t uses = 0;
    // The caller's note about the key; 0 when new.
    uint64_t* told = nullptr;
    RememberedRuns* remembered = nullptr;
  };
  // Of a key that was added, and is in use still. Valid until the next call.
  std::optional<Entry> Find(absl::string_view key);
  // Of one that is not: its id is new, from 1.
  Entry Add(absl::string_view key);
  // Of one that may be.
  Entry FindOrAdd(absl::string_view key);

  // The worker took the definition; it is in use still, or was dropped.
  void Admitted(uint64_t id);
  // Whether the worker is to remember the next run of the graph, which has
  // so many slots and float holes, in a place of its own: it was admitted and
  // there is room. A graph's further runs leave half of it to others'.
  bool Remember(uint64_t id, size_t slots_and_floats);

  // Keeps the definition of the id that was added last.
  void Keep(std::string definition);
  // Ids dropped and not said to the worker yet.
  std::vector<uint64_t> Unsaid() const;
  // They are said in this message.
  void SaidIn(uint64_t sequence);
  // Messages up to this one were executed.
  void Completed(uint64_t sequence);
  // Null when the worker cannot want it.
  const std::string* Definition(uint64_t id) const;

 private:
  struct Stored {
    std::string key;
    uint64_t id;
    uint64_t uses = 0;
    uint64_t told = 0;
    std::string definition;
    bool admitted = false;
    size_t remembered_slots = 0;
    RememberedRuns remembered;
  };
  struct Dropped {
    uint64_t id;
    std::string definition;
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
  // By the worker, over all graphs that it was not told to forget.
  size_t remembered_slots_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_GRAPH_TABLE_H_
