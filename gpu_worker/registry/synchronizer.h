// Keeps this worker and the coordinator informed about each other, for ever.
//
// Story: a thread connects, sends the whole state at once, then every heartbeat
// interval and soon after a change; another reads what the coordinator wants
// and carries it out before acknowledging its revision. When the stream ends,
// for whatever reason, it connects again with backoff and jitter. A coordinator
// that is away changes nothing here; leases age by themselves.
//
// Knows no gRPC: RegistryConnector is implemented in grpc_registry.h and by the
// test.
#ifndef GPU_WORKER_REGISTRY_SYNCHRONIZER_H_
#define GPU_WORKER_REGISTRY_SYNCHRONIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/random.h"
#include "djinn/v1/worker_registry.pb.h"

namespace djinn::worker {

// One open Synchronize stream. One thread writes while another reads; Cancel()
// comes from any.
class RegistryStream {
 public:
  virtual ~RegistryStream() = default;
  // False once the stream broke.
  virtual bool Write(const v1::WorkerState& state) = 0;
  virtual bool Read(v1::DesiredState* desired) = 0;
  // Makes both return false soon.
  virtual void Cancel() = 0;
  // Why the stream ended; after both returned false or were not called again.
  virtual absl::Status Finish() = 0;
};

class RegistryConnector {
 public:
  virtual ~RegistryConnector() = default;
  // Does not wait for the connection: a stream to nowhere fails at its reads.
  virtual std::unique_ptr<RegistryStream> Open() = 0;
};

struct SynchronizerOptions {
  absl::Duration heartbeat_interval = absl::Seconds(2);
  // A change waits this long for others that come with it.
  absl::Duration debounce = absl::Milliseconds(20);
  absl::Duration min_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(5);
};

class Synchronizer {
 public:
  using SnapshotFunction = std::function<v1::WorkerState()>;
  using ApplyFunction = std::function<void(const v1::DesiredState&)>;

  // Starts at once. `connector` and `random` outlive this; the functions are
  // called from its threads, without locks.
  Synchronizer(SynchronizerOptions options, RegistryConnector* connector,
               RandomSource* random, SnapshotFunction snapshot,
               ApplyFunction apply);
  // As Stop().
  ~Synchronizer();

  // The state changed. Any thread; never blocks.
  void NotifyChange();
  // Whether the coordinator has answered on the stream that is open.
  bool joined() const;
  // Ends the stream and the threads. Once.
  void Stop();

 private:
  void Run();
  // One stream's life. Returns whether the coordinator took part in it.
  bool Serve(RegistryStream* stream);
  void ReadAll(RegistryStream* stream);
  void Backoff(absl::Duration delay);

  const SynchronizerOptions options_;
  RegistryConnector* const connector_;
  RandomSource* const random_;
  const SnapshotFunction snapshot_;
  const ApplyFunction apply_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool dirty_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t applied_revision_ ABSL_GUARDED_BY(mu_) = 0;
  RegistryStream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_REGISTRY_SYNCHRONIZER_H_
