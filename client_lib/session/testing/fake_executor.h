// Executes the ordered messages of a session on a fake worker. Runs have no
// operators: they change versions and poison. It checks graphs, versions,
// bindings, lifetimes and transfers as strictly as the real worker. FakeScript
// holds the test's orders, and FakeSeen holds what the worker saw.
//
// Not thread-safe: the worker's lock guards the whole object.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_EXECUTOR_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/srg/graph.h"
#include "common/srg/validate.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

class FakeWorker;

// The behaviour that a test orders. FakeWorker::Set() changes a field.
struct FakeScript {
  // Determines the answers to transfers.
  enum class Transfers { kSend, kHeld, kRefuse };
  // Determines the answer to a session that enters.
  enum class Entries { kLet, kRefuse, kIgnore };
  // Says where a stream is cut: before a message or chunk passes, or after.
  enum class Cut { kBeforeIn, kAfterIn, kBeforeOut, kAfterOut };

  bool silent = false;  // sends no Hello
  bool wrong_id = false;
  // Every Hello without resume starts a new session, like at another worker.
  // Otherwise such a Hello is a violation once there is a session.
  bool begins_anew = false;
  bool wrong_fingerprints = false;
  bool ignore_cancel = false;
  bool hold_bulk = false;
  bool hold_runs = false;     // executes no run, until Resume()
  std::string held_operator;  // executes no run of it, until Resume()
  absl::Duration bulk_delay;  // of each chunk
  Transfers transfers = Transfers::kSend;
  // Asks for a proof before each answer, and checks it if the bytes come.
  bool ask_for_proofs = false;
  // Room for eager uploads, announced with every response.
  uint64_t content_room = 0;
  // The next run, or the next fetch from another worker, poisons what it writes
  // with this error id.
  uint64_t fail_next_run = 0;
  uint64_t fail_next_pull = 0;
  bool fails_every_pull = false;
  std::string pull_failure;  // the reason of a pull's error
  std::string run_failure;   // the reason of a run's error
  v1::RunMetadata metadata;
  // Sent with each read while it is profiled, and when a report is asked for.
  v1::ReplyTiming timing;
  v1::ProfileReport report;
  // Sent with Hello.
  v1::DeviceSpeed speed;
  std::string numerics;
  bool executor_per_tenant = false;
  // The session's memory in Hello. 0: that of the limits.
  uint64_t memory_bytes = 0;
  // Limit on a registered model.
  uint64_t model_bytes = UINT64_MAX;
  // The worker whose storages a session gets when it enters here.
  FakeWorker* other = nullptr;
  // Number of attempts to leave that are refused, because offers are pending.
  int refuse_to_let = 0;
  Entries entries = Entries::kLet;
  // Number of new streams that break at once.
  int break_streams = 0;
  // Cuts the stream at one incoming or outgoing item: the message or chunk with
  // this number, counted from 1 over all streams.
  Cut cut = Cut::kBeforeIn;
  int cut_at = 0;
};

// The messages and calls that the worker has received so far.
struct FakeSeen {
  std::vector<v1::Ordered> received;  // executed ordered messages
  // Includes everything that repeats leave out.
  std::vector<v1::Run> runs;
  std::vector<std::string> violations;
  // Things that passed.
  int incoming = 0;
  int outgoing = 0;
  // How often the client has resumed, and cancelled.
  int resumes = 0;
  int cancels = 0;
};

struct FakeStorage {
  uint64_t version = 0;
  std::string bytes;
  uint64_t poison = 0;
};

// A graph that the client defined.
struct FakeWorkerGraph {
  srg::Graph graph;
  srg::GraphFacts facts;
  std::string fingerprint;
  struct Remembered {
    std::vector<uint64_t> storages;
    std::vector<uint32_t> final_slots;
    std::vector<double> floats;
  };
  std::vector<Remembered> remembered;  // by place
};

