// Opens many idle sessions on a running coordinator and worker, each with a
// lease and a stream to the worker, and prints its progress. It runs in a
// process of its own, because it links the protos, which the benchmarks' client
// library also contains.
//
// usage: idle_sessions_peer COORDINATOR TOKEN_FILE SESSIONS
//
// Prints from time to time how many sessions are open, and once more when all
// are open. Then waits for the end of its input.
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/session.grpc.pb.h"
#include "djinn/v1/session.pb.h"
#include "grpcpp/grpcpp.h"

namespace djinn::bench {
namespace {

constexpr int kChannels = 16;
constexpr int kReportEvery = 20;

// Distributes connections over a number of channels.
class Channels {
 public:
  explicit Channels(size_t count) : count_(count) {}

  absl::StatusOr<std::shared_ptr<grpc::Channel>> Next(
      const std::string& address);

 private:
  const size_t count_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  size_t next_ = 0;
};

struct WireSession {
  std::unique_ptr<grpc::ClientContext> context;
  // The session lasts as long as this stream.
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      attach;
  std::string session_id;
  v1::Lease lease;
};

absl::StatusOr<std::shared_ptr<grpc::Channel>> Channels::Next(
    const std::string& address) {
  if (channels_.size() < count_) {
    ChannelOptions options;
    options.connection = static_cast<int>(channels_.size());
    DJINN_ASSIGN_OR_RETURN(channels_.emplace_back(),
                           MakeChannel(address, options));
  }
  return channels_[next_++ % count_];
}

absl::StatusOr<WireSession> OpenWireSession(const std::string& coordinator,
                                            const std::string& token,
                                            Channels* channels) {
  WireSession session;
  session.context = std::make_unique<grpc::ClientContext>();
  PutBearer(token, session.context.get());
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         channels->Next(coordinator));
  session.attach = v1::Session::NewStub(channel)->Attach(session.context.get());
  const auto exchange = [&](const v1::SessionRequest& request,
                            v1::SessionResponse* response) {
    if (session.attach->Write(request) && session.attach->Read(response)) {
      return absl::OkStatus();
    }
    const absl::Status end = FromGrpcStatus(session.attach->Finish());
    return end.ok() ? absl::UnavailableError("a stream ended") : end;
  };
  v1::SessionRequest open;
  open.mutable_open()->set_protocol_version(kProtocolVersion);
  v1::SessionResponse response;
  DJINN_RETURN_IF_ERROR(exchange(open, &response));
  session.session_id = response.opened().session_id();
  v1::SessionRequest request;
  request.mutable_lease()->set_virtual_device(0);
  DJINN_RETURN_IF_ERROR(exchange(request, &response));
  if (!response.has_granted()) {
    return absl::ResourceExhaustedError(response.ShortDebugString());
  }
  session.lease = std::move(*response.mutable_granted()->mutable_lease());
  return session;
}

v1::ControlRequest HelloOf(const WireSession& session) {
  v1::ControlRequest request;
  v1::ClientHello* const hello = request.mutable_hello();
  hello->set_protocol_version(kProtocolVersion);
  hello->set_session_id(session.session_id);
  hello->set_session_epoch(session.lease.session_epoch());
  hello->set_lease_token(session.lease.token());
  hello->set_worker_incarnation(session.lease.worker_incarnation());
  return request;
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::ifstream stream(file);
  std::string token;
  if (stream >> token) return token;
  return absl::NotFoundError(absl::StrCat("no token in ", file));
}

// An idle session with one lease. Its streams end with the process.
struct IdleSession {
  WireSession session;
  grpc::ClientContext control_context;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ControlRequest, v1::ControlResponse>>
      control;
};

absl::StatusOr<std::unique_ptr<IdleSession>> Open(
    const std::string& coordinator, const std::string& token,
    Channels* coordinator_channels, Channels* worker_channels) {
  auto idle = std::make_unique<IdleSession>();
  DJINN_ASSIGN_OR_RETURN(
      idle->session, OpenWireSession(coordinator, token, coordinator_channels));
  DJINN_ASSIGN_OR_RETURN(
      const std::shared_ptr<grpc::Channel> channel,
      worker_channels->Next(idle->session.lease.worker_address()));
  idle->control =
      v1::Execution::NewStub(channel)->Control(&idle->control_context);
  v1::ControlResponse welcome;
  if (idle->control->Write(HelloOf(idle->session)) &&
      idle->control->Read(&welcome)) {
    return idle;
  }
  return absl::UnavailableError("the worker refused a session");
}

absl::Status Run(const std::string& coordinator, const std::string& token_file,
                 int sessions) {
  DJINN_ASSIGN_OR_RETURN(const std::string token, ReadToken(token_file));
  Channels coordinator_channels(kChannels), worker_channels(kChannels);
  std::vector<std::unique_ptr<IdleSession>> open;
  for (int i = 0; i < sessions; ++i) {
    DJINN_ASSIGN_OR_RETURN(
        open.emplace_back(),
        Open(coordinator, token, &coordinator_channels, &worker_channels));
    if (i % kReportEvery == 0) std::cout << i << std::endl;
  }
  std::cout << sessions << std::endl;
  // The end of this process ends the streams.
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace djinn::bench

int main(int argc, char** argv) {
  int sessions = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &sessions) || sessions < 1) {
    std::cerr << "usage: idle_sessions_peer COORDINATOR TOKEN_FILE SESSIONS\n";
    return 2;
  }
  const absl::Status status = djinn::bench::Run(argv[1], argv[2], sessions);
  if (!status.ok()) std::cout << status << std::endl;
  // Thousands of streams need no orderly end.
  std::_Exit(status.ok() ? 0 : 1);
}
