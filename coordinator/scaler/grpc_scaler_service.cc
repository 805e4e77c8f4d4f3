#include "coordinator/scaler/grpc_scaler_service.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/net/grpc_status.h"
#include "grpcpp/alarm.h"

namespace djinn::coordinator {
namespace {

using externalscaler::IsActiveResponse;

template <typename Answer>
grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                 absl::StatusOr<Answer> answer, Answer* out) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (answer.ok()) *out = *std::move(answer);
  reactor->Finish(ToGrpcStatus(answer.status()));
  return reactor;
}

// Checks for changes, writes them, and sleeps, in turn. At any time it waits
// for only one operation. Deletes itself in the end.
class ActivityStream : public grpc::ServerWriteReactor<IsActiveResponse> {
 public:
  // `streams` counts this stream until it is deleted.
  ActivityStream(const Scaler* scaler, externalscaler::ScaledObjectRef object,
                 absl::Duration look_interval, std::atomic<int>* streams)
      : scaler_(scaler),
        object_(std::move(object)),
        look_interval_(absl::ToChronoMilliseconds(look_interval)),
        streams_(streams) {
    Look();
  }

 private:
  void Look() {
    const absl::StatusOr<bool> active = scaler_->IsActive(object_);
    if (absl::IsInvalidArgument(active.status())) {
      Finish(ToGrpcStatus(active.status()));
    } else if (active.ok() && said_ != *active) {
      said_ = *active;
      response_.set_result(*active);
      StartWrite(&response_);
    } else {
      Sleep();
    }
  }

  void Sleep() {
    bool cancelled;
    {
      MutexLock lock(&mu_);
      cancelled = cancelled_;
      if (!cancelled) {
        alarm_.Set(std::chrono::system_clock::now() + look_interval_,
                   [this](bool /*expired*/) { OnAlarm(); });
      }
    }
    if (cancelled) Finish(grpc::Status::CANCELLED);
  }

  void OnAlarm() {
    bool cancelled;
    {
      MutexLock lock(&mu_);
      cancelled = cancelled_;
    }
    if (cancelled) {
      Finish(grpc::Status::CANCELLED);
    } else {
      Look();
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      Sleep();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    MutexLock lock(&mu_);
    cancelled_ = true;
    // Has no effect when none is set.
    alarm_.Cancel();
  }

  void OnDone() override {
    --*streams_;
    delete this;
  }

  const Scaler* const scaler_;
  const externalscaler::ScaledObjectRef object_;
  const std::chrono::milliseconds look_interval_;
  std::atomic<int>* const streams_;
  std::optional<bool> said_;
  IsActiveResponse response_;
  Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mu_);
};

// Also deletes itself.
class RefusedStream : public grpc::ServerWriteReactor<IsActiveResponse> {
 public:
  explicit RefusedStream(const absl::Status& why) { Finish(ToGrpcStatus(why)); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerUnaryReactor* GrpcScalerService::IsActive(
    grpc::CallbackServerContext* context,
    const externalscaler::ScaledObjectRef* object, IsActiveResponse* out) {
  const absl::StatusOr<bool> active = scaler_.IsActive(*object);
  if (active.ok()) out->set_result(*active);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(active.status()));
  return reactor;
}

grpc::ServerWriteReactor<IsActiveResponse>* GrpcScalerService::StreamIsActive(
    grpc::CallbackServerContext* /*context*/,
    const externalscaler::ScaledObjectRef* object) {
  if (++streams_ > kMaxStreams) {
    --streams_;
    return new RefusedStream(
        MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
                  absl::StrCat("there are ", kMaxStreams, " streams already")));
  }
  return new ActivityStream(&scaler_, *object, look_interval_, &streams_);
}

grpc::ServerUnaryReactor* GrpcScalerService::GetMetricSpec(
    grpc::CallbackServerContext* context,
    const externalscaler::ScaledObjectRef* object,
    externalscaler::GetMetricSpecResponse* out) {
  return Finish(context, scaler_.Spec(*object), out);
}

grpc::ServerUnaryReactor* GrpcScalerService::GetMetrics(
    grpc::CallbackServerContext* context,
    const externalscaler::GetMetricsRequest* request,
    externalscaler::GetMetricsResponse* out) {
  return Finish(context, scaler_.Metrics(*request), out);
}

}  // namespace djinn::coordinator
