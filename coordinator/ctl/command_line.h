// Parses and checks the command line of djinnctl, and defines its exit status.
#ifndef COORDINATOR_CTL_COMMAND_LINE_H_
#define COORDINATOR_CTL_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/tls/tls_files.h"

namespace djinn::ctl {

// A command: VERB [KIND [NAME [WORD...]]] [FLAGS]. Flags may stand anywhere,
// with dashes or underscores in their names; kinds are singular or plural.
struct Command {
  // "help" stands for --help.
  std::string verb;
  std::string help;
  // Singular: "worker".
  std::string kind;
  // Name of the object, or of a file.
  std::string name;
  // KEY=VALUE of `quota set`, the resources of `quota unset`.
  std::vector<std::string> words;
  // "table", "wide", "json", "yaml" or "dot".
  std::string output = "table";

  // The connection, from flags or the environment.
  std::string coordinator = "127.0.0.1:7070";
  std::string token_file;
  ChannelTls tls;
  bool insecure = false;

  // Assumptions of `explain placement`; `simulate` has a policy, too.
  std::string policy, size, phase, session;
  bool preemption = true;
  // Destination and virtual device of `migrate`.
  std::string to;
  std::optional<uint32_t> device;
  bool drain = false;
  // True for a `quota set` that only computes.
  bool dry_run = false;
  absl::Duration interval = absl::Seconds(2);
  // Number of outputs of `watch`; 0 stands for no end.
  int count = 0;
  // Further sources of `bundle`.
  std::vector<std::string> configs, logs, monitoring;
  // True for a `bundle` that may replace a file.
  bool force = false;
  // True for `version` without a coordinator.
  bool client = false;
  // Address of the page of `console`.
  std::string listen = "127.0.0.1:7090";
};

// `arguments` are without the program's name. InvalidArgument names the
// mistake.
absl::StatusOr<Command> ParseCommand(std::vector<std::string> arguments);

inline constexpr int kRefused = 1;
inline constexpr int kWrongCommandLine = 2;
inline constexpr int kUnreachable = 3;

// Returns 0 for OK, kRefused for a coordinator's answer, kUnreachable where
// none answered.
int ExitStatus(const absl::Status& status);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_COMMAND_LINE_H_
