// Executes captured graphs on a multi-worker device. If the coordinator has a
// plan for a graph's rows, either every replica executes the graph on some of
// the rows, or every replica executes one stage of the graph on all rows
// (row_replayer_stages.cc).
//
// Each replica has a copy of the captured storages, and of inputs without rows.
// The replica that has an input with rows cuts the input, and the rows move
// from worker to worker. The rows of the outputs move to the first replica,
// which puts them together. No thread waits, because every value is offered
// before a replica fetches it.
//
// Not thread-safe: the multi-worker device's lock guards everything except
// FindSharing() and OnAnswer().
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_ROW_REPLAYER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_ROW_REPLAYER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/row_shares.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/value_mover.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/recording.h"
#include "common/base/mutex.h"

namespace djinn {

struct StageGraph;

class RowReplayer {
 public:
  RowReplayer(SessionContext* context, VirtualDevice* owner, WorkerSet* workers,
              CopyTable* table, ValueMover* mover, StagePlans* plans,
              RoundClock* rounds)
      : context_(context),
        owner_(owner),
        workers_(workers),
        table_(table),
        mover_(mover),
        plans_(plans),
        rounds_(rounds) {}

  // Fills captured_graph->sharing, and asks the coordinator if the plan is
  // unknown. Returns FailedPrecondition if the rows cannot be divided.
  // Thread-safe.
  absl::Status FindSharing(CapturedGraph* captured_graph);
  // Takes the coordinator's answer to such a question. Thread-safe.
  void OnAnswer(const v1::StageAnswer& answer);

  // Executes the graph and returns its outputs. Returns FailedPrecondition
  // (STALE_RECORDING) if the callable should be captured once more instead.
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const CapturedGraph>& captured_graph,
      const std::shared_ptr<const RowShares>& shares,
      absl::Span<RemoteStorage* const> given);

 private:
  // The replica that has most inputs of a graph and puts its outputs together.
  // The coordinator uses the same index.
  static constexpr int kHome = 0;

  // A single execution of a graph.
  struct Execution {
    uint32_t lane;
    const std::shared_ptr<const CapturedGraph>& captured_graph;
    const std::shared_ptr<const RowShares>& shares;
    absl::Span<RemoteStorage* const> given;
    // Storages of replicas that nothing names after the execution.
    std::vector<std::pair<int, StoragePtr>> passing;

    RemoteStorage* Pass(int member, StoragePtr storage) {
      return passing.emplace_back(member, std::move(storage)).second.get();
    }
    uint64_t OutputBytes() const {
      uint64_t sum = 0;
      for (const uint64_t bytes : captured_graph->output_bytes) sum += bytes;
      return sum;
    }
  };
  // The stages of a graph, by the rows of a micro-batch.
  struct StagedGraph;
  // A replica's storage that holds some rows.
  struct RowsAt {
    int member = 0;
    RemoteStorage* storage = nullptr;
  };
  // The inputs of a shard on a replica, by slot and replica.
  using RowsGiven =
      absl::flat_hash_map<std::pair<uint32_t, int>, RemoteStorage*>;
  struct BytesAt {
    RemoteStorage* storage;
    uint64_t offset;
  };

  void AskForShares(const CapturedGraph& captured_graph);
  absl::Status Check(const Execution& replay);
  absl::Status CheckRoomForParts(const Execution& replay);
  absl::Status CheckRoomForStages(const Execution& replay);
  absl::StatusOr<std::vector<StoragePtr>> ExecuteParts(Execution* replay);
  // Returns the graph's stages, which are cut at its first execution.
  absl::StatusOr<std::shared_ptr<const StagedGraph>> StagesOf(
      const std::shared_ptr<const CapturedGraph>& captured_graph,
      const RowShares& shares);
  absl::StatusOr<std::vector<StoragePtr>> ExecuteInStages(Execution* replay);
  // Returns the micro-batch's rows of the outputs.
  absl::StatusOr<std::vector<RowsAt>> ExecuteMicroBatch(
      Execution* replay, const RowShares::Part& part,
      absl::Span<const StageGraph> stages, const RowsGiven& rows_given);
  // Puts the outputs together from each shard's rows.
  absl::StatusOr<std::vector<StoragePtr>> PutTogether(
      Execution* replay, absl::Span<const std::vector<RowsAt>> made);
  // Returns the shard's inputs on its replica. Afterwards the replica also has
  // all captured storages.
  absl::StatusOr<std::vector<RemoteStorage*>> BringGiven(
      Execution* replay, const RowShares::Part& part);
  // Returns one of the inputs: the shard's rows, or all of it if it has none.
  absl::StatusOr<RemoteStorage*> BringOneGiven(Execution* replay, size_t index,
                                               const RowShares::Part& part);
  absl::StatusOr<RemoteStorage*> BringRows(Execution* replay,
                                           RemoteStorage* storage,
                                           const RowShares::Part& part,
                                           uint64_t row_bytes);
  // Sends a replica's own storage to the other replica, and returns the storage
  // there.
  absl::StatusOr<RemoteStorage*> Send(
      Execution* replay, RemoteStorage* storage, int from, int to,
      double remaining_seconds = StageOrder::kUnknown);
  // Copies between two storages of the replica, by a call on it.
  absl::Status CopyBytes(uint32_t lane, int member, const BytesAt& from,
                         const BytesAt& to, uint64_t bytes);

  SessionContext* const context_;
  VirtualDevice* const owner_;
  WorkerSet* const workers_;
  CopyTable* const table_;
  ValueMover* const mover_;
  StagePlans* const plans_;
  RoundClock* const rounds_;
  // Stages by the graph's number.
  absl::flat_hash_map<uint64_t, std::shared_ptr<const StagedGraph>> staged_;

  Mutex mu_;  // no other lock is taken under it
  // Plans by SharingKey(), and graphs by the number of the question about them.
  absl::flat_hash_map<std::string, std::shared_ptr<RowSharing>> sharings_
      ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<const CapturedGraph>> questions_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_ROW_REPLAYER_H_
