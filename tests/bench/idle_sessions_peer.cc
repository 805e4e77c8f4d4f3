// What idle sessions cost: opens many on a coordinator and a worker that run
// already, each with a lease and a stream to the worker, and says how far it
// is. Its own process, because it speaks the wire itself.
//
//   idle_sessions_peer COORDINATOR TOKEN_FILE SESSIONS
//
// Prints how many are open now and then, and once all are; then waits for the
// end of its input.
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"
#include "djinn/v1/execution.grpc.pb.h"
#include "djinn/v1/session.grpc.pb.h"

namespace djinn::bench {
namespace {

constexpr int kChannels = 16;
constexpr int kReportEvery = 100;

// One session with one lease, and nothing to do. Streams end with the process.
struct IdleSession {
  grpc::ClientContext attach_context, control_context;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      attach;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ControlRequest, v1::ControlResponse>>
      control;
};

template <typename Stream, typename Request, typename Response>
absl::Status Exchange(Stream* stream, const Request& request,
                      Response* response) {
  if (stream->Write(request) && stream->Read(response)) return absl::OkStatus();
  const absl::Status end = FromGrpcStatus(stream->Finish());
  return end.ok() ? absl::UnavailableError("a stream ended") : end;
}

class Channels {
 public:
  // The stub of the channel whose turn it is.
  template <typename Service>
  absl::StatusOr<std::unique_ptr<typename Service::Stub>> Next(
      const std::string& address) {
    if (channels_.size() < kChannels) {
      ChannelOptions options;
      options.connection = static_cast<int>(channels_.size());
      DJINN_ASSIGN_OR_RETURN(channels_.emplace_back(),
                             MakeChannel(address, options));
    }
    return Service::NewStub(channels_[next_++ % kChannels]);
  }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  size_t next_ = 0;
};

absl::StatusOr<std::unique_ptr<IdleSession>> Open(
    const std::string& coordinator, const std::string& token,
    Channels* coordinator_channels, Channels* worker_channels) {
  auto session = std::make_unique<IdleSession>();
  PutBearer(token, &session->attach_context);
  DJINN_ASSIGN_OR_RETURN(const auto session_stub,
                         coordinator_channels->Next<v1::Session>(coordinator));
  session->attach = session_stub->Attach(&session->attach_context);
  v1::SessionRequest open;
  *open.mutable_open()->mutable_protocol() = OwnProtocolWindow();
  v1::SessionResponse response;
  DJINN_RETURN_IF_ERROR(Exchange(session->attach.get(), open, &response));
  const std::string session_id = response.opened().session_id();
  v1::SessionRequest request;
  request.mutable_lease()->set_virtual_device(0);
  DJINN_RETURN_IF_ERROR(Exchange(session->attach.get(), request, &response));
  if (!response.has_granted()) {
    return absl::ResourceExhaustedError(response.ShortDebugString());
  }
  const v1::Lease& lease = response.granted().lease();
  DJINN_ASSIGN_OR_RETURN(
      const auto execution_stub,
      worker_channels->Next<v1::Execution>(lease.worker_address()));
  session->control = execution_stub->Control(&session->control_context);
  v1::ControlRequest hello;
  *hello.mutable_hello()->mutable_protocol() = OwnProtocolWindow();
  hello.mutable_hello()->set_session_id(session_id);
  hello.mutable_hello()->set_session_epoch(lease.session_epoch());
  hello.mutable_hello()->set_lease_token(lease.token());
  hello.mutable_hello()->set_worker_incarnation(lease.worker_incarnation());
  v1::ControlResponse welcome;
  DJINN_RETURN_IF_ERROR(Exchange(session->control.get(), hello, &welcome));
  return session;
}

absl::Status Run(const std::string& coordinator, const std::string& token_file,
                 int sessions) {
  std::ifstream file(token_file);
  std::string token;
  if (!(file >> token)) return absl::NotFoundError("no token in " + token_file);
  Channels coordinator_channels, worker_channels;
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
