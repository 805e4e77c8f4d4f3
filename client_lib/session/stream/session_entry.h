// A session's first moments on another worker: a stream on which it says Hello
// under its new lease, and enters with what it holds on the worker that it has
// left.
//
// Life: Start() says Hello; once greeted, Enter(); once over, outcome() says
// what came of it. One attempt: a stream that breaks is the end of it. Whoever
// goes on there resumes on a stream of its own, after this is destroyed.
//
// Thread-safe. `changed` is called, without locks, whenever something of this
// has changed.
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
    // Sequence 1 of the session there, and the only one so far.
    std::shared_ptr<const v1::ControlRequest> enter;
    // Number 1 of the replies.
    v1::Entered reply;
  };

  SessionEntry(std::unique_ptr<ClientStream> stream,
               std::function<void()> changed)
      : changed_(std::move(changed)), stream_(std::move(stream)) {}
  // As if the network had broken: the worker keeps the session for a while.
  ~SessionEntry() override;

  void Start(v1::ClientHello hello);
  // Once greeted.
  void Enter(v1::Pull state);

  // The worker has answered the hello.
  std::optional<v1::WorkerHello> greeting() const;
  // Nothing follows.
  bool over() const;
  // When it is over. What a worker refused is a status with its reason.
  absl::StatusOr<Entered> outcome() const;

 private:
  void OnMessage(v1::ControlResponse response) override;
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;
  void OnClosed(absl::Status status) override;
  // The first end counts.
  void End(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void()> changed_;
  mutable Mutex mu_;
  bool greeted_ ABSL_GUARDED_BY(mu_) = false;
  Entered entered_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  // Destroyed first: it calls back until then.
  std::unique_ptr<ClientStream> stream_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_STREAM_SESSION_ENTRY_H_
