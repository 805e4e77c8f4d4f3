// Executes captured graphs on a multi-worker device: where the coordinator has
// a plan of a graph's rows, every member executes it on some of these, or some
// of its stages on all (row_replayer_stages.cc).
//
// Each member has a copy of what a graph keeps, and of inputs without rows. An
// input with rows is cut where it is, and the rows go from worker to worker; so
// do the rows of the outputs, which are put together on the first member. No
// thread waits: the members' orders are such that each fetches what was offered
// before.
//
// Not thread-safe: the multi-worker device's lock guards it, but for
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
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/row_shares.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/value_mover.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "client_lib/session/recording/recording.h"
#include "common/base/mutex.h"

namespace djinn {

struct StageRecording;

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

  // Fills recording->sharing, and asks the coordinator if that is not known.
  // FailedPrecondition when its rows are not to be shared out. Thread-safe.
  absl::Status FindSharing(Recording* recording);
  // The coordinator's answer to such a question. Thread-safe.
  void OnAnswer(const v1::StageAnswer& answer);

  // The graph's outputs. STALE_RECORDING where the callable is to be captured
  // instead.
  absl::StatusOr<std::vector<StoragePtr>> Replay(
      uint32_t lane, const std::shared_ptr<const Recording>& recording,
      const std::shared_ptr<const RowShares>& shares,
      absl::Span<RemoteStorage* const> given);

 private:
  // The member that has most inputs of a graph, and where its outputs are put
  // together; the coordinator has the same.
  static constexpr int kHome = 0;

  // One execution.
  struct Execution {
    uint32_t lane;
    const std::shared_ptr<const Recording>& recording;
    const std::shared_ptr<const RowShares>& shares;
    absl::Span<RemoteStorage* const> given;
    // Storages of members that nothing names afterwards.
    std::vector<std::pair<int, StoragePtr>> passing;

    RemoteStorage* Pass(int member, StoragePtr storage) {
      return passing.emplace_back(member, std::move(storage)).second.get();
    }
    uint64_t OutputBytes() const {
      uint64_t sum = 0;
      for (const uint64_t bytes : recording->output_bytes) sum += bytes;
      return sum;
    }
  };
  // The stages of a graph, by the rows of a micro-batch.
  struct StagedRecording;
  // A member's storage of some rows.
  struct RowsAt {
    int member = 0;
    RemoteStorage* storage = nullptr;
  };
  // By slot and member: the inputs of a part there.
  using RowsGiven =
      absl::flat_hash_map<std::pair<uint32_t, int>, RemoteStorage*>;
  struct BytesAt {
    RemoteStorage* storage;
    uint64_t offset;
  };

  void AskForShares(const Recording& recording);
  absl::Status Check(const Execution& replay);
  absl::Status CheckRoomForParts(const Execution& replay);
  absl::Status CheckRoomForStages(const Execution& replay);
  absl::StatusOr<std::vector<StoragePtr>> ExecuteParts(Execution* replay);
  // The graph's stages, cut when it is executed first.
  absl::StatusOr<std::shared_ptr<const StagedRecording>> StagesOf(
      const std::shared_ptr<const Recording>& recording,
      const RowShares& shares);
  absl::StatusOr<std::vector<StoragePtr>> ExecuteInStages(Execution* replay);
  // The micro-batch's rows of the outputs.
  absl::StatusOr<std::vector<RowsAt>> ExecuteMicroBatch(
      Execution* replay, const RowShares::Part& part,
      absl::Span<const StageRecording> stages, const RowsGiven& rows_given);
  // The outputs, of each part's rows of them.
  absl::StatusOr<std::vector<StoragePtr>> PutTogether(
      Execution* replay, absl::Span<const std::vector<RowsAt>> made);
  // The inputs of the part, at its member, where all that it keeps is then.
  absl::StatusOr<std::vector<RemoteStorage*>> BringGiven(
      Execution* replay, const RowShares::Part& part);
  // One of the inputs: the part's rows, or all of it if it has none.
  absl::StatusOr<RemoteStorage*> BringOneGiven(Execution* replay, size_t index,
                                               const RowShares::Part& part);
  absl::StatusOr<RemoteStorage*> BringRows(Execution* replay,
                                           RemoteStorage* storage,
                                           const RowShares::Part& part,
                                           uint64_t row_bytes);
  // Sends a member's own storage to the other one; returns what it is there.
  absl::StatusOr<RemoteStorage*> Send(
      Execution* replay, RemoteStorage* storage, int from, int to,
      double remaining_seconds = StageOrder::kUnknown);
  // Copies by a call on the member, between its own storages.
  absl::Status CopyBytes(uint32_t lane, int member, const BytesAt& from,
                         const BytesAt& to, uint64_t bytes);

  SessionContext* const context_;
  VirtualDevice* const owner_;
  WorkerSet* const workers_;
  CopyTable* const table_;
  ValueMover* const mover_;
  StagePlans* const plans_;
  RoundClock* const rounds_;
  // By the graph's number.
  absl::flat_hash_map<uint64_t, std::shared_ptr<const StagedRecording>> staged_;

  Mutex mu_;  // a leaf
  // By SharingKey(), and graphs by the number of the question about them.
  absl::flat_hash_map<std::string, std::shared_ptr<RowSharing>> sharings_
      ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<const Recording>> questions_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_ROW_REPLAYER_H_
