#include "gpu_worker/testing/test_client.h"

#include <algorithm>

namespace djinn::worker {

TestClient::TestClient(std::unique_ptr<ClientStream> stream)
    : stream_(std::move(stream)) {
  stream_->Start(this);
}

TestClient::~TestClient() {
  former_.reset();
  stream_.reset();
}

void TestClient::OnMessage(v1::ControlResponse message) {
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

void TestClient::OnBulk(uint64_t transfer_id, uint64_t offset,
                        absl::Span<const absl::string_view> pieces) {
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

void TestClient::OnClosed(absl::Status status) {
  MutexLock lock(&mu_);
  closed_ = std::move(status);
  changed_.SignalAll();
}

void TestClient::Hello(const v1::ClientHello& hello) {
  session_id_ = hello.session_id();
  v1::ControlRequest request;
  *request.mutable_hello() = hello;
  stream_->Send(std::make_shared<v1::ControlRequest>(std::move(request)))
      .IgnoreError();
}

void TestClient::Break() {
  stream_->Close(absl::UnavailableError("the network broke"));
  stream_.reset();
}

bool TestClient::Resume(std::unique_ptr<ClientStream> stream,
                        v1::ClientHello hello) {
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

void TestClient::Acknowledge() {
  v1::ControlRequest request;
  {
    MutexLock lock(&mu_);
    if (acknowledged_ == handled_) return;
    acknowledged_ = handled_;
    request.set_acknowledged_reply(acknowledged_);
  }
  SendAny(std::move(request));
}

void TestClient::SendAny(v1::ControlRequest request) {
  if (held_.has_value()) return held_->push_back(std::move(request));
  stream_->Send(std::make_shared<v1::ControlRequest>(std::move(request)))
      .IgnoreError();
}

void TestClient::Supply(uint64_t id, const srg::Graph& graph) {
  v1::ControlRequest request;
  request.mutable_supply()->set_graph_id(id);
  *request.mutable_supply()->mutable_graph() = srg::ToProto(graph);
  SendAny(std::move(request));
}

void TestClient::Release() {
  v1::ControlRequest together = held_->front();
  for (size_t i = 1; i < held_->size(); ++i) {
    *together.add_following() = held_->at(i);
  }
  held_.reset();
  SendAny(std::move(together));
}

void TestClient::SendCancel() {
  v1::ControlRequest request;
  request.mutable_cancel();
  SendAny(std::move(request));
}

uint64_t TestClient::Send(v1::Ordered message) {
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

uint64_t TestClient::Define(uint64_t id, const srg::Graph& graph,
                            const std::vector<uint64_t>& forget) {
  graphs_[id] = graph;
  v1::Ordered message;
  message.mutable_define_graph()->set_graph_id(id);
  *message.mutable_define_graph()->mutable_graph() = srg::ToProto(graph);
  for (const uint64_t old : forget) {
    message.mutable_define_graph()->add_forget_ids(old);
  }
  return Send(std::move(message));
}

uint64_t TestClient::Run(uint64_t id, const std::vector<uint64_t>& storages,
                         const std::vector<double>& floats,
                         const std::vector<uint32_t>& final_slots) {
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
  if (trace_.span_id() != 0) *message.mutable_trace() = trace_;
  return Send(std::move(message));
}

uint64_t TestClient::InstallInline(uint64_t storage, const std::string& bytes) {
  v1::Ordered message;
  v1::Install* install = message.mutable_install();
  install->set_storage(storage);
  install->set_base_version(versions_[storage]++);
  install->set_inline_value(bytes);
  return Send(std::move(message));
}

uint64_t TestClient::InstallSeed(uint64_t storage, uint64_t seed) {
  v1::Ordered message;
  v1::Install* install = message.mutable_install();
  install->set_storage(storage);
  install->set_base_version(versions_[storage]++);
  install->mutable_seed()->set_value(seed);
  return Send(std::move(message));
}

uint64_t TestClient::InstallTransfer(uint64_t storage, uint64_t transfer_id,
                                     const std::string& bytes,
                                     std::optional<ContentHash> hash) {
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

uint64_t TestClient::InstallContent(uint64_t storage,
                                    const std::string& bytes) {
  v1::Ordered message;
  v1::Install* install = message.mutable_install();
  install->set_storage(storage);
  install->set_base_version(versions_[storage]++);
  install->set_content(bytes);
  return Send(std::move(message));
}

void TestClient::SendProof(uint64_t transfer_id, const std::string& mac) {
  v1::ControlRequest request;
  request.mutable_proof()->set_transfer_id(transfer_id);
  request.mutable_proof()->set_mac(mac);
  SendAny(std::move(request));
}

uint64_t TestClient::InstallPull(uint64_t storage, const v1::Pull& pull) {
  v1::Ordered message;
  v1::Install* install = message.mutable_install();
  install->set_storage(storage);
  install->set_base_version(versions_[storage]++);
  *install->mutable_pull() = pull;
  return Send(std::move(message));
}

uint64_t TestClient::InstallCopy(uint64_t storage, uint64_t source) {
  v1::Ordered message;
  v1::Install* install = message.mutable_install();
  install->set_storage(storage);
  install->set_base_version(versions_[storage]++);
  install->mutable_copy()->set_storage(source);
  install->mutable_copy()->set_version(versions_[source]);
  return Send(std::move(message));
}

uint64_t TestClient::Offer(uint64_t storage, const std::string& ticket,
                           const v1::Offer& rank) {
  v1::Ordered message;
  *message.mutable_offer() = rank;
  message.mutable_offer()->set_storage(storage);
  message.mutable_offer()->set_version(versions_[storage]);
  message.mutable_offer()->set_ticket(ticket);
  return Send(std::move(message));
}

v1::MeteredUse TestClient::Meter() {
  v1::Ordered message;
  message.mutable_meter();
  const uint64_t sequence = Send(std::move(message));
  return WaitFor([&](const v1::ControlResponse& r) {
           return r.has_metered() && r.metered().sequence() == sequence;
         })
      .metered()
      .use();
}

uint64_t TestClient::SendModel(uint64_t id,
                               const std::vector<uint64_t>& storages,
                               const std::string& name) {
  v1::Ordered message;
  v1::RegisterModel* const model = message.mutable_register_model();
  model->set_model_id(id);
  model->set_name(name);
  for (const uint64_t storage : storages) model->add_storages(storage);
  return Send(std::move(message));
}

v1::ModelRegistered TestClient::RegisterModel(
    uint64_t id, const std::vector<uint64_t>& storages,
    const std::string& name) {
  const uint64_t sequence = SendModel(id, storages, name);
  return WaitFor([&](const v1::ControlResponse& r) {
           return r.has_model_registered() &&
                  r.model_registered().sequence() == sequence;
         })
      .model_registered();
}

uint64_t TestClient::Leave(const std::string& ticket) {
  v1::Ordered message;
  message.mutable_migrate()->mutable_leave()->set_ticket(ticket);
  return Send(std::move(message));
}

uint64_t TestClient::Stay() {
  v1::Ordered message;
  message.mutable_migrate()->mutable_stay();
  return Send(std::move(message));
}

uint64_t TestClient::Enter(const TestClient& other, const v1::Pull& state) {
  versions_ = other.versions_;
  v1::Ordered message;
  *message.mutable_migrate()->mutable_enter()->mutable_state() = state;
  return Send(std::move(message));
}

void TestClient::SendBytes(uint64_t transfer_id, const std::string& bytes,
                           size_t from, size_t count) {
  auto owner = std::make_shared<std::string>(bytes.substr(from, count));
  for (size_t at = 0; at < owner->size(); at += kBulkChunkBytes) {
    stream_
        ->SendBulk(
            transfer_id, from + at,
            {absl::string_view(*owner).substr(at, kBulkChunkBytes), owner})
        .IgnoreError();
  }
}

uint64_t TestClient::Create(uint64_t storage, uint64_t bytes) {
  v1::Ordered message;
  v1::CreateStorage* create = message.mutable_create_storage();
  create->set_storage(storage);
  create->set_base_version(versions_[storage]++);
  create->set_size_bytes(bytes);
  return Send(std::move(message));
}

uint64_t TestClient::SkipTo(uint64_t version, uint64_t storage,
                            uint64_t bytes) {
  v1::Ordered message;
  v1::CreateStorage* create = message.mutable_create_storage();
  create->set_storage(storage);
  create->set_base_version(versions_[storage]);
  create->set_size_bytes(bytes);
  create->set_version(version);
  versions_[storage] = version;
  return Send(std::move(message));
}

uint64_t TestClient::Free(const std::vector<uint64_t>& storages) {
  v1::Ordered message;
  for (const uint64_t storage : storages) {
    message.mutable_free()->add_storages(storage);
  }
  return Send(std::move(message));
}

uint64_t TestClient::SendRead(uint64_t storage, const srg::TensorView& view,
                              uint64_t transfer_id) {
  v1::Ordered message;
  v1::Read* read = message.mutable_read();
  read->set_storage(storage);
  read->set_version(versions_[storage]);
  *read->mutable_view() = srg::ToProto(view);
  read->set_transfer_id(transfer_id);
  return Send(std::move(message));
}

v1::ReadReply TestClient::WaitRead(uint64_t sequence) {
  return WaitFor([&](const v1::ControlResponse& r) {
           return r.has_read() && r.read().sequence() == sequence;
         })
      .read();
}

std::vector<float> TestClient::Read(uint64_t storage, int64_t count) {
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {count};
  view.strides = {1};
  const v1::ReadReply reply = WaitRead(SendRead(storage, view));
  EXPECT_FALSE(reply.has_error()) << reply.error().ShortDebugString();
  return FloatsOf(reply.value());
}

v1::ErrorDetail TestClient::ReadError(uint64_t storage) {
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  return WaitRead(SendRead(storage, view)).error();
}

v1::ControlResponse TestClient::WaitFor(
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

v1::WorkerHello TestClient::WaitHello() {
  return WaitFor([](const v1::ControlResponse& r) { return r.has_hello(); })
      .hello();
}

v1::TransferDecision TestClient::WaitDecision(uint64_t transfer_id) {
  return WaitFor([&](const v1::ControlResponse& r) {
           return r.has_transfer() && r.transfer().transfer_id() == transfer_id;
         })
      .transfer();
}

v1::TransferDecision TestClient::WaitOutcome(uint64_t transfer_id) {
  return WaitFor([&](const v1::ControlResponse& r) {
           return r.has_transfer() &&
                  r.transfer().transfer_id() == transfer_id &&
                  !r.transfer().has_prove();
         })
      .transfer();
}

bool TestClient::WaitCompleted(uint64_t sequence) {
  return Wait(
      [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return completed_ >= sequence; });
}

std::string TestClient::WaitBulk(uint64_t transfer_id, size_t size) {
  Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return bulk_received_[transfer_id] >= size;
  });
  if (acknowledges_) Acknowledge();
  MutexLock lock(&mu_);
  return bulk_[transfer_id];
}

absl::Status TestClient::WaitClosed() {
  const bool ok = Wait(
      [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_.has_value(); });
  EXPECT_TRUE(ok) << "the stream did not close in time";
  MutexLock lock(&mu_);
  return closed_.value_or(absl::UnknownError("open"));
}

uint64_t TestClient::completed() {
  MutexLock lock(&mu_);
  return completed_;
}

std::vector<v1::ControlResponse> TestClient::responses() {
  MutexLock lock(&mu_);
  return responses_;
}

v1::Window TestClient::window() {
  MutexLock lock(&mu_);
  return window_;
}

uint64_t TestClient::content_room() {
  MutexLock lock(&mu_);
  return content_room_;
}

v1::WorkerHello TestClient::last_hello() {
  MutexLock lock(&mu_);
  return hellos_.back();
}

int TestClient::repeated() {
  MutexLock lock(&mu_);
  return repeated_;
}

uint64_t TestClient::bulk_received(uint64_t transfer_id) {
  MutexLock lock(&mu_);
  return bulk_received_[transfer_id];
}

bool TestClient::WaitBulkReceived(uint64_t transfer_id, uint64_t bytes) {
  return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return bulk_received_[transfer_id] >= bytes;
  });
}

void TestClient::set_version(uint64_t storage, uint64_t version) {
  versions_[storage] = version;
}

bool TestClient::Wait(absl::FunctionRef<bool()> condition) {
  MutexLock lock(&mu_);
  for (int i = 0; i < 200; ++i) {
    if (condition()) return true;
    changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
  }
  return condition();
}

}  // namespace djinn::worker
