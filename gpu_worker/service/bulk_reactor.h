// One Bulk call: waits for its hello, then belongs to the link of the lease
// that the hello named.
#ifndef GPU_WORKER_SERVICE_BULK_REACTOR_H_
#define GPU_WORKER_SERVICE_BULK_REACTOR_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/tls.h"
#include "djinn/v1/execution.pb.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace djinn::worker {

class StreamLink;

class BulkReactor
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<BulkReactor> {
 public:
  // Finds the link of a hello and calls AttachBulk() on it, now or later; ends
  // the call with Refuse() otherwise.
  using HelloFunction =
      std::function<void(BulkReactor*, const v1::BulkHello& hello)>;
  // The reactor's last callback.
  using GoneFunction = std::function<void(BulkReactor*)>;

  // Makes a reactor, which keeps itself alive until gRPC is done with it.
  static BulkReactor* Begin(grpc::CallbackServerContext* context,
                            HelloFunction hello, GoneFunction gone);

  // Ends a call that no link attached. Only the first status counts.
  void Refuse(const absl::Status& status);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  friend class StreamLink;

  BulkReactor(grpc::CallbackServerContext* context, HelloFunction hello,
              GoneFunction gone)
      : context_(context),
        encrypted_(IsEncrypted(*context)),
        hello_(std::move(hello)),
        gone_(std::move(gone)) {}

  // Returns the link; null before the hello was answered.
  std::shared_ptr<StreamLink> link();
  // Gives the call to the link, which ends it from now on. Returns Cancelled
  // when the call has ended already.
  absl::Status Join(std::shared_ptr<StreamLink> link);

  grpc::CallbackServerContext* const context_;
  const bool encrypted_;
  const HelloFunction hello_;
  const GoneFunction gone_;
  grpc::ByteBuffer frame_;
  Mutex mu_;
  std::shared_ptr<StreamLink> link_ ABSL_GUARDED_BY(mu_);
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Alarm hello_alarm_;
  std::shared_ptr<BulkReactor> self_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_BULK_REACTOR_H_
