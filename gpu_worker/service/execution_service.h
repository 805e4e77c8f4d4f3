// Serves djinn.v1.Execution over gRPC: makes a WorkerStream of a client's
// Control call and the Bulk calls of the same lease, and hands it to the core.
//
// A Bulk call may arrive before or after the Hello of its Control call was
// accepted. It waits a few seconds, if it presents a lease of this worker, and
// at most as many per lease as a link takes. Its lease token is compared in
// constant time. pull_reactor.h serves the Pull calls of other workers.
// Thread-safe; must outlive the gRPC server.
#ifndef GPU_WORKER_SERVICE_EXECUTION_SERVICE_H_
#define GPU_WORKER_SERVICE_EXECUTION_SERVICE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/net/call_metrics.h"
#include "common/net/unproven_connections.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "gpu_worker/core/worker_core.h"
#include "gpu_worker/pull/send_order.h"
#include "gpu_worker/service/bulk_reactor.h"
#include "gpu_worker/service/stream_link.h"

namespace djinn::worker {

class ExecutionService
    : public v1::Execution::WithRawCallbackMethod_Control<
          v1::Execution::WithRawCallbackMethod_Bulk<
              v1::Execution::WithCallbackMethod_Pull<v1::Execution::Service>>> {
 public:
  static constexpr char kHealthName[] = "djinn.v1.Execution";

  // `core` and `clock` must outlive the service. `pull_socket` is where workers
  // on this machine fetch values, too; empty when there is none. `calls` counts
  // the calls, and outlives the service; null: they are not counted.
  // `unproven` hears of peers that named a lease or an offer, and outlives the
  // service; null: nobody hears of them.
  explicit ExecutionService(WorkerCore* core, std::string pull_socket = "",
                            Clock* clock = Clock::Real(),
                            CallMetrics* calls = nullptr,
                            UnprovenConnections* unproven = nullptr)
      : core_(core),
        pull_socket_(std::move(pull_socket)),
        calls_(calls),
        unproven_(unproven),
        send_order_(clock) {}

  StreamLink::ControlReactor* Control(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Bulk(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::PullResponse>* Pull(
      grpc::CallbackServerContext* context,
      const v1::PullRequest* request) override;

 private:
  struct Waiting {
    BulkReactor* bulk;
    v1::BulkHello hello;
    std::string lease_id;
  };

  void OnAccepted(const std::shared_ptr<StreamLink>& link);
  // Attaches a call whose hello named a lease of this worker, or lets it wait.
  void OnBulkHello(BulkReactor* bulk, const v1::BulkHello& hello,
                   std::string lease_id);

  WorkerCore* const core_;
  const std::string pull_socket_;
  CallMetrics* const calls_;
  UnprovenConnections* const unproven_;
  SendOrder send_order_;
  Mutex mu_;
  // Accepted links. Links that ended are dropped when the next one is accepted.
  std::vector<std::weak_ptr<StreamLink>> links_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_EXECUTION_SERVICE_H_
