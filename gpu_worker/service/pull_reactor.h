// One Pull call of another worker: waits for the offer that it names, then
// sends the bytes, one chunk at a time, when it is its turn (SendOrder).
//
// A caller that takes nothing for the core's transfer_idle_timeout, or up to
// twice as long, is cut off, because the offered bytes are its session's memory
// until then.
#ifndef GPU_WORKER_SERVICE_PULL_REACTOR_H_
#define GPU_WORKER_SERVICE_PULL_REACTOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/call_metrics.h"
#include "common/net/unproven_connections.h"
#include "djinn/v1/pull.pb.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/pull/send_order.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace djinn::worker {

class PullReactor : public grpc::ServerWriteReactor<v1::PullResponse>,
                    public OfferClaimant,
                    public std::enable_shared_from_this<PullReactor> {
 public:
  // Creates a reactor, which keeps itself alive until gRPC is done with it.
  // `core` and `order` must outlive it. `socket` is the path at which workers
  // on this machine can also reach the core; empty if there is none. `call` is
  // counted until the reactor ends. `unproven` learns of a caller that is given
  // the value that it named.
  static PullReactor* Begin(grpc::CallbackServerContext* context,
                            CountedStream call, const v1::PullRequest& request,
                            WorkerCore* core, SendOrder* order,
                            const std::string& socket,
                            UnprovenConnections* unproven);

  // Implements OfferClaimant.
  void StillWaiting() override;
  void Give(std::shared_ptr<const OfferedBytes> bytes) override;
  void Refuse(absl::Status why) override;

  // Implements the gRPC reactor.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullReactor(grpc::CallbackServerContext* context, CountedStream call,
              WorkerCore* core, SendOrder* order, std::string session_id,
              UnprovenConnections* unproven);

  // Starts the next write or the end of the call, unless a write is under way.
  void Pump();
  // Returns whether a chunk may be sent now. If not, sets an alarm that tries
  // again soon.
  bool MaySend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fills in the next chunk. Returns an error when the device cannot be read.
  absl::Status FillChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets the alarm that checks whether the caller still takes something.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAlarm();
  // Does the alarm's check. Moves bytes that the reactor no longer holds to
  // `gone`. Returns whether Pump() has something to send.
  bool Look(std::shared_ptr<const OfferedBytes>* gone);

  CountedStream call_;
  WorkerCore* const core_;
  SendOrder* const order_;
  UnprovenConnections* const unproven_;
  const std::string session_id_;
  const bool encrypted_;
  Mutex mu_;
  // null after OnDone()
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool says_waiting_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const OfferedBytes> offered_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // The values at the last check.
  uint64_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  bool was_writing_ ABSL_GUARDED_BY(mu_) = false;
  // Its number in the order; 0 when it has no bytes to send.
  uint64_t sender_ ABSL_GUARDED_BY(mu_) = 0;
  // Tries again while other values precede this one.
  std::unique_ptr<grpc::Alarm> held_ ABSL_GUARDED_BY(mu_);
  // The alarm at which the reactor checks the caller. Each check makes a new
  // alarm, because gRPC still uses one that goes off.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);
  // gRPC owns it while writing_.
  v1::PullResponse response_;
  std::shared_ptr<PullReactor> self_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_PULL_REACTOR_H_
