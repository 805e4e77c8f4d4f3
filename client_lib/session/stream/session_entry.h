// Moves a session to another worker: opens a stream, sends Hello under the new
// lease, and makes the new worker take over everything that the session holds
// on its old worker.
//
// Life: Start() sends Hello. Once greeting() has a value, the owner calls
// Enter(). Once over() is true, outcome() has the result. An object makes one
// attempt, which ends if the stream breaks. To continue after a success, the
// owner destroys this object and resumes on a new stream.
//
// Thread-safe. The object calls `changed`, without locks, whenever its state
// changes.
#ifndef CLIENT_LIB_SESSION_STREAM_SESSION_ENTRY_H_
#define CLIENT_LIB_SESSION_STREAM_SESSION_ENTRY_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class SessionEntry : private ClientStreamReceiver {
 public:
  struct Entered {
    v1::WorkerHello hello;
    v1::Window window;
    // The message with sequence 1, the only one of the session there so far.
    std::shared_ptr<const v1::ControlRequest> enter;
    // Number 1 of the replies.
    v1::Entered reply;
  };

  SessionEntry(std::unique_ptr<ClientStream> stream,
               std::function<void()> changed)
      : changed_(std::move(changed)), stream_(std::move(stream)) {}
  // Drops the stream as a broken network would. The worker therefore keeps the
  // session for a while.
  ~SessionEntry() override;

  void Start(v1::ClientHello hello);
  // Sends the state. Allowed once the worker has answered the hello.
  void Enter(v1::Pull state);

  // Returns the worker's answer to the hello, once it arrived.
  std::optional<v1::WorkerHello> greeting() const;
  // Returns whether the attempt has ended.
  bool over() const;
  // Returns the result. May be called once over() is true. A refusal by the
  // worker is a status with the worker's reason.
  absl::StatusOr<Entered> outcome() const;

 private:
  void OnMessage(v1::ControlResponse response) override;
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;
  void OnClosed(absl::Status status) override;
  // Ends the attempt; the first end counts.
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void()> changed_;
  mutable Mutex mu_;
  bool greeted_ ABSL_GUARDED_BY(mu_) = false;
  Entered entered_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  // Destroyed first, because it calls back until then.
  std::unique_ptr<ClientStream> stream_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_SESSION_ENTRY_H_
