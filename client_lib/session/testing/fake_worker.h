// Implements a worker for tests. It checks every message as strictly as the
// real one (windows, sequences, graphs, versions, bindings, lifetimes, repeated
// messages) and reports faults in violations(). Runs have no operators; they
// only change versions and poison.
//
// Every run takes a millisecond, 100 bytes up and 10 down.
//
// It serves tests of order and numbering, lifetimes, transfers, failures and
// broken streams. Pause() holds work back, so that tests decide when the worker
// makes progress. CutAt() cuts streams at any message.
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
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client_lib/session/testing/fake_worker_state.h"
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
  // Makes the worker send no Hello.
  void BeSilent();

  // Determines the answers to later transfers.
  enum class Transfers { kSend, kHeld, kRefuse };
  void AnswerTransfers(Transfers answer);
  // Asks for a proof before each answer, and checks it if the bytes come.
  void AskForProofs();
  // Announces room for eager uploads with every response; at first there is
  // none.
  void GiveRoom(uint64_t bytes);
  // Makes the next run poison what it writes, under this error id.
  void FailNextRun(uint64_t error_id);
  // Makes the next fetch from another worker fail.
  void FailNextPull(uint64_t error_id);
  void AnswerMetadata(v1::RunMetadata metadata);
  // Sends this timing with each read while it is profiled, and this report when
  // it is asked for one.
  void AnswerProfiles(v1::ReplyTiming timing, v1::ProfileReport report);

  // Describes the worker in this way from the next Hello on.
  void SayFacts(v1::DeviceSpeed speed, std::string numerics);

  // Refuses models of more bytes.
  void LimitModels(uint64_t model_bytes);
  // Returns the registered models by id.
  std::map<uint64_t, v1::RegisterModel> models() const;

  // Sets the worker whose storages a session gets when it enters here.
  void EnterFrom(FakeWorker* other);
  // Refuses this many attempts to leave, because offers are pending.
  void RefuseToLet(int times);
  // Determines the answer to a session that enters.
  enum class Entries { kLet, kRefuse, kIgnore };
  void AnswerEntries(Entries answer);
  // Wait until a session has left, or entered.
  void WaitLeft();
  void WaitEntering();

  // Send Hello with a wrong id, and admit graphs with wrong fingerprints.
  void SayWrongId();
  void SayWrongFingerprints();
  // Hold chunks back, or delay each of them.
  void HoldBulk(bool hold);
  void DelayBulk(absl::Duration delay);
  // Sends the message as it is.
  void Say(v1::ControlResponse response);

  // Ends the stream.
  void Break(absl::Status status);
  // Cuts the stream at the n-th thing (message or chunk, from 1, over all
  // streams) that comes in or goes out, before it passes or after.
  enum class Cut { kBeforeIn, kAfterIn, kBeforeOut, kAfterOut };
  void CutAt(Cut where, int n);
  // Return how many things came in and went out so far.
  int incoming() const;
  int outgoing() const;
  // Makes this many new streams break at once.
  void BreakStreams(int count);
  // Loses all state, and gets another incarnation if so asked.
  void Restart(bool other_incarnation);
  // Drops the plans, so that the next run of each graph needs it again.
  void EvictPlans();
  // Makes the worker ignore cancels.
  void IgnoreCancel();
  // Return how often the client has resumed, and cancelled.
  int resumes() const;
  int cancels() const;

  // Return the ordered messages executed so far, or wait for their number.
  std::vector<v1::Ordered> received() const;
  void WaitReceived(size_t count);
  // Waits until `count` ordered messages wait to be executed.
  void WaitWaiting(size_t count);
  // Waits until a read waits to be executed.
  void WaitForRead();
  void WaitCancelled();
  std::vector<v1::Run> runs() const;
  // Returns the canonical fingerprints of the graphs, in the order of the runs.
  std::vector<std::string> run_fingerprints() const;
  std::vector<size_t> run_node_counts() const;
  std::string contents(uint64_t storage) const;
  std::set<uint64_t> live_storages() const;
  std::vector<std::string> violations() const;
  bool hello_seen() const;
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

  void OnMessage(Link* link, v1::ControlRequest message);
  void OnBulk(Link* link, uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces);
  void OnClosed(Link* link, absl::Status status);

  void Handle(v1::ControlRequest message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleHello(const v1::ClientHello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleSupply(const v1::DefineGraph& supply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Acknowledge(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLink(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts what passes. Returns false when it is lost.
  bool PassesIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PassedIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Out>
  void Pass(Out send) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Executes the message. Returns false when it waits for bulk bytes or a
  // graph.
  bool Carry(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryDefine(const v1::DefineGraph& define)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fills in what a repeat leaves out, and remembers the run.
  bool Expand(v1::Run* run, FakeWorkerGraph* defined)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CarryRun(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CarryMigrate(const v1::Ordered& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryModel(const v1::Ordered& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Prepares for another session, because this one has ended.
  void Reset() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CarryInstall(const v1::Ordered& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryRead(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::MeteredUse UseSoFar() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryProfile(const v1::Ordered& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the storage, created if base_version is 0, and notes a wrong
  // version.
  FakeStorage& Written(uint64_t id, uint64_t base_version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Violation(std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Numbers and keeps a reply. `value` follows on Bulk.
  void Respond(v1::ControlResponse response, uint64_t transfer_id = 0,
               std::shared_ptr<const std::string> value = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendReply(const FakeReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static v1::ErrorDetail Detail(uint64_t error_id);

  const v1::SessionLimits limits_;
  const std::string id_;
  mutable Mutex mu_;
  CondVar changed_;
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  bool wrong_id_ ABSL_GUARDED_BY(mu_) = false;
  bool wrong_fingerprints_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_bulk_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration bulk_delay_ ABSL_GUARDED_BY(mu_);
  bool hello_seen_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mu_);
  Transfers transfers_ ABSL_GUARDED_BY(mu_) = Transfers::kSend;
  bool profiling_ ABSL_GUARDED_BY(mu_) = false;
  v1::ReplyTiming timing_ ABSL_GUARDED_BY(mu_);
  v1::ProfileReport report_ ABSL_GUARDED_BY(mu_);
  uint64_t fail_next_run_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t fail_next_pull_ ABSL_GUARDED_BY(mu_) = 0;
  v1::RunMetadata metadata_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::Ordered> waiting_ ABSL_GUARDED_BY(mu_);
  // Messages that count towards the window, and their bytes: received,
  // executed.
  uint64_t counted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t counted_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = kIncarnation;
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
  int break_streams_ ABSL_GUARDED_BY(mu_) = 0;
  FakeWorker* other_ ABSL_GUARDED_BY(mu_) = nullptr;
  int refuse_to_let_ ABSL_GUARDED_BY(mu_) = 0;
  Entries entries_ ABSL_GUARDED_BY(mu_) = Entries::kLet;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  bool entering_ ABSL_GUARDED_BY(mu_) = false;
  std::string ticket_ ABSL_GUARDED_BY(mu_);
  uint64_t model_bytes_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;
  std::map<uint64_t, v1::RegisterModel> models_ ABSL_GUARDED_BY(mu_);
  v1::DeviceSpeed speed_ ABSL_GUARDED_BY(mu_);
  std::string numerics_ ABSL_GUARDED_BY(mu_);
  uint64_t session_runs_ ABSL_GUARDED_BY(mu_) = 0;
  bool ignore_cancel_ ABSL_GUARDED_BY(mu_) = false;
  int cancels_ ABSL_GUARDED_BY(mu_) = 0;
  int resumes_ ABSL_GUARDED_BY(mu_) = 0;
  Cut cut_ ABSL_GUARDED_BY(mu_) = Cut::kBeforeIn;
  int cut_at_ ABSL_GUARDED_BY(mu_) = 0;
  int incoming_ ABSL_GUARDED_BY(mu_) = 0;
  int outgoing_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<FakeReply> replies_ ABSL_GUARDED_BY(mu_);
  uint64_t last_reply_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_graph_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> evicted_ ABSL_GUARDED_BY(mu_);
  uint64_t needed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  // The transfer at the head of waiting_, once it is decided.
  uint64_t receiving_ ABSL_GUARDED_BY(mu_) = 0;
  std::string received_bulk_ ABSL_GUARDED_BY(mu_);
  uint64_t content_room_ ABSL_GUARDED_BY(mu_) = 0;
  bool ask_for_proofs_ ABSL_GUARDED_BY(mu_) = false;
  // The transfer that a proof was asked for, and the proof once it arrived.
  uint64_t proving_ ABSL_GUARDED_BY(mu_) = 0;
  std::string proof_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> received_chunks_ ABSL_GUARDED_BY(mu_);  // offsets
  std::map<uint64_t, FakeStorage> storages_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> ever_born_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, FakeWorkerGraph> defined_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Ordered> received_ ABSL_GUARDED_BY(mu_);
  // Includes everything that repeats leave out.
  std::vector<v1::Run> carried_runs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> run_fingerprints_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> run_node_counts_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
  // All links, because none may be destroyed in its own callback.
  std::vector<std::unique_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);
  Link* link_ ABSL_GUARDED_BY(mu_) = nullptr;  // the last one
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_H_
