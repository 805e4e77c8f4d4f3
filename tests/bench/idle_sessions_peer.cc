// What idle sessions cost: opens many on a coordinator and a worker that run
// already, each with a lease and a stream to the worker, and says how far it
// is. Its own process, because it speaks the wire itself.
//
//   idle_sessions_peer COORDINATOR TOKEN_FILE SESSIONS
//
// Prints how many are open now and then, and once all are; then waits for the
// end of its input.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/status_macros.h"
#include "tests/bench/wire_session.h"

namespace djinn::bench {
namespace {

constexpr int kChannels = 16;
constexpr int kReportEvery = 20;

// One session with one lease, and nothing to do. Streams end with the process.
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
