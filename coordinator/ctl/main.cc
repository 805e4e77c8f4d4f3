// djinnctl shows a cluster to operators and changes the little that they may.
// `djinnctl --help` lists its commands.
//
// Exit status: 0 ok, 1 refused, 2 wrong command line, 3 unreachable.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/config/config_reader.h"
#include "common/io/read_file.h"
#include "common/io/secret_file.h"
#include "common/net/coordinator_channels.h"
#include "common/net/tls/tls.h"
#include "common/net/tls/tls_probe.h"
#include "coordinator/console/console.h"
#include "coordinator/ctl/client.h"
#include "coordinator/ctl/command_line.h"
#include "coordinator/ctl/simulation.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::ctl {
namespace {

// A recorded trace may have 100,000 jobs.
constexpr size_t kMaxTraceBytes = size_t{128} << 20;

void Write(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  // Flushes, so that a pipe shows it at once.
  std::fflush(stdout);
}

int Refuse(absl::string_view why) {
  std::fprintf(stderr, "djinnctl: %s\n", std::string(why).c_str());
  return kWrongCommandLine;
}

// Needs no coordinator. A wrong trace is a wrong command line.
int Simulate(const Command& command) {
  const std::string& file = command.name;
  const absl::StatusOr<std::string> text_of_trace =
      ReadFile(file, kMaxTraceBytes);
  if (!text_of_trace.ok()) {
    return Refuse("cannot read " + file + ": " +
                  std::string(text_of_trace.status().message()));
  }
  const absl::StatusOr<scheduler::Trace> trace =
      scheduler::ReadTrace(ConfigReader::FromText(*text_of_trace, file));
  if (!trace.ok()) return Refuse(trace.status().message());
  const absl::StatusOr<std::string> text = ShowSimulation(
      *trace, command.policy, command.preemption, command.output == "json");
  if (!text.ok()) return Refuse(text.status().message());
  Write(*text);
  return 0;
}

// Returns the signals that end the console. It blocks them, for the threads
// that start later as well, so that sigwait() gets them.
sigset_t BlockEnds() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

// Serves the console until one of `ends` arrives. It follows the leader by
// itself.
absl::Status RunConsole(const Command& command, CoordinatorChannels* channels,
                        const std::string& token, const sigset_t& ends) {
  console::Observer::Options observer;
  observer.interval = command.interval;
  console::ServerOptions server;
  server.address = command.listen;
  server.access_code = RandomSource::Real()->HexId();
  server.interval = command.interval;
  const std::string code = server.access_code;
  DJINN_ASSIGN_OR_RETURN(
      const auto console,
      console::Console::Start(console::MakeGrpcAdminReader(channels, token),
                              Clock::Real(), observer, std::move(server)));
  Write(absl::StrCat("console on http://", console->address(),
                     "/\naccess code ", code, "\n"));
  int signal = 0;
  sigwait(&ends, &signal);
  return absl::OkStatus();
}

int Ask(const Command& command) {
  if (command.token_file.empty()) {
    return Refuse("--token-file=FILE is required");
  }
  const absl::StatusOr<std::string> token = ReadToken(command.token_file);
  if (!token.ok()) return Refuse(token.status().message());
  const absl::StatusOr<ChannelSecurity> security =
      ChannelSecurity::Make(command.tls, command.insecure);
  if (!security.ok()) return Refuse(security.status().message());
  const bool console = command.verb == "console";
  if (console) {
    const absl::Status listen = console::CheckConsoleAddress(command.listen);
    if (!listen.ok()) {
      return Refuse(absl::StrCat("--listen: ", listen.message()));
    }
  }
  // gRPC starts threads with the first channel.
  const sigset_t ends = console ? BlockEnds() : sigset_t{};
  const auto channels =
      CoordinatorChannels::Make(command.coordinator, *security);
  if (!channels.ok()) return Refuse(channels.status().message());
  std::string address = (*channels)->current().address;
  absl::Status status;
  if (console) {
    status = RunConsole(command, channels->get(), *token, ends);
  } else {
    // Goes on to other addresses until the leader answers.
    bool next = true;
    while (next) {
      const CoordinatorChannels::Target target = (*channels)->current();
      address = target.address;
      status = RunCommand(command, target.channel, *token,
                          {.print = Write,
                           .sleep = absl::SleepFor,
                           .clears = isatty(STDOUT_FILENO) != 0});
      next = absl::IsUnavailable(status) &&
             (*channels)->NoteFailure(target, status);
    }
  }
  // The coordinator was not called.
  if (absl::IsInvalidArgument(status) && ErrorReason(status).empty()) {
    return Refuse(status.message());
  }
  const absl::Status explained = ExplainTlsFailure(status, address, *security);
  if (!explained.ok()) {
    std::fprintf(stderr, "djinnctl: %s: %s\n",
                 absl::StatusCodeToString(explained.code()).c_str(),
                 std::string(explained.message()).c_str());
  }
  return ExitStatus(explained);
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  if (!command.ok()) return Refuse(command.status().message());
  if (command->verb == "help") {
    Write(command->help);
    return 0;
  }
  if (command->verb == "simulate") return Simulate(*command);
  if (command->verb == "version") {
    Write(absl::StrCat("djinnctl     ", kVersion, "\n"));
    if (command->client) return 0;
  }
  return Ask(*command);
}

}  // namespace
}  // namespace djinn::ctl

int main(int argc, char** argv) {
  return djinn::ctl::Main({argv + 1, argv + argc});
}
