// A client for tests: sends ordered messages over an in-process stream and
// waits, with a deadline, for the responses. It keeps what it sent and counts
// replies, so that it can resume on another stream.
#ifndef GPU_WORKER_TESTING_TEST_CLIENT_H_
#define GPU_WORKER_TESTING_TEST_CLIENT_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"
#include "common/hash/hash.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "common/transport/stream.h"
#include "djinn/v1/execution.pb.h"
#include "gtest/gtest.h"

namespace djinn::worker {

inline std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}
inline std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class TestClient : public ClientStreamReceiver {
 public:
  explicit TestClient(std::unique_ptr<ClientStream> stream);
  ~TestClient() override;

  void OnMessage(v1::ControlResponse message) override;
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override;
  void OnClosed(absl::Status status) override;

  ClientStream* stream() { return stream_.get(); }

  // Returns the session's id; empty before the Hello.
  const std::string& session_id() const { return session_id_; }

  void Hello(const v1::ClientHello& hello);

  // Breaks the stream as the network would.
  void Break();
  // Sends a Hello on another stream, and sends again what the worker has not
  // received. Returns false when it was refused.
  bool Resume(std::unique_ptr<ClientStream> stream, v1::ClientHello hello);

  // Acknowledges every reply that arrived.
  void Acknowledge();
  void SendAny(v1::ControlRequest request);
  void Supply(uint64_t id, const srg::Graph& graph);
  // Everything sent between Hold() and Release() leaves as one message.
  void Hold() { held_.emplace(); }
  void Release();
  void SendCancel();

  // Sends the next ordered message; returns its sequence.
  uint64_t Send(v1::Ordered message);

  uint64_t Define(uint64_t id, const srg::Graph& graph,
                  const std::vector<uint64_t>& forget = {});

  // Gives the runs that follow this trace context.
  void TraceRuns(const v1::TraceContext& trace) { trace_ = trace; }
  // Runs graph `id` with one storage per slot.
  uint64_t Run(uint64_t id, const std::vector<uint64_t>& storages,
               const std::vector<double>& floats = {},
               const std::vector<uint32_t>& final_slots = {});

  uint64_t InstallInline(uint64_t storage, const std::string& bytes);
  uint64_t InstallSeed(uint64_t storage, uint64_t seed);
  uint64_t InstallTransfer(uint64_t storage, uint64_t transfer_id,
                           const std::string& bytes,
                           std::optional<ContentHash> hash = std::nullopt);
  // Sends an eager upload.
  uint64_t InstallContent(uint64_t storage, const std::string& bytes);
  void SendProof(uint64_t transfer_id, const std::string& mac);
  uint64_t InstallPull(uint64_t storage, const v1::Pull& pull);
  // Copies `source` to the storage.
  uint64_t InstallCopy(uint64_t storage, uint64_t source);
  // `rank` gives the round and remaining_seconds.
  uint64_t Offer(uint64_t storage, const std::string& ticket,
                 const v1::Offer& rank = {});
  // Returns what the lease has used, once everything before is executed.
  v1::MeteredUse Meter();
  // Drops the model when there are no storages.
  uint64_t SendModel(uint64_t id, const std::vector<uint64_t>& storages,
                     const std::string& name = "");
  v1::ModelRegistered RegisterModel(uint64_t id,
                                    const std::vector<uint64_t>& storages,
                                    const std::string& name = "");
  uint64_t Leave(const std::string& ticket);
  uint64_t Stay();
  // Continues the session of `other`, which left.
  uint64_t Enter(const TestClient& other, const v1::Pull& state);
  void SendBytes(uint64_t transfer_id, const std::string& bytes,
                 size_t from = 0, size_t count = std::string::npos);
  uint64_t Create(uint64_t storage, uint64_t bytes);
  // Creates the storage at this version, or leaves the versions up to it out.
  uint64_t SkipTo(uint64_t version, uint64_t storage, uint64_t bytes);
  uint64_t Free(const std::vector<uint64_t>& storages);
  uint64_t SendRead(uint64_t storage, const srg::TensorView& view,
                    uint64_t transfer_id = 0);
  v1::ReadReply WaitRead(uint64_t sequence);
  // Returns the first `count` floats of a storage.
  std::vector<float> Read(uint64_t storage, int64_t count);
  v1::ErrorDetail ReadError(uint64_t storage);

  // Returns the first response that matches; an empty one when none arrives in
  // time or the stream ends.
  v1::ControlResponse WaitFor(
      const std::function<bool(const v1::ControlResponse&)>& matches);
  v1::WorkerHello WaitHello();
  v1::TransferDecision WaitDecision(uint64_t transfer_id);
  // Waits for the decision that follows a challenge.
  v1::TransferDecision WaitOutcome(uint64_t transfer_id);
  bool WaitCompleted(uint64_t sequence);
  std::string WaitBulk(uint64_t transfer_id, size_t size);
  absl::Status WaitClosed();
  uint64_t completed();
  std::vector<v1::ControlResponse> responses();
  v1::Window window();
  uint64_t content_room();
  v1::WorkerHello last_hello();
  // Returns how many replies arrived that had been handled before.
  int repeated();
  uint64_t bulk_received(uint64_t transfer_id);
  bool WaitBulkReceived(uint64_t transfer_id, uint64_t bytes);
  void SkipSequence() { ++sequence_; }
  // Stops the automatic acknowledgements.
  void KeepSilent() { acknowledges_ = false; }
  // These apply to the messages that follow.
  void set_lane(uint32_t lane) { lane_ = lane; }
  void set_mode(v1::ExecutionMode mode) { mode_ = mode; }
  void set_run_size(int64_t size) { run_size_ = size; }
  void set_remember(bool remember) { remember_ = remember; }
  // Sets the recomputed nodes of each later run.
  void SayRecomputed(uint32_t nodes) { recomputed_ = nodes; }
  // Sets the version of a storage that a run created which Send() sent.
  void set_version(uint64_t storage, uint64_t version);

 private:
  // Waits until `condition`, called under mu_, returns true. Returns false when
  // it does not in time.
  bool Wait(absl::FunctionRef<bool()> condition);

  Mutex mu_;
  CondVar changed_;
  std::vector<v1::ControlResponse> responses_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::string> bulk_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, uint64_t> bulk_received_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::WorkerHello> hellos_ ABSL_GUARDED_BY(mu_);
  v1::Window window_ ABSL_GUARDED_BY(mu_);
  uint64_t content_room_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t handled_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  int repeated_ ABSL_GUARDED_BY(mu_) = 0;
  bool acknowledges_ = true;
  std::string session_id_;
  uint64_t sequence_ = 0;
  std::vector<std::shared_ptr<const v1::ControlRequest>> sent_;
  std::optional<std::vector<v1::ControlRequest>> held_;
  uint32_t lane_ = 0;
  v1::ExecutionMode mode_ = v1::EXECUTION_MODE_UNSPECIFIED;
  int64_t run_size_ = 0;
  bool remember_ = false;
  uint32_t recomputed_ = 0;
  v1::TraceContext trace_;
  std::map<uint64_t, uint64_t> versions_;
  std::map<uint64_t, srg::Graph> graphs_;
  std::unique_ptr<ClientStream> former_;
  std::unique_ptr<ClientStream> stream_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_TEST_CLIENT_H_
