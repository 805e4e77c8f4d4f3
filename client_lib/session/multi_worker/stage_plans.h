// Keeps the plans of stages of a device that starts on several workers. The
// coordinator cuts the graphs that the device repeats into stages, and the
// coordinator's answers say which replica keeps which storage.
//
// Thread-safe. No other lock is taken under its lock.
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_PLANS_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_PLANS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "common/base/mutex.h"

namespace djinn {

// Ranks the moves between replicas: first by the round of the repeated graph
// that needs the value, then by how long that round still takes. Not
// thread-safe: the multi-worker device's lock guards it.
class RoundClock {
 public:
  explicit RoundClock(SessionContext* context) : context_(context) {
    remaining_.fill(StageOrder::kUnknown);
  }
  // Begins the next round, which later moves belong to.
  void Begin();
  // Returns to a round that has begun.
  void set_round(uint64_t round) { round_ = round; }
  uint64_t round() const { return round_; }
  // Returns how long, in seconds, the run still takes after the replica's last
  // call. Returns infinity if this is unknown.
  double remaining(int member) const { return remaining_[member]; }
  void set_remaining(int member, double seconds) {
    remaining_[member] = seconds;
  }

 private:
  SessionContext* const context_;
  uint64_t round_ = 0;
  std::array<double, StorageCopies::kMaxMembers> remaining_;
};

class StagePlans {
 public:
  StagePlans(SessionContext* context, WorkerSet* workers)
      : context_(context), workers_(workers) {}

  // Returns the number of plans so far.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  // Returns a number for a question of any kind to the coordinator.
  uint64_t NextQuestion();

  // Asks how to cut a graph that a replica's sender saw a second time. If the
  // graph is a stage of a cut graph, asks from time to time whether to cut that
  // graph differently.
  void OnRepeat(int member, RepeatedGraph repeated);
  // Takes the coordinator's answer to such a question.
  void OnAnswer(const v1::StageAnswer& answer);

  // Returns a call's use of the storages in the order of their plan: whether
  // the call begins a run, and how long the run still takes. Returns nothing if
  // no plan names the storages. Must be called once per call.
  std::optional<StageOrder::Use> NextUse(
      absl::Span<const PlacedSlot* const> placed);
  // Returns the replica that should keep the storage by a plan, or -1.
  int KeeperOf(const RemoteStorage& storage, StorageCopies* copies);
  // Makes a plan place the contents of the replica's storage.
  void Keep(const RemoteStorage& copy, const PlacedSlot& placed);
  // Removes the replica's storage from plans.
  void Forget(const RemoteStorage& copy);
  // Removes all copies of the storage from plans.
  void ForgetCopies(const RemoteStorage& storage, const StorageCopies& copies);

 private:
  // A question about a graph that waits for its answer.
  struct Question {
    v1::Graph graph;
    v1::GraphNotes notes;
    // The storage that each slot was bound to.
    std::vector<uint64_t> storages;
    // The present cut of the graph; null if it was not cut yet.
    std::shared_ptr<CutGraph> cut;
  };

  // Returns the plan that places one of these storages, or null.
  std::shared_ptr<CutGraph> CutOf(absl::Span<const uint64_t> storages) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the replica that the answer gives for each slot. Returns an empty
  // vector if the answer is not about this graph or this device.
  std::vector<int8_t> ReadMembers(const v1::StageAnswer& answer,
                                  size_t slots) const;
  // Assigns the slots to replicas according to the answer to `question`.
  // Returns false if this moves no storage.
  bool Apply(const v1::StageAnswer& answer, Question question)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  SessionContext* const context_;
  WorkerSet* const workers_;
  std::atomic<uint32_t> count_{0};

  Mutex mu_;
  uint64_t last_question_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Question> questions_ ABSL_GUARDED_BY(mu_);  // by number
  // Maps the ids of replicas' storages to the slots that determine which
  // replica should keep their contents. The lock also guards the contents of
  // each CutGraph.
  absl::flat_hash_map<uint64_t, PlacedSlot> kept_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_PLANS_H_
