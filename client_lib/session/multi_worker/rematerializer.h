// Rematerializes values on a replica of a multi-worker device instead of
// fetching them, where the calls take less time than the transfer of the bytes.
// docs/design/multi-worker.md has the formula.
//
// Not thread-safe: the multi-worker device's lock guards everything except
// AddStatistics().
#ifndef CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZER_H_
#define CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/session/device/outgoing/replica_role.h"
#include "client_lib/session/device/outgoing/session_context.h"
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "djinn/statistics.h"

namespace djinn {

// A storage that a call names, and how, while the call's touches name copies.
struct NamedStorage {
  StoragePtr storage;
  uint8_t access;
};

// Moves an operand to a replica, so that its copy there holds the right value.
class OperandSource {
 public:
  virtual ~OperandSource() = default;
  virtual absl::Status BringWhole(uint32_t lane, RemoteStorage* storage,
                                  int member) = 0;
};

class Rematerializer {
 public:
  Rematerializer(SessionContext* context, WorkerSet* workers, CopyTable* table,
                 StagePlans* plans, OperandSource* operands)
      : context_(context),
        workers_(workers),
        table_(table),
        plans_(plans),
        operands_(operands) {}

  // Describes how to rematerialize the value that a call on `member` computes.
  // Returns null if this is impossible.
  std::shared_ptr<const Rematerialization> RematerializationFor(
      const Call& call, absl::Span<const NamedStorage> named, int member);
  // Tries to give the replica the storage's newest version by executing the
  // calls that computed it, if that is cheap or takes less time than a fetch.
  // If it returns false, the replica has no copy.
  absl::StatusOr<bool> TryMake(uint32_t lane, RemoteStorage* storage,
                               int member);
  // Thread-safe.
  void AddStatistics(Statistics* sum) const;

 private:
  // The reason why a value was fetched.
  enum class Fetched { kNotRepeatable, kOtherBits, kNotMeasured, kNotWorthIt };
  // The cost of rematerializing a value on a replica.
  struct Making {
    int member = 0;
    WorkerDescription facts;
    double seconds = 0;
    uint32_t calls = 0;
    // Operands that storages of the program hold; pinned.
    absl::flat_hash_map<HeldValue*, StoragePtr> operands;
    // Meaningful if the value cannot be rematerialized.
    Fetched why = Fetched::kNotRepeatable;
  };

  absl::StatusOr<bool> MakeIfWorthIt(uint32_t lane, RemoteStorage* storage,
                                     Making* making);
  // Returns whether to rematerialize the value rather than fetch it. Pins the
  // operands.
  bool IsWorthMaking(RemoteStorage* storage,
                     const Rematerialization& rematerialization,
                     Making* making);
  // Adds the cost of the rematerialization to `making`. Returns false if the
  // replica cannot compute the value, or would compute other bits.
  bool Weigh(const Rematerialization& rematerialization, Making* making);
  bool WeighOperand(const Rematerialization& rematerialization, uint32_t touch,
                    Making* making);
  void Unpin(Making* making);
  // Executes the rematerialization into `target`, a storage of the replica that
  // does not exist on its worker yet.
  absl::Status Make(uint32_t lane, const Rematerialization& rematerialization,
                    RemoteStorage* target, const Making& making);
  // Logs the comparison when its outcome differs from the last one.
  void Explain(const RemoteStorage& storage, const Making& making,
               double fetching_seconds, bool make);

  SessionContext* const context_;
  WorkerSet* const workers_;
  CopyTable* const table_;
  StagePlans* const plans_;
  OperandSource* const operands_;
  // See Statistics.
  std::atomic<uint64_t> rematerialized_{0};
  std::atomic<uint64_t> bytes_not_fetched_{0};
  std::array<std::atomic<uint64_t>, 4> fetched_{};  // by Fetched
  // The memory of all rematerializations that are not cheap.
  const std::shared_ptr<std::atomic<int64_t>> rematerialization_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  // One bit for each replica: whether the last value that was weighed for it
  // was rematerialized.
  uint32_t makes_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZER_H_
