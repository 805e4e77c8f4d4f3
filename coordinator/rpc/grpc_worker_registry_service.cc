#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/net/bearer.h"
#include "common/net/call_metrics.h"
#include "coordinator/cluster/workers.h"
#include "coordinator/rpc/services.h"
#include "coordinator/rpc/stream_reactor.h"
#include "djinn/v1/worker_registry.grpc.pb.h"

namespace djinn::coordinator {
namespace {

using Request = v1::WorkerState;
using Response = v1::DesiredState;

class SynchronizeReactor
    : public StreamReactor<Request, Response>,
      public std::enable_shared_from_this<SynchronizeReactor> {
 public:
  SynchronizeReactor(grpc::CallbackServerContext* context, CountedStream call,
                     ClusterState* cluster)
      : StreamReactor(context, std::move(call)), cluster_(cluster) {}

 private:
  absl::StatusOr<Then> OnRequest(Request* request) override {
    if (joined_) {
      DJINN_RETURN_IF_ERROR(workers::Report(*cluster_, *id_, *request));
      return Then::kReadOn;
    }
    worker_id_ = request->worker_id();
    DJINN_ASSIGN_OR_RETURN(
        StreamId id, workers::Join(*cluster_, *request, shared_from_this()));
    {
      MutexLock lock(&mu_);
      id_ = std::move(id);
    }
    joined_ = true;
    Pump();
    return Then::kReadOn;
  }

  absl::StatusOr<std::optional<Response>> Next() override {
    if (!id_.has_value()) return std::nullopt;
    return workers::NextDesiredState(*cluster_, *id_);
  }

  void OnClosed() override {
    if (joined_) workers::Leave(*cluster_, *id_);
  }

  std::string PeerName() const override {
    return worker_id_.empty() ? "a worker"
                              : absl::StrCat("worker ", worker_id_);
  }

  ClusterState* const cluster_;
  // Set once, under mu_, by the thread that reads.
  std::optional<StreamId> id_;
  bool joined_ = false;
  // Set by the first message.
  std::string worker_id_;
};

class Service : public v1::WorkerRegistry::WithRawCallbackMethod_Synchronize<
                    v1::WorkerRegistry::Service> {
 public:
  Service(const Credentials* credentials, ClusterState* cluster,
          CallMetrics* calls, UnprovenConnections* unproven)
      : credentials_(*credentials),
        cluster_(cluster),
        calls_(calls),
        unproven_(unproven) {}

  RawStream* Synchronize(grpc::CallbackServerContext* context) override {
    CountedStream call(calls_, "djinn.v1.WorkerRegistry/Synchronize");
    const absl::StatusOr<std::string> token = ExtractBearer(*context);
    if (!token.ok() || !credentials_.IsJoinToken(*token)) {
      log::Warning("worker refused: unknown token",
                   {{"peer", context->peer()}});
      return new RefusedStream(
          token.ok() ? MakeError(absl::StatusCode::kUnauthenticated,
                                 "TOKEN_UNKNOWN", "not the join token")
                     : token.status(),
          std::move(call));
    }
    NoteProven(*context, unproven_);
    return StreamReactor<Request, Response>::Begin(
        std::make_shared<SynchronizeReactor>(context, std::move(call),
                                             cluster_));
  }

 private:
  const Credentials& credentials_;
  ClusterState* const cluster_;
  CallMetrics* const calls_;
  UnprovenConnections* const unproven_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerRegistryService(
    const Credentials* credentials, ClusterState* cluster, CallMetrics* calls,
    UnprovenConnections* unproven) {
  return std::make_unique<Service>(credentials, cluster, calls, unproven);
}

}  // namespace djinn::coordinator
