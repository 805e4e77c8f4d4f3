// Implements a worker for tests. It checks every message as strictly as the
// real worker (windows, sequences, graphs, versions, bindings, lifetimes,
// repeated messages) and reports faults in seen().violations. Runs have no
// operators; they only change versions and poison.
//
// Every run takes a millisecond, 100 bytes up and 10 down.
//
// It serves tests of order and numbering, lifetimes, transfers, failures and
// broken streams. Pause() holds messages back, so that a test decides when the
// worker makes progress. Set() changes the FakeScript, for example to cut the
// stream at a message.
//
// Thread-safe.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client_lib/session/testing/fake_executor.h"
#include "common/base/mutex.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class FakeWorker {
 public:
  static constexpr uint64_t kIncarnation = 77;

  static v1::SessionLimits DefaultLimits();

  explicit FakeWorker(v1::SessionLimits limits = DefaultLimits(),
                      std::string id = "w0");
  ~FakeWorker();

  // Number of unacknowledged replies at which the worker pauses.
  static constexpr size_t kMaxUnacknowledged = 256;

  // Serves the stream in place of the one before.
  void Serve(std::unique_ptr<WorkerStream> stream);

  // Makes messages, including reads, wait until Resume().
  void Pause();
  void Resume();
  // Orders something.
  template <typename T>
  void Set(T FakeScript::* field, std::type_identity_t<T> value) {
    MutexLock lock(&mu_);
    script_.*field = std::move(value);
    changed_.SignalAll();
  }
  // Cuts the stream at the n-th thing.
  void CutAt(FakeScript::Cut where, int n);
  // Sends the message as it is.
  void Say(v1::ControlResponse response);
  // Ends the stream.
  void Break(absl::Status status);
  // Loses all state, and gets another incarnation if so asked.
  void Restart(bool other_incarnation,
               absl::Status why = absl::UnavailableError("restarted"));
  // Drops the plans, so that the next run of each graph needs it again.
  void EvictPlans();
  // Gives the session's storages to the session that enters another worker with
  // this state. Returns false if no session left with this state.
  bool HandOver(const v1::Pull& state, FakeExecutor* to) const;

  FakeSeen seen() const;
  // Returns the registered models by id.
  std::map<uint64_t, v1::RegisterModel> models() const;
  std::string contents(uint64_t storage) const;
  std::set<uint64_t> live_storages() const;

  // Waits until `count` ordered messages were executed, or wait for it.
  void WaitReceived(size_t count);
  void WaitWaiting(size_t count);
  // Waits until a read waits to be executed.
  void WaitForRead();
  // Returns whether a read waits to be executed.
  bool HoldsRead();
  // Returns whether a run waits to be executed.
  bool HoldsRun();
  // Waits until a session enters.
  void WaitEntering();
  // Waits for the end of the stream.
  absl::Status WaitClosed();

 private:
  // A stream and its callbacks.
  struct Link : public WorkerStreamReceiver {
    void OnMessage(v1::ControlRequest message) override;
    void OnBulk(uint64_t transfer_id, uint64_t offset,
                absl::Span<const absl::string_view> pieces) override;
    void OnClosed(absl::Status status) override;

    FakeWorker* worker = nullptr;
    // The worker's lock guards these.
    bool greeted = false;
    bool over = false;
    uint64_t said_messages = 0;  // of the window
    std::unique_ptr<WorkerStream> stream;
  };
  // The messages and replies of a session.
  struct Flow {
    std::deque<v1::Ordered> waiting;
    uint64_t last_sequence = 0;
    uint64_t completed = 0;
    // The number and bytes of the messages that count towards the window, as
    // received and as executed.
    uint64_t counted = 0;
    uint64_t counted_bytes = 0;
    uint64_t done = 0;
    uint64_t done_bytes = 0;
    std::deque<FakeReply> replies;
    uint64_t last_reply = 0;
    uint64_t acknowledged = 0;
  };

  void Handle(v1::ControlRequest message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleHello(const v1::ClientHello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleOrdered(v1::Ordered* ordered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Acknowledge(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLink(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts what passes. Returns false when it is lost.
  bool PassesIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PassedIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Out>
  void Pass(Out send) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HoldsReadLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Prepares for another session, because this one has ended.
  void Reset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Violation(std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Numbers and keeps a reply. `value` follows on Bulk.
  void Respond(v1::ControlResponse response, uint64_t transfer_id = 0,
               std::shared_ptr<const std::string> value = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendReply(const FakeReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::SessionLimits limits_;
  const std::string id_;
  mutable Mutex mu_;
  CondVar changed_;
  FakeScript script_ ABSL_GUARDED_BY(mu_);
  FakeSeen seen_ ABSL_GUARDED_BY(mu_);
  FakeExecutor executor_ ABSL_GUARDED_BY(mu_);
  Flow flow_ ABSL_GUARDED_BY(mu_);
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = kIncarnation;
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  // All links, because none may be destroyed in its own callback.
  std::vector<std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);
  Link* link_ ABSL_GUARDED_BY(mu_) = nullptr;  // the last one
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_H_
