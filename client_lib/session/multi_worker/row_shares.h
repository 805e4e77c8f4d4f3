// Divides the rows of a captured graph among the replicas of a multi-worker
// device, or makes them pass through the replicas in micro-batches. Builds the
// question to the coordinator and interprets the answer.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "client_lib/session/recording/recording.h"
#include "client_lib/session/stream/run_binding.h"
#include "common/base/mutex.h"
#include "djinn/v1/session.pb.h"

namespace djinn {

// Immutable.
struct RowShares {
  struct Part {
    int member = 0;
    // The shard's rows are [first, first + rows).
    uint64_t first = 0;
    uint64_t rows = 0;
  };

  // Returns the size at which the graph has `of_rows` rows. The size is 0 for
  // `rows` rows, and grows by 1 with each row.
  int64_t SizeOf(uint64_t of_rows) const {
    return static_cast<int64_t>(of_rows) - static_cast<int64_t>(rows);
  }

  uint64_t rows = 0;
  // Two or more shards, in the order of the rows. Without stages, each shard is
  // on another replica. With stages, each shard is a micro-batch that passes
  // through them, and its `member` is the replica of the first stage.
  std::vector<Part> parts;
  // The replicas of the stages, all different. Empty if every replica executes
  // the whole graph.
  std::vector<int> stages;
  // The stage of each node, in the form that srg::CheckStageOrder() takes.
  // Filled only if there are stages.
  std::vector<uint32_t> stage_of_node;
  // Maps slots that stages of other replicas compute, and replicas that need
  // them, to the seconds that the run still takes once the value has arrived.
  absl::flat_hash_map<std::pair<uint32_t, int>, double> remaining_seconds;
  // Followed by a stage's rows and number, names the stage's graph.
  std::string stages_key;
  // The bytes of one row of each input, and of each output. 0 for an input that
  // every shard gets as a whole.
  std::vector<uint64_t> given_row_bytes;
  std::vector<uint64_t> output_row_bytes;
  // The captured graph, with a size hole.
  SizedGraph graph;
};

// Returns FailedPrecondition with a human-readable text for a captured graph
// that does not execute in one run, or that writes storages that existed
// before.
absl::Status CheckShareable(const CapturedGraph& captured_graph);

// Returns a key that is equal for captured graphs to which the coordinator
// gives the same answer. All functions from here on require a shareable graph.
std::string SharingKey(const CapturedGraph& captured_graph);

v1::RecordingSlots SlotsOf(const CapturedGraph& captured_graph);

// Interprets the answer on a device of `members` replicas. Returns
// FailedPrecondition with the reason why there is no plan, or Internal
// (BAD_BATCH_PLAN) for a plan of another graph or of other replicas.
absl::StatusOr<std::shared_ptr<const RowShares>> MakeShares(
    const CapturedGraph& captured_graph, const v1::StageAnswer& answer,
    int members);

// Remembers the plan of similar captured graphs. Thread-safe.
class RowSharing {
 public:
  // Returns whether to ask the coordinator: at the first use, and, while there
  // is no answer, at the 8th use, the 64th, and so on.
  bool Asks();
  void Answer(absl::StatusOr<std::shared_ptr<const RowShares>> answer);
  // Returns null before the answer arrived, and its error if it is one.
  absl::StatusOr<std::shared_ptr<const RowShares>> shares() const;

 private:
  mutable Mutex mu_;
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  absl::StatusOr<std::shared_ptr<const RowShares>> shares_
      ABSL_GUARDED_BY(mu_) = nullptr;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
};

// A stage of a captured graph, whose rows pass through its device's replicas in
// micro-batches. Immutable.
struct StageGraph {
  int member = 0;
  // The stage as a captured graph with one run. Its inputs are intermediates of
  // earlier stages and inputs of the whole graph. It captures nothing: captured
  // storages of the whole graph are passed as inputs at each execution. Its
  // outputs are the values that later stages need and the whole graph's outputs
  // that it computes.
  std::shared_ptr<const CapturedGraph> captured_graph;
  // The stage's graph, and its key.
  std::shared_ptr<const SizedGraph> graph;
  // The whole's slot of each input, captured storage and output.
  std::vector<uint32_t> given;
  std::vector<uint32_t> kept;
  std::vector<uint32_t> outputs;
};

// Returns the stages in order. `shares` belong to the captured graph and have
// stages. Fails if the graph is invalid for the number of rows in a
// micro-batch.
absl::StatusOr<std::vector<StageGraph>> CutIntoStages(
    const CapturedGraph& captured_graph, const RowShares& shares,
    uint64_t rows);

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_ROW_SHARES_H_
