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
  explicit TestClient(std::unique_ptr<ClientStream> stream)
      : stream_(std::move(stream)) {
    stream_->Start(this);
  }
  ~TestClient() override {
    former_.reset();
    stream_.reset();
  }

  void OnMessage(v1::ControlResponse message) override {
    MutexLock lock(&mu_);
    completed_ = std::max(completed_, message.completed_sequence());
    if (message.has_window()) window_ = message.window();
    if (message.has_content_room()) content_room_ = message.content_room();
    if (message.has_hello()) hellos_.push_back(message.hello());
    const uint64_t number = message.reply_number();
    if (number != 0 && number <= handled_) {
      ++repeated_;
    } else {
      if (number != 0) {
        EXPECT_EQ(number, handled_ + 1);
      }
      handled_ = std::max(handled_, number);
      responses_.push_back(std::move(message));
    }
    changed_.SignalAll();
  }
  void OnBulk(uint64_t transfer_id, uint64_t offset,
              absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(&mu_);
    std::string chunk;
    for (absl::string_view piece : pieces)
      chunk.append(piece.data(), piece.size());
    std::string& bytes = bulk_[transfer_id];
    if (bytes.size() < offset + chunk.size()) {
      bytes.resize(offset + chunk.size());
    }
    bytes.replace(offset, chunk.size(), chunk);
    bulk_received_[transfer_id] += chunk.size();
    changed_.SignalAll();
  }
  void OnClosed(absl::Status status) override {
    MutexLock lock(&mu_);
    closed_ = std::move(status);
    changed_.SignalAll();
  }

  ClientStream* stream() { return stream_.get(); }

  // Returns the session's id; empty before the Hello.
  const std::string& session_id() const { return session_id_; }

  void Hello(const v1::ClientHello& hello) {
    session_id_ = hello.session_id();
    v1::ControlRequest request;
    *request.mutable_hello() = hello;
    stream_->Send(std::make_shared<v1::ControlRequest>(std::move(request)))
        .IgnoreError();
  }

  // Breaks the stream as the network would.
  void Break() {
    stream_->Close(absl::UnavailableError("the network broke"));
    stream_.reset();
  }
  // Sends a Hello on another stream, and sends again what the worker has not
  // received. Returns false when it was refused.
  bool Resume(std::unique_ptr<ClientStream> stream, v1::ClientHello hello) {
    size_t hellos;
    {
      MutexLock lock(&mu_);
      hellos = hellos_.size();
      closed_.reset();
      hello.mutable_resume()->set_acknowledged_reply(acknowledged_);
    }
    hello.mutable_resume()->set_sent_sequence(sequence_);
    if (stream_ != nullptr) former_ = std::move(stream_);
    stream_ = std::move(stream);
    stream_->Start(this);
    Hello(hello);
    EXPECT_TRUE(Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return hellos_.size() > hellos || closed_.has_value();
    }));
    uint64_t received = 0;
    {
      MutexLock lock(&mu_);
      if (hellos_.size() == hellos) return false;
      received = hellos_.back().received_sequence();
    }
    EXPECT_LE(received, sent_.size());
    for (uint64_t i = received; i < sent_.size(); ++i) {
      stream_->Send(sent_[i]).IgnoreError();
    }
    return true;
  }

  // Acknowledges every reply that arrived.
  void Acknowledge() {
    v1::ControlRequest request;
    {
      MutexLock lock(&mu_);
      if (acknowledged_ == handled_) return;
      acknowledged_ = handled_;
      request.set_acknowledged_reply(acknowledged_);
    }
    SendAny(std::move(request));
  }
  void SendAny(v1::ControlRequest request) {
    if (held_.has_value()) return held_->push_back(std::move(request));
    stream_->Send(std::make_shared<v1::ControlRequest>(std::move(request)))
        .IgnoreError();
  }
  void Supply(uint64_t id, const srg::Graph& graph) {
    v1::ControlRequest request;
    request.mutable_supply()->set_graph_id(id);
    *request.mutable_supply()->mutable_graph() = srg::ToProto(graph);
    SendAny(std::move(request));
  }
  // Everything sent between Hold() and Release() leaves as one message.
  void Hold() { held_.emplace(); }
  void Release() {
    v1::ControlRequest together = held_->front();
    for (size_t i = 1; i < held_->size(); ++i) {
      *together.add_following() = held_->at(i);
    }
    held_.reset();
    SendAny(std::move(together));
  }
  void SendCancel() {
    v1::ControlRequest request;
    request.mutable_cancel();
    SendAny(std::move(request));
  }

  // Sends the next ordered message; returns its sequence.
  uint64_t Send(v1::Ordered message) {
    message.set_sequence(++sequence_);
    message.set_lane(lane_);
    v1::ControlRequest request;
    if (acknowledges_) {
      MutexLock lock(&mu_);
      acknowledged_ = handled_;
      request.set_acknowledged_reply(acknowledged_);
    }
    *request.mutable_ordered() = std::move(message);
    sent_.push_back(std::make_shared<const v1::ControlRequest>(request));
    SendAny(std::move(request));
    return sequence_;
  }

  uint64_t Define(uint64_t id, const srg::Graph& graph,
                  const std::vector<uint64_t>& forget = {}) {
    graphs_[id] = graph;
    v1::Ordered message;
    message.mutable_define_graph()->set_graph_id(id);
    *message.mutable_define_graph()->mutable_graph() = srg::ToProto(graph);
    for (const uint64_t old : forget) {
      message.mutable_define_graph()->add_forget_ids(old);
    }
    return Send(std::move(message));
  }

  // Runs graph `id` with one storage per slot.
  uint64_t Run(uint64_t id, const std::vector<uint64_t>& storages,
               const std::vector<double>& floats = {},
               const std::vector<uint32_t>& final_slots = {}) {
    const srg::GraphFacts facts =
        srg::Validate(graphs_.at(id), srg::GraphCaps()).value();
    v1::Ordered message;
    v1::Run* run = message.mutable_run();
    run->set_graph_id(id);
    for (size_t i = 0; i < storages.size(); ++i) {
      v1::Binding* binding = run->add_bindings();
      binding->set_storage(storages[i]);
      binding->set_base_version(versions_[storages[i]]);
      binding->set_writes(facts.slots[i].writes);
      binding->set_reads(facts.slots[i].reads);
      versions_[storages[i]] += facts.slots[i].writes;
    }
    for (const double value : floats) run->add_float_holes(value);
    for (const uint32_t slot : final_slots) run->add_final_slots(slot);
    run->set_reply_metadata(facts.unknown_results > 0);
    run->set_mode(mode_);
    run->set_size(run_size_);
    run->set_remember(remember_);
    run->set_recomputed_nodes(recomputed_);
    return Send(std::move(message));
  }

  uint64_t InstallInline(uint64_t storage, const std::string& bytes) {
    v1::Ordered message;
    v1::Install* install = message.mutable_install();
    install->set_storage(storage);
    install->set_base_version(versions_[storage]++);
    install->set_inline_value(bytes);
    return Send(std::move(message));
  }
  uint64_t InstallSeed(uint64_t storage, uint64_t seed) {
    v1::Ordered message;
    v1::Install* install = message.mutable_install();
    install->set_storage(storage);
    install->set_base_version(versions_[storage]++);
    install->mutable_seed()->set_value(seed);
    return Send(std::move(message));
  }
  uint64_t InstallTransfer(uint64_t storage, uint64_t transfer_id,
                           const std::string& bytes,
                           std::optional<ContentHash> hash = std::nullopt) {
    if (!hash.has_value()) hash = HashContent(bytes.data(), bytes.size());
    v1::Ordered message;
    v1::Install* install = message.mutable_install();
    install->set_storage(storage);
    install->set_base_version(versions_[storage]++);
    install->mutable_transfer()->set_transfer_id(transfer_id);
    install->mutable_transfer()->set_size_bytes(bytes.size());
    install->mutable_transfer()->set_hash_high(hash->high);
    install->mutable_transfer()->set_hash_low(hash->low);
    install->mutable_transfer()->set_provable(true);
    return Send(std::move(message));
  }
  // Sends an eager upload.
  uint64_t InstallContent(uint64_t storage, const std::string& bytes) {
    v1::Ordered message;
    v1::Install* install = message.mutable_install();
    install->set_storage(storage);
    install->set_base_version(versions_[storage]++);
    install->set_content(bytes);
    return Send(std::move(message));
  }
  void SendProof(uint64_t transfer_id, const std::string& mac) {
    v1::ControlRequest request;
    request.mutable_proof()->set_transfer_id(transfer_id);
    request.mutable_proof()->set_mac(mac);
    SendAny(std::move(request));
  }
  uint64_t InstallPull(uint64_t storage, const v1::Pull& pull) {
    v1::Ordered message;
    v1::Install* install = message.mutable_install();
    install->set_storage(storage);
    install->set_base_version(versions_[storage]++);
    *install->mutable_pull() = pull;
    return Send(std::move(message));
  }
  // `rank` gives the round and remaining_seconds.
  uint64_t Offer(uint64_t storage, const std::string& ticket,
                 const v1::Offer& rank = {}) {
    v1::Ordered message;
    *message.mutable_offer() = rank;
    message.mutable_offer()->set_storage(storage);
    message.mutable_offer()->set_version(versions_[storage]);
    message.mutable_offer()->set_ticket(ticket);
    return Send(std::move(message));
  }
  // Returns what the lease has used, once everything before is executed.
  v1::MeteredUse Meter() {
    v1::Ordered message;
    message.mutable_meter();
    const uint64_t sequence = Send(std::move(message));
    return WaitFor([&](const v1::ControlResponse& r) {
             return r.has_metered() && r.metered().sequence() == sequence;
           })
        .metered()
        .use();
  }
  // Drops the model when there are no storages.
  uint64_t SendModel(uint64_t id, const std::vector<uint64_t>& storages,
                     const std::string& name = "") {
    v1::Ordered message;
    v1::RegisterModel* const model = message.mutable_register_model();
    model->set_model_id(id);
    model->set_name(name);
    for (const uint64_t storage : storages) model->add_storages(storage);
    return Send(std::move(message));
  }
  v1::ModelRegistered RegisterModel(uint64_t id,
                                    const std::vector<uint64_t>& storages,
                                    const std::string& name = "") {
    const uint64_t sequence = SendModel(id, storages, name);
    return WaitFor([&](const v1::ControlResponse& r) {
             return r.has_model_registered() &&
                    r.model_registered().sequence() == sequence;
           })
        .model_registered();
  }
  uint64_t Leave(const std::string& ticket) {
    v1::Ordered message;
    message.mutable_migrate()->mutable_leave()->set_ticket(ticket);
    return Send(std::move(message));
  }
  uint64_t Stay() {
    v1::Ordered message;
    message.mutable_migrate()->mutable_stay();
    return Send(std::move(message));
  }
  // Continues the session of `other`, which left.
  uint64_t Enter(const TestClient& other, const v1::Pull& state) {
    versions_ = other.versions_;
    v1::Ordered message;
    *message.mutable_migrate()->mutable_enter()->mutable_state() = state;
    return Send(std::move(message));
  }
  void SendBytes(uint64_t transfer_id, const std::string& bytes,
                 size_t from = 0, size_t count = std::string::npos) {
    auto owner = std::make_shared<std::string>(bytes.substr(from, count));
    for (size_t at = 0; at < owner->size(); at += kBulkChunkBytes) {
      stream_
          ->SendBulk(
              transfer_id, from + at,
              {absl::string_view(*owner).substr(at, kBulkChunkBytes), owner})
          .IgnoreError();
    }
  }
  uint64_t Create(uint64_t storage, uint64_t bytes) {
    v1::Ordered message;
    v1::CreateStorage* create = message.mutable_create_storage();
    create->set_storage(storage);
    create->set_base_version(versions_[storage]++);
    create->set_size_bytes(bytes);
    return Send(std::move(message));
  }
  uint64_t Free(const std::vector<uint64_t>& storages) {
    v1::Ordered message;
    for (const uint64_t storage : storages) {
      message.mutable_free()->add_storages(storage);
    }
    return Send(std::move(message));
  }
  uint64_t SendRead(uint64_t storage, const srg::TensorView& view,
                    uint64_t transfer_id = 0) {
    v1::Ordered message;
    v1::Read* read = message.mutable_read();
    read->set_storage(storage);
    read->set_version(versions_[storage]);
    *read->mutable_view() = srg::ToProto(view);
    read->set_transfer_id(transfer_id);
    return Send(std::move(message));
  }
  v1::ReadReply WaitRead(uint64_t sequence) {
    return WaitFor([&](const v1::ControlResponse& r) {
             return r.has_read() && r.read().sequence() == sequence;
           })
        .read();
  }
  // Returns the first `count` floats of a storage.
  std::vector<float> Read(uint64_t storage, int64_t count) {
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {count};
    view.strides = {1};
    const v1::ReadReply reply = WaitRead(SendRead(storage, view));
    EXPECT_FALSE(reply.has_error()) << reply.error().ShortDebugString();
    return FloatsOf(reply.value());
  }
  v1::ErrorDetail ReadError(uint64_t storage) {
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    return WaitRead(SendRead(storage, view)).error();
  }

  // Returns the first response that matches; an empty one when none arrives in
  // time or the stream ends.
  v1::ControlResponse WaitFor(
      const std::function<bool(const v1::ControlResponse&)>& matches) {
    v1::ControlResponse found;
    const bool ok = Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (const v1::ControlResponse& response : responses_) {
        if (!matches(response)) continue;
        found = response;
        return true;
      }
      return closed_.has_value();
    });
    EXPECT_TRUE(ok) << "no such response in time";
    return found;
  }
  v1::TransferDecision WaitDecision(uint64_t transfer_id) {
    return WaitFor([&](const v1::ControlResponse& r) {
             return r.has_transfer() &&
                    r.transfer().transfer_id() == transfer_id;
           })
        .transfer();
  }
  // Waits for the decision that follows a challenge.
  v1::TransferDecision WaitOutcome(uint64_t transfer_id) {
    return WaitFor([&](const v1::ControlResponse& r) {
             return r.has_transfer() &&
                    r.transfer().transfer_id() == transfer_id &&
                    !r.transfer().has_prove();
           })
        .transfer();
  }
  bool WaitCompleted(uint64_t sequence) {
    return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return completed_ >= sequence;
    });
  }
  std::string WaitBulk(uint64_t transfer_id, size_t size) {
    Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return bulk_received_[transfer_id] >= size;
    });
    if (acknowledges_) Acknowledge();
    MutexLock lock(&mu_);
    return bulk_[transfer_id];
  }
  absl::Status WaitClosed() {
    const bool ok = Wait(
        [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_.has_value(); });
    EXPECT_TRUE(ok) << "the stream did not close in time";
    MutexLock lock(&mu_);
    return closed_.value_or(absl::UnknownError("open"));
  }
  uint64_t completed() {
    MutexLock lock(&mu_);
    return completed_;
  }
  std::vector<v1::ControlResponse> responses() {
    MutexLock lock(&mu_);
    return responses_;
  }
  v1::Window window() {
    MutexLock lock(&mu_);
    return window_;
  }
  uint64_t content_room() {
    MutexLock lock(&mu_);
    return content_room_;
  }
  v1::WorkerHello last_hello() {
    MutexLock lock(&mu_);
    return hellos_.back();
  }
  // Returns how many replies arrived that had been handled before.
  int repeated() {
    MutexLock lock(&mu_);
    return repeated_;
  }
  uint64_t bulk_received(uint64_t transfer_id) {
    MutexLock lock(&mu_);
    return bulk_received_[transfer_id];
  }
  bool WaitBulkReceived(uint64_t transfer_id, uint64_t bytes) {
    return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return bulk_received_[transfer_id] >= bytes;
    });
  }
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
  void set_version(uint64_t storage, uint64_t version) {
    versions_[storage] = version;
  }

 private:
  template <typename Condition>
  bool Wait(const Condition& condition) {
    MutexLock lock(&mu_);
    for (int i = 0; i < 200; ++i) {
      if (condition()) return true;
      changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    }
    return condition();
  }

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
  std::map<uint64_t, uint64_t> versions_;
  std::map<uint64_t, srg::Graph> graphs_;
  std::unique_ptr<ClientStream> former_;
  std::unique_ptr<ClientStream> stream_;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_TESTING_TEST_CLIENT_H_
