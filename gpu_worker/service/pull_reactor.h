// One Pull call of another worker: waits for the offer that it names, then
// sends the bytes, one chunk at a time, when it is its turn (SendOrder).
//
// A caller that takes nothing for the core's transfer_idle_timeout, or up to
// twice as long, is cut off: what was offered is its session's memory until
// then.
#ifndef GPU_WORKER_SERVICE_PULL_REACTOR_H_
#define GPU_WORKER_SERVICE_PULL_REACTOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "djinn/v1/execution.pb.h"
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
  // The reactor keeps itself alive until gRPC is done with it. `core` and
  // `order` outlive it. `socket`: where workers on this machine find the core,
  // too; may be empty.
  static PullReactor* Begin(grpc::CallbackServerContext* context,
                            const v1::PullRequest& request, WorkerCore* core,
                            SendOrder* order, const std::string& socket);

  // OfferClaimant.
  void StillWaiting() override;
  void Give(std::shared_ptr<const OfferedBytes> bytes) override;
  void Refuse(absl::Status why) override;

  // gRPC.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PullReactor(grpc::CallbackServerContext* context, WorkerCore* core,
              SendOrder* order, std::string session_id);

  // Does what is due, if nothing is being written.
  void Pump();
  // Whether a chunk may be sent now. If not, looks again soon.
  bool MaySend() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fills in the next chunk. Not OK when the device cannot be read.
  absl::Status FillChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Looks, now and then, whether the caller still takes something.
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAlarm();
  // What the alarm is for; `gone`: what is not held any more. Whether there is
  // something to say.
  bool Look(std::shared_ptr<const OfferedBytes>* gone);

  WorkerCore* const core_;
  SendOrder* const order_;
  const std::string session_id_;
  const bool encrypted_;
  Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null: done
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool says_waiting_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const OfferedBytes> offered_ ABSL_GUARDED_BY(mu_);
  uint64_t sent_ ABSL_GUARDED_BY(mu_) = 0;
  // As of the last look.
  uint64_t seen_ ABSL_GUARDED_BY(mu_) = 0;
  bool was_writing_ ABSL_GUARDED_BY(mu_) = false;
  // In the order; 0: no bytes are to be sent.
  uint64_t sender_ ABSL_GUARDED_BY(mu_) = 0;
  // While another one goes first.
  std::unique_ptr<grpc::Alarm> held_ ABSL_GUARDED_BY(mu_);
  // Another one each time: one that goes off is still in use.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);
  // Belongs to gRPC while writing_.
  v1::PullResponse response_;
  std::shared_ptr<PullReactor> self_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_PULL_REACTOR_H_
