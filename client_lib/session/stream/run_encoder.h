// Turns a sealed segment, or a part of a captured graph, into a run: slots in
// the order of first use, bindings, holes, and the id of its graph. If the
// worker does not have the graph yet, the encoder first defines it.
//
// Once the worker has admitted the graph, a run says only what differs from an
// earlier run of the same graph (Run.repeat in execution.proto). The encoder
// picks the most similar of the remembered runs. If even that run differs much,
// the worker remembers the new run as well. Layers that share a graph but not
// their weights, for example, soon have one remembered run each. Graphs that
// differ only in growing sizes become one graph (size_families.h). Used by the
// sender thread only.
#ifndef CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_
#define CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/session/lineage/lineage.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/model/remote_storage.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/recording/segment.h"
#include "client_lib/session/stream/graph_table.h"
#include "client_lib/session/stream/run_binding.h"
#include "client_lib/session/stream/size_families.h"
#include "common/hash/hash.h"
#include "common/srg/graph.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

// Suffices to send a run again to a worker that knows nothing, together with
// the bindings: these are the uses of the run's node in the lineage, in slot
// order. Equal runs share it.
struct KeptRun {
  std::shared_ptr<const GraphDefinition> graph;
  std::vector<uint32_t> final_slots;
  std::vector<double> floats;
  std::vector<std::string> scalar_tensors;
  int64_t size = 0;
  bool reply_metadata = false;
  RunMode mode;
};

class RunEncoder {
 public:
  explicit RunEncoder(GraphTable* table) : table_(table) {}
  // Switches to another worker's table, because that worker knows other graphs.
  void UseTable(GraphTable* table) { table_ = table; }

  // A graph that must be defined before the run.
  struct Definition {
    v1::DefineGraph message;
    std::string fingerprint;  // expected from the worker
  };
  // A graph to be sent to the coordinator.
  struct GraphToSend {
    ContentHash key_hash;  // identifies the graph within this process
    v1::Graph graph;
  };
  struct Encoded {
    std::optional<Definition> definition;
    // Set at the graph's first use in `graph_epoch`, which grows when the
    // coordinator needs all graphs once more.
    std::optional<GraphToSend> graph_to_send;
    v1::Run run;
    // Number of runs of the graph, including this one, since it entered the
    // table.
    uint64_t uses = 0;
    // Storages that a repeat writes but may not name; empty for other runs.
    std::vector<uint64_t> written;
    // Set while runs are kept.
    std::shared_ptr<const KeptRun> kept;
    std::vector<Lineage::Use> kept_uses;
  };

  // Decides whether Encode() also returns what it takes to send the run again.
  void KeepRuns(bool keeps) { keeps_ = keeps; }

  // Encodes the segment, and counts its uses of storages as sent. The run frees
  // a storage if it is released and no unsent message names it.
  Encoded Encode(const Segment& segment, uint64_t graph_epoch = 1);

  // Encodes a part with one binding per slot. `mode` is as in Segment.
  // `numbers` replace the part's, unless null.
  Encoded Encode(const CapturedPart& part, RunMode mode,
                 absl::Span<const RunBinding> bindings,
                 uint64_t graph_epoch = 1,
                 const PartNumbers* numbers = nullptr);
  // Encodes `sized` at the given size, in place of the part's own graph.
  Encoded Encode(const CapturedPart& part, RunMode mode,
                 const SizedGraph& sized, int64_t size,
                 absl::Span<const RunBinding> bindings,
                 uint64_t graph_epoch = 1);

  // Returns the segment's graph without counting uses. If `storages` is not
  // null, stores there the ids to which the slots are bound.
  v1::Graph Describe(const Segment& segment,
                     std::vector<uint64_t>* storages = nullptr);

  static void FillMode(RunMode mode, v1::Run* run);

  // Counts one use by a message other than a run as sent. Returns true if the
  // storage is released and no unsent message names it; the caller must then
  // free it.
  static bool ReleaseUse(RemoteStorage* storage);

 private:
  // Fills kinds_, bindings_ and slot_of_touch_.
  void AssignSlots(const Segment& segment);
  // Returns the entry of the graph with this key. If the key belongs to a
  // family, returns the family's entry, and names the graph at its size as
  // FillGraph() does.
  template <typename Build>
  GraphTable::Entry FindGraph(absl::string_view key, uint64_t graph_epoch,
                              Build build, Encoded* encoded);
  // Names the run's graph in `encoded`. Calls `build` only if the worker or the
  // coordinator needs the graph.
  template <typename Build>
  void FillGraph(absl::string_view key, const GraphTable::Entry& entry,
                 uint64_t graph_epoch, Build build, Encoded* encoded);
  void FillRun(RunMode mode, absl::Span<const RunBinding> bindings,
               absl::Span<const double> floats,
               absl::Span<const ScalarValue> scalar_tensors,
               const GraphTable::Entry& graph, Encoded* encoded);
  // Fills in what differs from the run `before`.
  static void FillRepeat(absl::Span<const RunBinding> bindings,
                         const GraphTable::RememberedRun& before,
                         Encoded* encoded);
  // Counts the run's uses as sent, and finds the slots that are final in it.
  void FindFinalSlots(absl::Span<const RunBinding> bindings);
  // Fills `kept` and `kept_uses` of a run that is complete otherwise.
  void Keep(RunMode mode, absl::Span<const RunBinding> bindings,
            absl::Span<const double> floats, const GraphTable::Entry& graph,
            Encoded* encoded) const;

  GraphTable* table_;
  bool keeps_ = false;
  SizeFamilies families_;
  uint64_t run_ = 0;
  // Reused between runs.
  std::vector<srg::Slot> kinds_;
  std::vector<RunBinding> bindings_;
  std::vector<uint32_t> slot_of_touch_;
  std::vector<uint32_t> final_slots_;
  std::string key_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_RUN_ENCODER_H_
