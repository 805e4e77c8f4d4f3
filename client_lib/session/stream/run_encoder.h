// Turns a sealed segment, or a part of a recording that is executed again,
// into a run: slots by first use, bindings, holes, and the id of its graph,
// which is defined first when the stream does not have it yet.
//
// A run says only what differs from an earlier run of the same graph, once
// the worker has admitted the graph (Run.repeat in execution.proto): from
// the one of those remembered that is most like it. Where that says much, the
// run is remembered beside it: parts of a program that share a graph and
// differ in their weights soon have a run each. Graphs that grow are one
// (size_families.h). Used by the sender thread only.
#ifndef CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_
#define CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment.h"
#include "client_lib/session/stream/graph_table.h"
#include "client_lib/session/stream/size_families.h"
#include "common/hash/hash.h"
#include "common/srg/graph.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// A graph with a size hole, and its name among keys.
struct SizedGraph {
  std::string key;
  srg::Graph graph;
};

class RunEncoder {
 public:
  explicit RunEncoder(GraphTable* table) : table_(table) {}
  // Goes on at another worker, which knows other graphs.
  void UseTable(GraphTable* table) { table_ = table; }

  // A graph to be defined before the run.
  struct Definition {
    v1::DefineGraph message;
    std::string fingerprint;  // as the worker must see it
  };
  // A graph to be told to the coordinator.
  struct Telling {
    ContentHash key_hash;  // names the graph inside this process
    v1::Graph graph;
  };
  struct Encoded {
    std::optional<Definition> definition;
    // Set when the graph was not used under `telling` yet.
    std::optional<Telling> telling;
    v1::Run run;
    // Runs of the graph up to this one, while it is remembered.
    uint64_t uses = 0;
    // Storages written, if the run is a repeat, which does not name them all.
    std::vector<uint64_t> written;
  };

  // Counts the segment's uses as sent: a storage that is dead and named by
  // nothing unsent any more is final in this run.
  Encoded Encode(const Segment& segment, uint64_t telling = 1);

  // What a slot of a run is bound to.
  struct Binding {
    // Null for one that no program can name: a temporary of a recording.
    RemoteStorage* storage = nullptr;
    uint64_t id = 0;
    uint64_t base_version = 0;
    uint32_t writes = 0;
    // Times that the storage was counted as used by the run.
    uint32_t uses = 0;
    bool reads = false;
    bool born = false;
    // Of a temporary: nothing names it after this run.
    bool dies = false;
  };
  // One binding per slot of the part. `fast`: as Segment::fast.
  Encoded Encode(const RecordingPart& part, bool fast,
                 absl::Span<const Binding> bindings, uint64_t telling = 1);
  // Likewise of a graph that stands in the part's place, at this size.
  Encoded Encode(const RecordingPart& part, bool fast, const SizedGraph& sized,
                 int64_t size, absl::Span<const Binding> bindings,
                 uint64_t telling = 1);

  // The segment's graph; counts nothing. `storages`: set to the ids that
  // its slots are bound to, if not null.
  v1::Graph Describe(const Segment& segment,
                     std::vector<uint64_t>* storages = nullptr);

  // Counts one use by a message other than a run as sent. True if the storage
  // is now dead and unnamed: the caller frees it.
  static bool ReleaseUse(RemoteStorage* storage);

 private:
  // Fills kinds_, bindings_ and slot_of_touch_.
  void AssignSlots(const Segment& segment);
  // The entry of the graph with this key, or of its family at its size;
  // either as below.
  template <typename Build>
  GraphTable::Entry FindGraph(absl::string_view key, uint64_t telling,
                              Build build, Encoded* encoded);
  // Names the graph of the run in `encoded`; `build` makes it when somebody
  // has to be told.
  template <typename Build>
  void FillGraph(absl::string_view key, const GraphTable::Entry& entry,
                 uint64_t telling, Build build, Encoded* encoded);
  void FillRun(absl::Span<const Binding> bindings,
               absl::Span<const double> floats,
               absl::Span<const ScalarValue> scalar_tensors,
               const GraphTable::Entry& graph, Encoded* encoded);
  // What is not as in the run before.
  static void FillRepeat(absl::Span<const Binding> bindings,
                         const GraphTable::RememberedRun& before,
                         Encoded* encoded);
  // Counts the run's uses as sent, and finds what dies in it.
  void FindFinalSlots(absl::Span<const Binding> bindings);

  GraphTable* table_;
  SizeFamilies families_;
  uint64_t run_ = 0;
  // Reused between runs.
  std::vector<srg::Slot> kinds_;
  std::vector<Binding> bindings_;
  std::vector<uint32_t> slot_of_touch_;
  std::vector<uint32_t> final_slots_;
  std::string key_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_
