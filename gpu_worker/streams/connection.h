// One client's stream, before and after its Hello.
#ifndef GPU_WORKER_STREAMS_CONNECTION_H_
#define GPU_WORKER_STREAMS_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/state/outbox.h"
#include "gpu_worker/streams/stream_table.h"

namespace djinn::worker {

class StreamTable::Connection : public WorkerStreamReceiver {
 public:
  // The session that the connection serves once its Hello was accepted. It
  // stays set until the connection is destroyed, because it may be using the
  // stream.
  struct Service {
    std::shared_ptr<Session> session;
    // The stream's number, as in Session::Attach().
    uint64_t stream_number = 0;
    // True when another connection resumed the session: later messages are
    // ignored.
    bool replaced = false;
  };

  Connection(StreamTable* table, uint64_t key,
             std::unique_ptr<WorkerStream> stream, StreamWay way,
             absl::Duration since)
      : table_(table),
        key_(key),
        way_(way),
        since_(since),
        stream_(std::move(stream)) {}

  void OnMessage(v1::ControlRequest message) override;

  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    const Service service = this->service();
    if (service.session == nullptr) {
      table_->RequestClose(
          key_, MakeError(absl::StatusCode::kInvalidArgument,
                          "PROTOCOL_VIOLATION", "bytes before the hello"));
    } else if (!service.replaced) {
      service.session->ReceiveBulk(transfer_id, offset, pieces);
    }
  }

  void OnRoom() override {
    const Service service = this->service();
    if (service.session != nullptr) service.session->outbox().OnRoom();
  }
  void OnBulkRoom() override {
    const Service service = this->service();
    if (service.session != nullptr) service.session->outbox().OnBulkRoom();
  }

  void OnClosed(absl::Status status) override {
    table_->OnClosed(key_, status);
  }

  Service service() const {
    MutexLock lock(&mu_);
    return service_;
  }
  void Serve(std::shared_ptr<Session> session, uint64_t stream_number) {
    MutexLock lock(&mu_);
    service_ = {std::move(session), stream_number, false};
  }
  void Replace() {
    MutexLock lock(&mu_);
    service_.replaced = true;
  }
  // Takes the stream away from the session, which does not use it any more when
  // this returns.
  void Detach() {
    const Service service = this->service();
    if (service.session == nullptr) return;
    service.session->Detach(stream_.get(), service.stream_number);
  }

  WorkerStream* stream() const { return stream_.get(); }
  StreamWay way() const { return way_; }
  absl::Duration since() const { return since_; }

  // Guarded by the table's mutex.
  std::string lease_id;
  std::string session_id;
  bool hello_seen = false;
  bool close_requested = false;
  // True while StreamTable::Attach() still uses the connection.
  bool starting = true;

 private:
  StreamTable* const table_;
  const uint64_t key_;
  const StreamWay way_;
  const absl::Duration since_;
  mutable Mutex mu_;
  Service service_ ABSL_GUARDED_BY(mu_);
  // Declared last, so that its callbacks end before the other fields go.
  const std::unique_ptr<WorkerStream> stream_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_STREAMS_CONNECTION_H_
