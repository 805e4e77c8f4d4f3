// An executor's end of the socket that it shares with its supervisor.
//
// To the executor, the supervisor is the coordinator: a Synchronizer reports
// over this link and applies the orders that arrive, as it would over gRPC.
#ifndef GPU_WORKER_SUPERVISOR_SUPERVISION_LINK_H_
#define GPU_WORKER_SUPERVISOR_SUPERVISION_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/shared_memory/shared_region.h"
#include "djinn/v1/supervision.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/registry/synchronizer.h"
#include "gpu_worker/supervisor/frames.h"

namespace djinn::worker {

// Thread-safe.
class SupervisionLink : public RegistryConnector {
 public:
  // Takes over a blocking socket.
  explicit SupervisionLink(Descriptor socket);

  // Waits for the first message. Returns Unavailable when the supervisor is
  // gone. Call it before Open().
  absl::StatusOr<v1::ExecutorSetup> ReadSetup();
  // Sets what takes new certificates, in the thread that reads a stream. Call
  // it before Open().
  void SetTlsListener(std::function<void(const v1::TlsTexts&)> take) {
    take_tls_ = std::move(take);
  }
  // Sends a message that is no report. Does nothing once the link has ended.
  void Send(const v1::FromExecutor& message);

  // Opens the next stream. The supervisor begins a stream with revision 1.
  std::unique_ptr<RegistryStream> Open() override;

  // Waits until orders of the supervisor were applied here. Returns false when
  // the supervisor ends before that.
  bool AwaitOrders();
  // Waits until the supervisor is gone, for `patience` at most, or until it
  // says otherwise than `serving` whether the worker is ready, which replaces
  // `serving`. Returns whether it is gone. May return early.
  bool AwaitEnd(absl::Duration patience, bool* serving);

 private:
  class Stream;

  // Returns the next desired state for the stream, or nothing when the stream
  // has ended.
  std::optional<v1::DesiredState> Next(Stream* stream);
  // Waits for bytes, or for a cancelled stream. Returns false at the end.
  bool Await(Stream* stream);
  bool Write(const v1::FromExecutor& message);
  void End();

  const Descriptor socket_;
  std::function<void(const v1::TlsTexts&)> take_tls_;
  // Belong to the thread that reads, one at a time.
  FrameReader reader_;
  std::optional<v1::DesiredState> next_;

  Mutex writing_;
  mutable Mutex mu_;
  CondVar changed_;
  bool applied_ ABSL_GUARDED_BY(mu_) = false;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SUPERVISOR_SUPERVISION_LINK_H_
