// Plans of stages for a device that begins on several workers: what it repeats
// is cut into stages by the coordinator, whose answers say which member keeps
// which storage.
//
// Thread-safe, with a lock that is a leaf.
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
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/cut_graph.h"
#include "client_lib/session/multi_worker/stage_order.h"
#include "client_lib/session/multi_worker/storage_copies.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "common/base/mutex.h"

namespace djinn {

// Ranks what moves between members: of what the device repeats, which one it is
// needed in, and how long that still takes. Not thread-safe: the multi-worker
// device's lock guards it.
class RoundClock {
 public:
  explicit RoundClock(SessionContext* context) : context_(context) {
    remaining_.fill(StageOrder::kUnknown);
  }
  // Begins the next round: what is brought from now on is for that.
  void Begin();
  // Goes back to one that has begun.
  void set_round(uint64_t round) { round_ = round; }
  uint64_t round() const { return round_; }
  // How long the run still takes from the last call at the member on; infinite
  // if that is not known.
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

  // The number of plans so far.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  // Numbers a question to the coordinator, of any kind.
  uint64_t NextQuestion();

  // A member's sender saw a graph again: asks how to cut it. Where it is a
  // stage of one, asks now and then whether that should be cut otherwise.
  void OnRepeat(int member, RepeatedGraph repeated);
  // The coordinator's answer to such a question.
  void OnAnswer(const v1::StageAnswer& answer);

  // Looks where the storages are placed, and returns the uses of a call in the
  // order of their plans: the run begins with the call, and how long it still
  // takes. Absent: no plan names them. Once for each call.
  std::optional<StageOrder::Use> NextUse(
      absl::Span<const PlacedSlot* const> placed);
  // The member that a plan has keep the storage; -1 if none has.
  int KeeperOf(const RemoteStorage& storage, StorageCopies* copies);
  // Has a plan place what the member's storage holds.
  void Keep(const RemoteStorage& copy, const PlacedSlot& placed);
  // Plans that name the storage of a member name nothing.
  void Forget(const RemoteStorage& copy);
  // Plans that name one of the copies name nothing.
  void ForgetCopies(const RemoteStorage& storage, const StorageCopies& copies);

 private:
  // A question about a graph that waits for its answer.
  struct Question {
    v1::Graph graph;
    v1::GraphNotes notes;
    // By slot, the storage that it was bound to.
    std::vector<uint64_t> storages;
    // Not null: it was cut before, by this.
    std::shared_ptr<CutGraph> cut;
  };

  // The plan that places one of these storages; null if none does.
  std::shared_ptr<CutGraph> CutOf(absl::Span<const uint64_t> storages) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the member of each slot by the answer; empty if it is not of the
  // graph, or not of this device.
  std::vector<int8_t> ReadMembers(const v1::StageAnswer& answer,
                                  size_t slots) const;
  // Places the slots by the answer, which is about `question`. False if nothing
  // is placed otherwise now.
  bool Apply(const v1::StageAnswer& answer, Question question)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  SessionContext* const context_;
  WorkerSet* const workers_;
  std::atomic<uint32_t> count_{0};

  Mutex mu_;
  uint64_t last_question_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Question> questions_ ABSL_GUARDED_BY(mu_);  // by number
  // Members' storages by id: what says which member is to keep what they hold.
  // The lock guards what a CutGraph says, too.
  absl::flat_hash_map<uint64_t, PlacedSlot> kept_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_STAGE_PLANS_H_