// A numbered response that is not acknowledged yet.
struct FakeReply {
  v1::ControlResponse response;
  uint64_t transfer_id = 0;
  std::shared_ptr<const std::string> value;  // on Bulk
};

class FakeExecutor {
 public:
  // Sends a reply. `value` follows on Bulk.
  using Respond =
      std::function<void(v1::ControlResponse response, uint64_t transfer_id,
                         std::shared_ptr<const std::string> value)>;

  // `script` and `seen` must outlive the executor.
  FakeExecutor(const v1::SessionLimits& limits, FakeScript* script,
               FakeSeen* seen, Respond respond);

  // Executes the message. Returns false when it waits for bulk bytes, a graph
  // or a session.
  bool Carry(const v1::Ordered& message);
  // Takes a graph that the executor needs again.
  void Supply(const v1::DefineGraph& supply);
  void TakeProof(const v1::TransferProof& proof);
  // Takes a chunk. Returns false when it is wrong.
  bool TakeChunk(uint64_t transfer_id, uint64_t offset,
                 absl::Span<const absl::string_view> pieces);
  // Says in a resumed session's Hello what came of a transfer.
  void DescribeTransfer(v1::WorkerHello* hello);
  // Moves the storages to the session that enters another worker with this
  // state. Returns false if no session left with this state.
  bool HandOver(const v1::Pull& state, FakeExecutor* to) const;
  // Drops the plans, so that the next run of each graph needs it again.
  void EvictPlans();
  // Prepares for another session, because this one has ended.
  void Reset();

  bool left() const { return left_; }
  bool entering() const { return entering_; }
  // Returns the graph that the executor waits for, or 0.
  uint64_t needed() const { return needed_; }
  const std::map<uint64_t, FakeStorage>& storages() const { return storages_; }
  // Returns the registered models by id.
  const std::map<uint64_t, v1::RegisterModel>& models() const {
    return models_;
  }

 private:
  void CarryDefine(const v1::DefineGraph& define);
  // Fills in what a repeat leaves out, and remembers the run.
  bool Expand(v1::Run* run, FakeWorkerGraph* defined);
  bool CarryRun(const v1::Ordered& message);
  bool CarryMigrate(const v1::Ordered& message);
  void CarryModel(const v1::Ordered& message);
  bool CarryInstall(const v1::Ordered& message);
  void CarryRead(const v1::Ordered& message);
  void CarryProfile(const v1::Ordered& message);
  v1::MeteredUse UseSoFar() const;
  // Returns the storage for a write, and creates it if base_version is 0.
  // Reports a wrong version.
  FakeStorage& Written(uint64_t id, uint64_t base_version);
  void Violation(std::string what);
  void Reply(v1::ControlResponse response) {
    respond_(std::move(response), 0, nullptr);
  }
  static v1::ErrorDetail Detail(uint64_t error_id);

  const v1::SessionLimits limits_;
  FakeScript& script_;
  FakeSeen& seen_;
  const Respond respond_;

  std::map<uint64_t, FakeStorage> storages_;
  std::set<uint64_t> ever_created_;
  std::map<uint64_t, FakeWorkerGraph> defined_;
  uint64_t last_graph_ = 0;
  std::set<uint64_t> evicted_;
  uint64_t needed_ = 0;
  std::map<uint64_t, v1::RegisterModel> models_;
  uint64_t session_runs_ = 0;
  bool profiling_ = false;
  bool left_ = false;
  bool entering_ = false;
  std::string ticket_;
  // The transfer at the head of the queue, once it is decided.
  uint64_t receiving_ = 0;
  std::string received_bulk_;
  std::set<uint64_t> received_chunks_;  // offsets
  // The transfer that a proof was asked for, and the proof once it arrived.
  uint64_t proving_ = 0;
  std::string proof_;
};

}  // namespace djinn

#endif  // CLIENT_LIB_SESSION_TESTING_FAKE_EXECUTOR_H_
