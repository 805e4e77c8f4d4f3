// Keeps this worker and the coordinator informed of each other until Stop().
//
// One thread connects and sends a complete report at once, then what has
// changed, every heartbeat interval and soon after a change. Another thread
// reads what the coordinator wants, applies it, and has its revision
// acknowledged at once, without a report. When the stream ends, the first
// thread connects again with backoff and jitter. A message of a coordinator
// that leads no longer ends the stream, too. A coordinator that is away
// changes nothing here; leases age by themselves.
//
// This file knows no gRPC: grpc_registry.h and the test implement
// RegistryConnector.
#ifndef GPU_WORKER_REGISTRY_SYNCHRONIZER_H_
#define GPU_WORKER_REGISTRY_SYNCHRONIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/lease/leader_term.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {

// One open Synchronize stream. One thread writes while another reads; any
// thread may call Cancel().
class RegistryStream {
 public:
  virtual ~RegistryStream() = default;
  // Both return false once the stream broke.
  virtual bool Write(const v1::WorkerState& state) = 0;
  virtual bool Read(v1::DesiredState* desired) = 0;
  // Makes both return false soon.
  virtual void Cancel() = 0;
  // Returns why the stream ended; OK if nothing was lost, because the peer
  // itself begins another one. Call it once Read() and Write() have both
  // returned false or are not called again.
  virtual absl::Status Finish() = 0;
  // Returns whether the next stream may be opened without a pause, because it
  // goes to another address, or the peer waits for it. Call it after Finish().
  virtual bool NextAtOnce() const { return false; }
};

class RegistryConnector {
 public:
  virtual ~RegistryConnector() = default;
  // Opens a stream. Does not wait for the connection: a stream to an
  // unreachable coordinator fails at its reads.
  virtual std::unique_ptr<RegistryStream> Open() = 0;
};

struct SynchronizerOptions {
  absl::Duration heartbeat_interval = absl::Seconds(2);
  absl::Duration min_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
  // Adds to an acknowledgement what the coordinator must know together with it;
  // may be null. Called like the functions of the constructor.
  std::function<void(v1::WorkerState*)> describe_acknowledgement;
};

class Synchronizer {
 public:
  using SnapshotFunction = std::function<v1::WorkerState()>;
  using ApplyFunction = std::function<void(const v1::DesiredState&)>;

  // Starts at once. `connector` and `random` must outlive this. Its threads
  // call the functions, without locks; `snapshot` returns the complete report.
  Synchronizer(SynchronizerOptions options, RegistryConnector* connector,
               RandomSource* random, SnapshotFunction snapshot,
               ApplyFunction apply);
  // Calls Stop().
  ~Synchronizer();

  // Has a report sent soon. Any thread may call it; it does not wait.
  void NotifyChange();
  // Returns whether the coordinator has answered on the open stream.
  bool joined() const;
  // Returns the highest term of an elected coordinator; 0 for none.
  uint64_t known_term() const { return term_.known(); }
  // Ends the stream and the threads. Call it once.
  void Stop();

 private:
  void Run();
  // Serves one stream until it ends. Returns whether the coordinator answered
  // on it.
  bool Serve(RegistryStream* stream);
  void ReadAll(RegistryStream* stream);
  // Waits until there is something to send. `due` is when the next report is
  // due without a change, and `earliest` when it may follow the last one.
  enum class Next { kEnd, kAcknowledge, kReport };
  Next WaitForNext(absl::Time due, absl::Time earliest, uint64_t acknowledged);
  void Backoff(absl::Duration delay);

  const SynchronizerOptions options_;
  RegistryConnector* const connector_;
  RandomSource* const random_;
  const SnapshotFunction snapshot_;
  const ApplyFunction apply_;
  LeaderTerm term_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // When the first change occurred that no report includes; infinite when there
  // is none.
  absl::Time changed_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  // No further message can be read from the stream.
  bool ended_by_coordinator_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t applied_revision_ ABSL_GUARDED_BY(mu_) = 0;
  RegistryStream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_SYNCHRONIZER_H_
