// One client session on this worker, from the accepted Hello to the end of its
// stream: receives ordered messages, carries them out when its turn comes, and
// answers.
//
// Messages wait in a bounded queue until the executor calls Step(), which
// carries out one. An Install that needs its bytes parks the session: it has no
// work until they came, or until they did not come for too long. Each kind of
// message has its handler in a file of its own.
//
// Threading: Receive() and ReceiveBulk() are called by the transport, Step() by
// one executor thread, Drop() and CheckDeadlines() by anybody. Storages and
// structures are touched by Step() alone, and freed by whichever of Step() and
// Drop() comes last.
//
// A peer that breaks the protocol makes the session call `fail` once; it then
// ignores everything until it is dropped.
#ifndef GPU_WORKER_SESSION_SESSION_H_
#define GPU_WORKER_SESSION_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/srg/validate.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/cache/content_cache.h"
#include "gpu_worker/cache/graph_cache.h"
#include "gpu_worker/memory/device_memory.h"
#include "gpu_worker/plan/executor.h"
#include "gpu_worker/session/outbox.h"
#include "gpu_worker/session/root_errors.h"
#include "gpu_worker/session/storage_table.h"

namespace djinn::worker {

// What all sessions of a worker share; outlives them.
struct SessionEnvironment {
  std::string worker_id;
  Clock* clock = nullptr;
  RandomSource* random = nullptr;
  DeviceMemory* memory = nullptr;
  ContentCache* contents = nullptr;
  GraphCache* graphs = nullptr;
  ExecutionCounters* counters = nullptr;
  srg::StructureCaps caps;
  absl::Duration transfer_idle_timeout = absl::Seconds(30);
  uint64_t outbox_bytes = uint64_t{8} << 20;
  // Called when the tenant's contents changed, without locks.
  std::function<void()> contents_changed = [] {};
};

class Session {
 public:
  struct Callbacks {
    // There may be work again.
    std::function<void()> runnable;
    // The client broke the protocol: close its stream with this status.
    std::function<void(absl::Status)> fail;
  };

  // `environment` outlives the session, `stream` lives until Detach().
  Session(const SessionEnvironment* environment, std::string tenant,
          v1::SessionLimits limits, WorkerStream* stream, Callbacks callbacks);
  ~Session();

  // --- Transport.
  void Receive(v1::Ordered message);
  void ReceiveBulk(uint64_t transfer_id, uint64_t offset,
                   absl::Span<const absl::string_view> pieces);
  // Sends a message outside the order, such as WorkerHello.
  void Send(v1::ControlResponse message);

  // --- Executor.
  bool HasWork() const;
  // Carries out one message, or what remains of one. No work: does nothing.
  void Step();

  // --- Life.
  // Gives up a transfer that stands still.
  void CheckDeadlines();
  // Frees everything, at once or when the current node is done.
  void Drop();
  // The stream is not used any more when it returns.
  void Detach(const WorkerStream* stream) { outbox_.Detach(stream); }
  void OnRoom() { outbox_.OnRoom(); }
  void OnBulkRoom() { outbox_.OnBulkRoom(); }

  // --- Numbers.
  const std::string& tenant() const { return tenant_; }
  const v1::SessionLimits& limits() const { return limits_; }
  uint64_t storage_count() const { return storage_count_; }
  uint64_t storage_bytes() const { return quota_.used(); }
  uint32_t queued_runs() const { return queued_runs_; }

 private:
  struct Inbound {
    v1::Ordered message;
    uint64_t bytes;
  };
  struct Structure {
    // One of the two.
    std::shared_ptr<const Plan> plan;
    RootError refused;
  };
  // An upload on its way; the session is parked while there is one.
  struct Transfer {
    uint64_t id = 0;
    uint64_t sequence = 0;
    uint64_t storage = 0;
    uint64_t size_bytes = 0;
    ContentHash claimed;
    std::shared_ptr<Buffer> buffer;
    std::shared_ptr<Reservation> reservation;
    // Guarded by Session::mu_ once published.
    enum class State {
      kReceiving,
      kComplete,
      kFailed
    } state = State::kReceiving;
    absl::Status failure;
    uint64_t received = 0;
    bool writing = false;
    absl::Duration last_chunk;
  };

  // Handlers. An error is a violation of the protocol.
  absl::Status Handle(const v1::Ordered& message);
  absl::Status HandleDefine(uint64_t sequence,
                            const v1::DefineStructure& define);
  absl::Status HandleRun(uint64_t sequence, const v1::Run& run);
  absl::Status HandleInstall(uint64_t sequence, const v1::Install& install);
  absl::Status HandleCreate(uint64_t sequence, const v1::CreateStorage& create);
  absl::Status HandleRead(uint64_t sequence, const v1::Read& read);
  absl::Status HandleFree(const v1::Free& free);

  absl::Status InstallInline(Storage* storage, const std::string& bytes);
  absl::Status InstallSeed(Storage* storage, uint64_t seed);
  void InstallTransfer(uint64_t sequence, uint64_t storage_id, Storage* storage,
                       bool birth, const v1::Transfer& transfer);
  absl::StatusOr<std::shared_ptr<Transfer>> StartTransfer(
      uint64_t sequence, uint64_t storage_id, Storage* storage,
      const v1::Transfer& transfer);
  void FinishTransfer(Transfer* transfer);
  absl::Status KeepContent(Transfer* transfer, Storage* storage);
  absl::StatusOr<SharedBytes> ReadValue(const v1::Read& read,
                                        const Storage& storage);

  // Finds the storage that a message with this base version acts on, or gives
  // birth to it; moves its version on by one.
  absl::StatusOr<Storage*> NextVersion(uint64_t id, uint64_t base_version);

  // Zeroed memory for the storage, with the session's quota adjusted; with
  // `prefix`, a copy of its first bytes. Nothing changed on error.
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateFor(
      Storage* storage, uint64_t bytes, const Buffer* prefix = nullptr);

  // Answers when the message being carried out is done.
  void Reply(v1::ControlResponse message) {
    replies_.push_back(std::move(message));
  }
  // Sends new root errors and replies; `sequence` is carried out.
  void Complete(uint64_t sequence);
  void FreeState();
  void Fail(absl::Status status);

  const SessionEnvironment& environment_;
  const std::string tenant_;
  const v1::SessionLimits limits_;
  const Callbacks callbacks_;

  mutable Mutex mu_;
  std::deque<Inbound> inbound_ ABSL_GUARDED_BY(mu_);
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t outstanding_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<Transfer> transfer_ ABSL_GUARDED_BY(mu_);
  // Transfers given up whose last chunks may still come.
  absl::flat_hash_set<uint64_t> given_up_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;

  // Touched by the executor only.
  SessionQuota quota_;  // Before the storages that return their shares.
  StorageTable storages_;
  absl::flat_hash_map<uint64_t, Structure> structures_;
  UsedIds transfer_ids_;
  RootErrors errors_;
  std::vector<v1::ControlResponse> replies_;
  uint64_t reported_ = 0;
  uint64_t message_bytes_ = 0;

  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> storage_count_{0};
  std::atomic<uint32_t> queued_runs_{0};

  Outbox outbox_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SESSION_SESSION_H_
