// Serves KEDA's ExternalScaler over gRPC.
//
// KEDA sends no token. The service therefore has a port of its own, and reveals
// nothing but the amount of work.
#ifndef COORDINATOR_SCALER_GRPC_SCALER_SERVICE_H_
#define COORDINATOR_SCALER_GRPC_SCALER_SERVICE_H_

#include <atomic>
#include <utility>

#include "absl/time/time.h"
#include "coordinator/scaler/scaler.h"
#include "keda/externalscaler.grpc.pb.h"

namespace djinn::coordinator {

// Thread-safe.
class GrpcScalerService
    : public externalscaler::ExternalScaler::CallbackService {
 public:
  // `look_interval` is the interval at which a stream checks for changes.
  explicit GrpcScalerService(Scaler scaler,
                             absl::Duration look_interval = absl::Seconds(1))
      : scaler_(std::move(scaler)), look_interval_(look_interval) {}

  grpc::ServerUnaryReactor* IsActive(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* object,
      externalscaler::IsActiveResponse* out) override;
  // Sends nothing while the demand is unknown. Returns ResourceExhausted
  // (TOO_MANY_STREAMS) beyond kMaxStreams.
  grpc::ServerWriteReactor<externalscaler::IsActiveResponse>* StreamIsActive(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* object) override;
  grpc::ServerUnaryReactor* GetMetricSpec(
      grpc::CallbackServerContext* context,
      const externalscaler::ScaledObjectRef* object,
      externalscaler::GetMetricSpecResponse* out) override;
  grpc::ServerUnaryReactor* GetMetrics(
      grpc::CallbackServerContext* context,
      const externalscaler::GetMetricsRequest* request,
      externalscaler::GetMetricsResponse* out) override;

  // Most streams at a time. Each of them reads all leases under the cluster's
  // lock.
  static constexpr int kMaxStreams = 64;

 private:
  const Scaler scaler_;
  const absl::Duration look_interval_;
  std::atomic<int> streams_ = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SCALER_GRPC_SCALER_SERVICE_H_
