// Many clients that ask one server for something that costs next to nothing,
// each with so many requests under way:
//
//   throughput_peer echo ADDRESS CLIENTS
//   throughput_peer grpc|shared_memory COORDINATOR TOKEN_FILE CLIENTS
//
// An echo's request is a message; a worker's is a run of one operator, which
// adds 1 to the client's number, and a read of that. Answers are checked. Reads
// lines "WINDOW REQUESTS" (of each client), and prints for each the seconds
// that all of them took. Ends with its input.
//
// Clients over gRPC are callback reactors, on a connection each; over shared
// memory they are the client library's streams.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "client_lib/transport/shared_memory_connector.h"
#include "common/mutex.h"
#include "common/net/channel_options.h"
#include "common/status_macros.h"
#include "common/torch/schema_hash.h"
#include "grpcpp/grpcpp.h"
#include "tests/bench/ping_pong.grpc.pb.h"
#include "tests/bench/stopwatch.h"
#include "tests/bench/wire_session.h"

namespace djinn::bench {
namespace {

// As many bytes as a run and a read of it take.
constexpr int kEchoBytes = 60;

[[noreturn]] void Die(absl::string_view why) {
  // One line, for whoever reads our output.
  std::cout << "failed: " << why << std::endl;
  std::_Exit(1);
}

// Counts what is still to be answered; whoever started it waits.
class Latch {
 public:
  void Expect(int count) {
    MutexLock lock(&mu_);
    left_ += count;
  }
  void Arrive() {
    MutexLock lock(&mu_);
    if (--left_ == 0) done_.SignalAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (left_ > 0) done_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar done_;
  int left_ ABSL_GUARDED_BY(mu_) = 0;
};

// Keeps a window of requests under way.
class Client {
 public:
  virtual ~Client() = default;

  void Run(int window, int requests, Latch* latch) {
    int first;
    {
      MutexLock lock(&mu_);
      latch_ = latch;
      first = std::min(window, requests);
      unsent_ = requests - first;
      unanswered_ = requests;
    }
    for (int i = 0; i < first; ++i) Request();
  }

 protected:
  // Asks for one thing; answers come in order.
  virtual void Request() = 0;

  void OnAnswer() {
    Latch* done = nullptr;
    bool more = false;
    {
      MutexLock lock(&mu_);
      if (unsent_ > 0) {
        --unsent_;
        more = true;
      }
      if (--unanswered_ == 0) done = latch_;
    }
    if (more) Request();
    if (done != nullptr) done->Arrive();
  }

 private:
  Mutex mu_;
  Latch* latch_ ABSL_GUARDED_BY(mu_) = nullptr;
  int unsent_ ABSL_GUARDED_BY(mu_) = 0;
  int unanswered_ ABSL_GUARDED_BY(mu_) = 0;
};

// A stream of gRPC's that writes one message after another.
template <typename Out, typename In>
class Reactor : public grpc::ClientBidiReactor<Out, In> {
 public:
  void Begin() {
    this->StartRead(&in_);
    this->StartCall();
  }
  void Write(Out message) {
    {
      MutexLock lock(&mu_);
      waiting_.push_back(std::move(message));
      if (writing_) return;
      writing_ = true;
    }
    WriteNext();
  }

 protected:
  virtual void OnMessage(const In& message) = 0;
  // What to write next of what waits.
  virtual Out Take(std::deque<Out>* waiting) {
    Out next = std::move(waiting->front());
    waiting->pop_front();
    return next;
  }

 private:
  void OnWriteDone(bool ok) override {
    if (!ok) Die("a stream broke");
    {
      MutexLock lock(&mu_);
      writing_ = !waiting_.empty();
      if (!writing_) return;
    }
    WriteNext();
  }
  void WriteNext() {
    {
      MutexLock lock(&mu_);
      out_ = Take(&waiting_);
    }
    this->StartWrite(&out_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) Die("a stream ended");
    OnMessage(in_);
    this->StartRead(&in_);
  }

  Mutex mu_;
  std::deque<Out> waiting_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  Out out_;
  In in_;
};

class EchoClient final : public Client, private Reactor<Ping, Pong> {
 public:
  explicit EchoClient(std::shared_ptr<grpc::Channel> channel)
      : stub_(PingPong::NewStub(channel)) {
    context_.set_wait_for_ready(true);
    stub_->async()->Exchange(&context_, this);
    Begin();
  }

 private:
  void Request() override {
    Ping ping;
    ping.set_reply_bytes(kEchoBytes);
    ping.mutable_payload()->assign(kEchoBytes, '\0');
    ping.mutable_payload()->front() = static_cast<char>(sent_.fetch_add(1));
    Write(std::move(ping));
  }
  void OnMessage(const Pong& pong) override {
    if (pong.payload().size() != kEchoBytes ||
        pong.payload().front() != static_cast<char>(answered_++)) {
      Die("the echo answered wrongly");
    }
    OnAnswer();
  }

