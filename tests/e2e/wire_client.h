// A client that uses only the generated stubs and no code of the client
// library, so that it can send messages that the library never sends.
#ifndef TESTS_E2E_WIRE_CLIENT_H_
#define TESTS_E2E_WIRE_CLIENT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/bulk.pb.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "djinn/v1/session.pb.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"

namespace djinn {

// Bounds every wait.
inline constexpr std::chrono::seconds kWirePatience{20};
// Bounds every call. It is longer than the longest run of the operators'
// fuzzer, whose victim keeps one session throughout.
inline constexpr std::chrono::minutes kCallPatience{180};

// A bidirectional call that keeps all responses in order until a test reads
// them.
template <typename Request, typename Response>
class WireStream {
 public:
  using Call = grpc::ClientReaderWriter<Request, Response>;

  // `begin` starts the call.
  template <typename Begin>
  explicit WireStream(Begin begin) {
    context_.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    call_ = begin(&context_);
    reader_ = std::thread([this] {
      Response response;
      while (call_->Read(&response)) {
        MutexLock lock(&mu_);
        responses_.push_back(response);
        // The messages in `following` come after it.
        if constexpr (std::is_same_v<Response, v1::ControlResponse>) {
          const auto& following = response.following();
          responses_.insert(responses_.end(), following.begin(),
                            following.end());
        }
        changed_.SignalAll();
      }
      absl::Status end = FromGrpcStatus(call_->Finish());
      MutexLock lock(&mu_);
      end_ = std::move(end);
      changed_.SignalAll();
    });
  }
  ~WireStream() {
    context_.TryCancel();
    reader_.join();
  }

  void Send(const Request& request) { (void)call_->Write(request); }
  void Finish() { (void)call_->WritesDone(); }

  // Returns the first matching response from position `*from` on, and sets
  // `*from` to the position after that response. Returns an empty result if the
  // stream ended, or if no response matched in time.
  template <typename Matches>
  std::optional<Response> Wait(size_t* from, Matches matches) {
    MutexLock lock(&mu_);
    const auto deadline = std::chrono::steady_clock::now() + kWirePatience;
    for (;;) {
      for (; *from < responses_.size(); ++*from) {
        if (matches(responses_[*from])) return responses_[(*from)++];
      }
      if (end_.has_value() || std::chrono::steady_clock::now() > deadline) {
        return std::nullopt;
      }
      changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    }
  }
  template <typename Matches>
  std::optional<Response> Wait(Matches matches) {
    size_t from = 0;
    return Wait(&from, matches);
  }

  bool ended() const {
    MutexLock lock(&mu_);
    return end_.has_value();
  }
  // Waits for the stream's end. Returns UNKNOWN when it is still open.
  absl::Status WaitEnd() {
    Wait([](const Response&) { return false; });
    MutexLock lock(&mu_);
    return end_.value_or(absl::UnknownError("the stream is still open"));
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<Call> call_;
  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Response> responses_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  std::thread reader_;
};

using AttachStream = WireStream<v1::SessionRequest, v1::SessionResponse>;
using ControlStream = WireStream<v1::ControlRequest, v1::ControlResponse>;
using BulkStream = WireStream<v1::BulkChunk, v1::BulkChunk>;

inline std::unique_ptr<AttachStream> OpenAttach(const std::string& coordinator,
                                                const std::string& token) {
  const auto stub = v1::Session::NewStub(MakeChannel(coordinator).value());
  return std::make_unique<AttachStream>([&](grpc::ClientContext* context) {
    PutBearer(token, context);
    return stub->Attach(context);
  });
}

// A session with a lease. It ends with this object.
class WireSession {
 public:
  WireSession(const std::string& coordinator, const std::string& token)
      : attach_(OpenAttach(coordinator, token)) {
    v1::SessionRequest request;
    request.mutable_open()->set_protocol_version(kProtocolVersion);
    request.mutable_open()->set_program("wire_client");
    attach_->Send(request);
    request.mutable_lease()->set_virtual_device(0);
    attach_->Send(request);
    const auto opened = attach_->Wait(
        [](const v1::SessionResponse& r) { return r.has_opened(); });
    const auto granted = attach_->Wait(
        [](const v1::SessionResponse& r) { return r.has_granted(); });
    EXPECT_TRUE(opened.has_value() && granted.has_value())
        << attach_->WaitEnd();
    if (opened.has_value()) id_ = opened->opened().session_id();
    if (granted.has_value()) lease_ = granted->granted().lease();
  }
  ~WireSession() {
    v1::SessionRequest request;
    request.mutable_close();
    attach_->Send(request);
    (void)attach_->WaitEnd();
  }

  // Waits until the coordinator ends the lease, and returns its reason; empty
  // if it does not.
  std::string WaitLeaseEnd() {
    const auto ended = attach_->Wait([&](const v1::SessionResponse& r) {
      return r.has_ended() && r.ended().lease_id() == lease_.lease_id();
    });
    return ended.has_value() ? ended->ended().reason() : "";
  }

  const std::string& id() const { return id_; }
  const v1::Lease& lease() const { return lease_; }

  v1::ClientHello Hello() const {
    v1::ClientHello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_session_id(id_);
    hello.set_session_epoch(lease_.session_epoch());
    hello.set_lease_token(lease_.token());
    hello.set_worker_incarnation(lease_.worker_incarnation());
    return hello;
  }
  std::unique_ptr<ControlStream> OpenControl() const {
    const auto stub = Stub();
    return std::make_unique<ControlStream>(
        [&](grpc::ClientContext* context) { return stub->Control(context); });
  }
  std::unique_ptr<BulkStream> OpenBulk() const {
    const auto stub = Stub();
    return std::make_unique<BulkStream>(
        [&](grpc::ClientContext* context) { return stub->Bulk(context); });
  }

 private:
  std::unique_ptr<v1::Execution::Stub> Stub() const {
    return v1::Execution::NewStub(MakeChannel(lease_.worker_address()).value());
  }

  const std::unique_ptr<AttachStream> attach_;
  std::string id_;
  v1::Lease lease_;
};

}  // namespace djinn

#endif  // TESTS_E2E_WIRE_CLIENT_H_
