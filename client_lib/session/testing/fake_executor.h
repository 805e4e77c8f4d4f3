// Executes the ordered messages of a session on a fake worker. Runs have no
// operators: they change versions and poison. It checks graphs, versions,
// bindings, lifetimes and transfers as strictly as the real worker.
//
// Not thread-safe: the worker's lock guards it.
#ifndef CLIENT_LIB_SESSION_TESTING_FAKE_EXECUTOR_H_
#define CLIENT_LIB_SESSION_TESTING_FAKE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/session/testing/fake_worker_state.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {

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
  // Gives the storages to the session of another worker that enters with this
  // state. Returns false if none left with it.
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
  // Returns the storage, created if base_version is 0, and notes a wrong
  // version.
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
  std::set<uint64_t> ever_born_;
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