  std::unique_ptr<PingPong::Stub> stub_;
  grpc::ClientContext context_;
  std::atomic<unsigned> sent_{0};
  unsigned answered_ = 0;
};

// x += hole
v1::Structure AddStructure() {
  v1::Structure structure;
  v1::Operator* const op = structure.add_operators();
  op->set_name("aten::add_");
  op->set_overload("Scalar");
  op->set_schema_hash(SchemaHash(c10::Dispatcher::singleton()
                                     .findSchemaOrThrow("aten::add_", "Scalar")
                                     .schema()));
  structure.add_slots()->set_kind(v1::Slot::BOUND);
  structure.set_float_hole_count(1);
  v1::Node* const node = structure.add_nodes();
  v1::TensorView* const view = node->add_arguments()->mutable_tensor();
  view->set_data_type(v1::DATA_TYPE_FLOAT32);
  view->add_sizes(1);
  view->add_strides(1);
  node->add_arguments()->set_float_hole(0);
  node->add_arguments()->set_integer(1);
  node->add_writes(0);
  return structure;
}

// What a worker's client says, whatever carries it.
class WorkerClient : public Client {
 public:
  explicit WorkerClient(WireSession session) : session_(std::move(session)) {}

  // Waits until the worker has what it needs.
  void Prepare() {
    Say({HelloOf(session_)});
    v1::Ordered install;
    install.mutable_install()->set_storage(1);
    const float zero = 0;
    install.mutable_install()->set_inline_value(&zero, sizeof(zero));
    v1::Ordered define;
    define.mutable_define_structure()->set_structure_id(1);
    *define.mutable_define_structure()->mutable_structure() = AddStructure();
    Latch ready;
    ready.Expect(1);
    {
      MutexLock lock(&sending_);
      Say({Numbered(std::move(install)), Numbered(std::move(define))});
    }
    Run(1, 1, &ready);
    ready.Wait();
  }

 protected:
  // In this order.
  virtual void Say(std::vector<v1::ControlRequest> requests) = 0;

  void OnResponse(const v1::ControlResponse& response) {
    if (response.admitted().has_refused()) {
      Die(response.admitted().refused().message());
    }
    if (response.reply_number() != 0) {
      handled_.store(response.reply_number(), std::memory_order_relaxed);
    }
    if (!response.has_read()) return;
    float value = -1;
    if (response.read().value().size() == sizeof(value)) {
      std::memcpy(&value, response.read().value().data(), sizeof(value));
    }
    // Exact up to 2^24.
    if (value != static_cast<float>(++answered_)) {
      Die(absl::StrCat("the worker answered ", value, ", not ", answered_));
    }
    OnAnswer();
  }

  const WireSession session_;

 private:
  void Request() override {
    MutexLock lock(&sending_);
    v1::Ordered run;
    run.mutable_run()->set_structure_id(1);
    run.mutable_run()->add_float_holes(1);
    run.mutable_run()->set_mode(v1::EXECUTION_MODE_STRICT);
    v1::Binding* const binding = run.mutable_run()->add_bindings();
    binding->set_storage(1);
    binding->set_base_version(version_++);
    binding->set_writes(1);
    binding->set_reads(true);
    v1::Ordered read;
    read.mutable_read()->set_storage(1);
    read.mutable_read()->set_version(version_);
    v1::TensorView* const view = read.mutable_read()->mutable_view();
    view->set_data_type(v1::DATA_TYPE_FLOAT32);
    view->add_sizes(1);
    view->add_strides(1);
    v1::ControlRequest first = Numbered(std::move(run));
    Say({std::move(first), Numbered(std::move(read))});
  }
  v1::ControlRequest Numbered(v1::Ordered message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_) {
    v1::ControlRequest request;
    message.set_sequence(++sequence_);
    *request.mutable_ordered() = std::move(message);
    request.set_acknowledged_reply(handled_.load(std::memory_order_relaxed));
    return request;
  }

