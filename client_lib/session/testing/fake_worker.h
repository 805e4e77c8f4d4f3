// A worker for tests: checks every message as strictly as the real one
// (windows, sequences, structures, versions, bindings, lifetimes) and says in
// violations() what was wrong. Runs have no operators; they move versions and
// poison.
//
// Useful for: order and numbering, lifetimes, transfers, failures. Work can be
// held back (Pause()), so that tests decide when the worker makes progress.
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
#include <vector>

#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/srg/structure.h"
#include "common/srg/validate.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class FakeWorker : private WorkerStreamReceiver {
 public:
  static constexpr uint64_t kIncarnation = 77;

  static v1::SessionLimits DefaultLimits();

  explicit FakeWorker(v1::SessionLimits limits = DefaultLimits(),
                      std::string id = "w0");
  ~FakeWorker() override;

  // Serves the stream; called once.
  void Serve(std::unique_ptr<WorkerStream> stream);

  // Messages wait until Resume(). Reads, too.
  void Pause();
  void Resume();
  // Says no Hello.
  void BeSilent();

  // What to answer to the transfers to come.
  enum class Transfers { kSend, kHeld, kRefuse };
  void AnswerTransfers(Transfers answer);
  // The next run poisons what it writes, under this error id.
  void FailNextRun(uint64_t error_id);
  void AnswerMetadata(v1::RunMetadata metadata);

  // Hello under another name; structures admitted under another name.
  void SayWrongId();
  void SayWrongFingerprints();
  // Chunks are not taken, or slowly, each of them.
  void HoldBulk(bool hold);
  void DelayBulk(absl::Duration delay);
  // Says the message as it is.
  void Say(v1::ControlResponse response);

  // Ends the stream.
  void Break(absl::Status status);

  // Ordered messages carried out so far, and waits for them.
  std::vector<v1::Ordered> received() const;
  void WaitReceived(size_t count);
  std::vector<v1::Run> runs() const;
  // Structures by their canonical fingerprint, in the order of the runs.
  std::vector<std::string> run_fingerprints() const;
  std::vector<size_t> run_node_counts() const;
  std::string contents(uint64_t storage) const;
  std::set<uint64_t> live_storages() const;
  std::vector<std::string> violations() const;
  bool hello_seen() const;
  // Waits for the stream's end.
  absl::Status WaitClosed();

 private:
  struct Storage {
    uint64_t version = 0;
    std::string bytes;
    uint64_t poison = 0;
  };
  struct Defined {
    srg::Structure structure;
    srg::StructureFacts facts;
    std::string fingerprint;
  };

  void OnMessage(v1::ControlRequest message) override;
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;
  void OnClosed(absl::Status status) override;

  void Work() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False when the message waits for bulk bytes.
  bool Carry(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryRun(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CarryInstall(const v1::Ordered& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryRead(const v1::Ordered& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The storage, born if base_version is 0; notes a wrong version.
  Storage& Written(uint64_t id, uint64_t base_version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Violation(std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Respond(v1::ControlResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  uint64_t fail_next_run_ ABSL_GUARDED_BY(mu_) = 0;
  v1::RunMetadata metadata_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::Ordered> waiting_ ABSL_GUARDED_BY(mu_);
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  // The transfer at the head of waiting_, once decided.
  uint64_t receiving_ ABSL_GUARDED_BY(mu_) = 0;
  std::string received_bulk_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Storage> storages_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> ever_born_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Defined> defined_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Ordered> received_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> run_fingerprints_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> run_node_counts_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<WorkerStream> stream_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_WORKER_H_
