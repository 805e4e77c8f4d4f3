// Serves a Bulk call: it waits for the hello, and then belongs to the link of
// the lease that the hello named. Keeps the Bulk calls of one link.
#ifndef GPU_WORKER_SERVICE_BULK_REACTOR_H_
#define GPU_WORKER_SERVICE_BULK_REACTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/call_metrics.h"
#include "common/net/tls/tls.h"
#include "djinn/v1/bulk.pb.h"
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
  // `call` counts its call.
  static BulkReactor* Begin(grpc::CallbackServerContext* context,
                            CountedStream call, HelloFunction hello,
                            GoneFunction gone);

  // Ends a call that no link attached. Only the first status counts.
  void Refuse(const absl::Status& status);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  friend class BulkCalls;
  friend class StreamLink;

  BulkReactor(grpc::CallbackServerContext* context, CountedStream call,
              HelloFunction hello, GoneFunction gone)
      : context_(context),
        call_(std::move(call)),
        encrypted_(IsEncrypted(*context)),
        hello_(std::move(hello)),
        gone_(std::move(gone)) {}

  // Ends the call, and counts that. Called once.
  void End(const grpc::Status& status);
  // Returns the link; null before the hello was answered.
  std::shared_ptr<StreamLink> link();
  // Gives the call to the link, which ends it from now on. Returns Cancelled
  // when the call has ended already.
  absl::Status Join(std::shared_ptr<StreamLink> link);

  grpc::CallbackServerContext* const context_;
  CountedStream call_;
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

// The Bulk calls of a link, and the chunks that wait for one of them.
//
// Not thread-safe: the link's lock guards it. gRPC calls nothing back while a
// function here runs.
class BulkCalls {
 public:
  size_t size() const { return calls_.size(); }
  // Returns whether there ever was a call.
  bool seen() const { return seen_; }

  // Adds a call, which the link joined, and starts its first read.
  void Add(BulkReactor* bulk);
  // Forgets a call after its last callback.
  void Remove(const BulkReactor* bulk);
  // Reads the next frame, unless the call is ending.
  void ReadOn(BulkReactor* bulk);

  // Queues a frame; an idle call takes it. Returns whether there is room for
  // more.
  bool Send(grpc::ByteBuffer frame);
  void NoteWritten(const BulkReactor* bulk);
  // Begins a write on each idle call, as long as frames wait.
  void WriteNext();
  // Returns whether there is room again, once after Send() returned false.
  bool HasRoomAgain();
  // Drops the frames that wait.
  void Clear() { queue_.clear(); }

  // Sends the status on the calls that are not writing, once no frame waits.
  void Finish(const grpc::Status& status);
  // Cancels the calls.
  void CutOff();

 private:
  // A call until Remove().
  struct Call {
    BulkReactor* bulk;
    // The frame being written.
    grpc::ByteBuffer frame;
    bool writing = false;
    bool finished = false;
  };
  Call& Of(const BulkReactor* bulk);

  std::vector<std::unique_ptr<Call>> calls_;
  std::deque<grpc::ByteBuffer> queue_;
  bool seen_ = false;
  // True since Send() returned false.
  bool full_ = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_SERVICE_BULK_REACTOR_H_