  Mutex sending_;
  uint64_t sequence_ ABSL_GUARDED_BY(sending_) = 0;
  uint64_t version_ ABSL_GUARDED_BY(sending_) = 1;
  std::atomic<uint64_t> handled_{0};
  uint64_t answered_ = 0;
};

class GrpcClient final
    : public WorkerClient,
      private Reactor<v1::ControlRequest, v1::ControlResponse> {
 public:
  GrpcClient(WireSession session, std::shared_ptr<grpc::Channel> channel)
      : WorkerClient(std::move(session)),
        stub_(v1::Execution::NewStub(channel)) {
    stub_->async()->Control(&context_, this);
    Begin();
  }

 private:
  void Say(std::vector<v1::ControlRequest> requests) override {
    for (size_t i = 1; i < requests.size(); ++i) {
      *requests[0].add_following() = std::move(requests[i]);
    }
    Write(std::move(requests[0]));
  }
  // All that waits, as the client library does; but a hello by itself.
  v1::ControlRequest Take(std::deque<v1::ControlRequest>* waiting) override {
    v1::ControlRequest together = Reactor::Take(waiting);
    if (together.has_hello()) return together;
    for (v1::ControlRequest& next : *waiting) {
      google::protobuf::RepeatedPtrField<v1::ControlRequest> following;
      following.Swap(next.mutable_following());
      *together.add_following() = std::move(next);
      for (v1::ControlRequest& last : following) {
        *together.add_following() = std::move(last);
      }
    }
    waiting->clear();
    return together;
  }
  void OnMessage(const v1::ControlResponse& response) override {
    OnResponse(response);
    for (const v1::ControlResponse& next : response.following()) {
      OnResponse(next);
    }
  }

  std::unique_ptr<v1::Execution::Stub> stub_;
  grpc::ClientContext context_;
};

class StreamClient final : public WorkerClient, private ClientStreamReceiver {
 public:
  StreamClient(WireSession session, WorkerConnector* connector)
      : WorkerClient(std::move(session)) {
    auto stream = connector->Connect(session_.lease, session_.session_id);
    if (!stream.ok()) Die(stream.status().message());
    stream_ = *std::move(stream);
    if (stream_->transport() != "shared memory") {
      Die("the worker offers no shared memory");
    }
    stream_->Start(this);
  }

 private:
  void Say(std::vector<v1::ControlRequest> requests) override {
    for (v1::ControlRequest& request : requests) {
      const absl::Status sent = stream_->Send(
          std::make_shared<const v1::ControlRequest>(std::move(request)));
      if (!sent.ok()) Die(sent.message());
    }
  }
  void OnMessage(v1::ControlResponse response) override {
    OnResponse(response);
  }
  void OnBulk(uint64_t, uint64_t,
              absl::Span<const absl::string_view>) override {}
  void OnClosed(absl::Status status) override { Die(status.ToString()); }

  std::unique_ptr<ClientStream> stream_;
};

absl::StatusOr<std::vector<std::unique_ptr<Client>>> OpenEchoes(
    const std::string& address, int count) {
  Channels channels(count);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) {
    DJINN_ASSIGN_OR_RETURN(auto channel, channels.Next(address));
    clients.push_back(std::make_unique<EchoClient>(std::move(channel)));
  }
  return clients;
}

absl::StatusOr<std::vector<std::unique_ptr<Client>>> OpenWorkers(
    const std::string& coordinator, const std::string& token_file, int count,
    bool shared_memory) {
  DJINN_ASSIGN_OR_RETURN(const std::string token, ReadToken(token_file));
  Channels coordinators(1), channels(count);
  const auto connector =
      MakeSharedMemoryConnector(MakeGrpcWorkerConnector({}, 1));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) {
    DJINN_ASSIGN_OR_RETURN(WireSession session,
                           OpenWireSession(coordinator, token, &coordinators));
    std::unique_ptr<WorkerClient> client;
    if (shared_memory) {
      client =
          std::make_unique<StreamClient>(std::move(session), connector.get());
    } else {
      DJINN_ASSIGN_OR_RETURN(auto channel,
                             channels.Next(session.lease.worker_address()));
      client =
          std::make_unique<GrpcClient>(std::move(session), std::move(channel));
    }
    client->Prepare();
    clients.push_back(std::move(client));
  }
  return clients;
}

int Main(const std::vector<std::string>& arguments) {
  // Both kinds of clients, as Djinn's daemons.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const bool echo = arguments[0] == "echo";
  int count = 0;
  if (!absl::SimpleAtoi(arguments.back(), &count) || count < 1) return 2;
  const auto clients = echo ? OpenEchoes(arguments[1], count)
                            : OpenWorkers(arguments[1], arguments[2], count,
                                          arguments[0] == "shared_memory");
  if (!clients.ok()) Die(clients.status().ToString());
  std::cout << "ready" << std::endl;
  int window;
  int requests;
  while (std::cin >> window >> requests) {
    Latch latch;
    latch.Expect(count);
    const double start = WallNow();
    for (const auto& client : *clients) client->Run(window, requests, &latch);
    latch.Wait();
    std::cout << WallNow() - start << std::endl;
  }
  // The end of this process ends the streams.
  std::_Exit(0);
}

}  // namespace
}  // namespace djinn::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const size_t wanted = !arguments.empty() && arguments[0] == "echo" ? 3 : 4;
  if (arguments.size() != wanted) {
    std::cerr << "usage: throughput_peer echo ADDRESS CLIENTS\n"
                 "       throughput_peer grpc|shared_memory COORDINATOR "
                 "TOKEN_FILE CLIENTS\n";
    return 2;
  }
  return djinn::bench::Main(arguments);
}
