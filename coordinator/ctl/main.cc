// djinnctl: what operators see of a cluster, and the little that they change.
// `djinnctl --help` lists its commands.
//
// Exit status: 0 ok, 1 refused, 2 wrong command line, 3 unreachable.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/config/config_reader.h"
#include "common/error.h"
#include "common/net/channel_options.h"
#include "common/net/tls.h"
#include "common/net/tls_config.h"
#include "common/net/tls_probe.h"
#include "common/read_file.h"
#include "common/secret_file.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "coordinator/ctl/client.h"
#include "coordinator/ctl/command_line.h"
#include "coordinator/ctl/exit_status.h"
#include "coordinator/ctl/simulation.h"
#include "djinn/v1/admin.grpc.pb.h"
#include "scheduler/simulator/trace_file.h"

namespace djinn::ctl {
namespace {

// A recorded one may have 100,000 jobs.
constexpr size_t kMaxTraceBytes = size_t{128} << 20;

std::string FlagOrEnvironment(const std::string& flag, const char* variable,
                              const char* fallback) {
  if (!flag.empty()) return flag;
  const char* const value = std::getenv(variable);
  return value == nullptr ? fallback : value;
}

ChannelTls TlsOf(const Command& command) {
  ChannelTls tls = ChannelTlsFromEnvironment();
  const auto override = [&](const char* flag, std::string* value) {
    if (command.Has(flag)) *value = command.Flag(flag);
  };
  override("tls_ca_file", &tls.ca_file);
  override("tls_certificate_file", &tls.certificate_file);
  override("tls_private_key_file", &tls.private_key_file);
  override("tls_server_name", &tls.server_name);
  return tls;
}

void Write(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  // Who watches sees it now.
  std::fflush(stdout);
}

int Refuse(absl::string_view why) {
  std::fprintf(stderr, "djinnctl: %s\n", std::string(why).c_str());
  return kWrongCommandLine;
}

// Needs no coordinator. A trace that is wrong is a wrong command line.
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
      *trace, command.Flag("policy"),
      command.IsSet("preemption", /*fallback=*/true), command.output == "json");
  if (!text.ok()) return Refuse(text.status().message());
  Write(*text);
  return 0;
}

int Ask(const Command& command) {
  const std::string token_file = FlagOrEnvironment(
      command.Flag("token_file"), "DJINN_ADMIN_TOKEN_FILE", "");
  if (token_file.empty()) return Refuse("--token-file=FILE is required");
  const absl::StatusOr<std::string> token = ReadToken(token_file);
  if (!token.ok()) return Refuse(token.status().message());
  const absl::StatusOr<ChannelSecurity> security =
      ChannelSecurity::Make(TlsOf(command), command.IsSet("insecure"));
  if (!security.ok()) return Refuse(security.status().message());
  const std::string address = FlagOrEnvironment(
      command.Flag("coordinator"), "DJINN_COORDINATOR", "127.0.0.1:7070");
  const auto channel = MakeChannel(address, {*security, /*connection=*/0});
  if (!channel.ok()) return Refuse(channel.status().message());
  Client client(v1::Admin::NewStub(*channel), *token,
                {.print = Write,
                 .sleep = absl::SleepFor,
                 .clears = isatty(STDOUT_FILENO) != 0});
  const absl::Status status = client.Run(command);
  // It was not asked yet.
  if (absl::IsInvalidArgument(status) && ErrorReason(status).empty()) {
    return Refuse(status.message());
  }
  const absl::Status explained = ExplainTlsFailure(status, address, *security);
  if (!explained.ok()) {
    std::fprintf(stderr, "djinnctl: %s: %s\n",
                 absl::StatusCodeToString(explained.code()).c_str(),
                 absl::IsUnimplemented(explained)
                     ? "the coordinator is older than this and does not know "
                       "the call"
                     : std::string(explained.message()).c_str());
  }
  return ExitStatus(explained);
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Command> command = ParseCommand(arguments);
  if (!command.ok()) return Refuse(command.status().message());
  if (command->verb == "help") {
    Write(Usage());
    return 0;
  }
  if (command->verb == "simulate") return Simulate(*command);
  if (command->verb == "version") {
    Write(absl::StrCat("djinnctl     ", kVersion, "\n"));
    if (command->IsSet("client")) return 0;
  }
  return Ask(*command);
}

}  // namespace
}  // namespace djinn::ctl

int main(int argc, char** argv) {
  return djinn::ctl::Main({argv + 1, argv + argc});
}
