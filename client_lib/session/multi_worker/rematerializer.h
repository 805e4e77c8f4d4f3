// Rematerializes values on a member of a multi-worker device in place of
// fetching them, where the calls that made them take less time than the bytes
// need to move. docs/scheduling.md has the formula.
//
// Not thread-safe: the multi-worker device's lock guards it, but for
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
#include "client_lib/session/device/remote_device.h"
#include "client_lib/session/device/session_context.h"
#include "client_lib/session/model/call.h"
#include "client_lib/session/multi_worker/copy_table.h"
#include "client_lib/session/multi_worker/held_value.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/multi_worker/stage_plans.h"
#include "client_lib/session/multi_worker/worker_set.h"
#include "djinn/statistics.h"

namespace djinn {

// A storage that a call names while its touches name copies, and how.
struct NamedStorage {
  StoragePtr storage;
  uint8_t access;
};

// Brings an operand to a member, so that its copy there holds what it should.
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

  // How the values that a call makes, which goes to `member`, can be made
  // again. Null where they cannot.
  std::shared_ptr<const Rematerialization> RematerializationFor(
      const Call& call, absl::Span<const NamedStorage> named, int member);
  // Has the member hold the storage's newest version by executing what made it,
  // if that is cheap or worth it. False, with no copy there, otherwise.
  absl::StatusOr<bool> TryMake(uint32_t lane, RemoteStorage* storage,
                               int member);
  // Thread-safe.
  void AddStatistics(Statistics* sum) const;

 private:
  // Why a value was fetched.
  enum class Fetched { kNotRepeatable, kOtherBits, kNotMeasured, kNotWorthIt };
  // The cost of making a value on a member.
  struct Making {
    int member = 0;
    RemoteDevice::WorkerFacts facts;
    double seconds = 0;
    uint32_t calls = 0;
    // The operands that the program has; pinned.
    absl::flat_hash_map<HeldValue*, StoragePtr> operands;
    // Meaningful when it cannot be made.
    Fetched why = Fetched::kNotRepeatable;
  };

  absl::StatusOr<bool> MakeIfWorthIt(uint32_t lane, RemoteStorage* storage,
                                     Making* making);
  // Whether to make it, and not to fetch it; pins the operands.
  bool IsWorthMaking(RemoteStorage* storage,
                     const Rematerialization& rematerialization,
                     Making* making);
  // Adds what it takes. False: it cannot be made there, or would not be the
  // same.
  bool Weigh(const Rematerialization& rematerialization, Making* making);
  bool WeighOperand(const Rematerialization& rematerialization, uint32_t touch,
                    Making* making);
  void Unpin(Making* making);
  // Has `target`, which is the member's and not born, hold what the
  // rematerialization makes.
  absl::Status Make(uint32_t lane, const Rematerialization& rematerialization,
                    RemoteStorage* target, const Making& making);
  // Says in the log what was weighed, when it comes out otherwise than before.
  void Explain(const RemoteStorage& storage, const Making& making,
               double fetching_seconds, bool make);

  SessionContext* const context_;
  WorkerSet* const workers_;
  CopyTable* const table_;
  StagePlans* const plans_;
  OperandSource* const operands_;
  // As in Statistics.
  std::atomic<uint64_t> rematerialized_{0};
  std::atomic<uint64_t> bytes_not_fetched_{0};
  std::array<std::atomic<uint64_t>, 4> fetched_{};  // by Fetched
  // The memory of the rematerializations that are not cheap.
  const std::shared_ptr<std::atomic<int64_t>> rematerialization_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  // By member, a bit each: the last value that was weighed for it was made.
  uint32_t makes_ = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_MULTI_WORKER_REMATERIALIZER_H_
