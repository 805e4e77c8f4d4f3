// The life of a server process: flags, configuration, signals, the file that
// tells its address, and its end by SIGTERM, SIGINT or the lifeline.
#ifndef COMMON_DAEMON_DAEMON_H_
#define COMMON_DAEMON_DAEMON_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/config_reader.h"

namespace djinn {

// What is special about a program; called in this order, by one thread.
struct Daemon {
  // In logs; the program is called djinn-ROLE.
  std::string role;
  std::function<absl::Status(ConfigReader)> configure;
  // Returns the address it serves on.
  std::function<absl::StatusOr<std::string>()> start;
  // Where it answers over HTTP, or empty. After start().
  std::function<std::string()> monitoring_address;
  // On SIGHUP, by the same thread. Null: SIGHUP ends the process.
  std::function<void()> reload;
  std::function<void()> stop;
};

// The file of --config.
std::string ConfigPath();

// Runs it. Returns the exit status: 0 after an orderly stop or --validate, 1
// when it cannot start, 2 for a wrong command line or configuration. Exits with
// 1 when stopping takes 20 seconds.
int RunDaemon(const Daemon& daemon, int argc, char** argv);

}  // namespace djinn

#endif  // COMMON_DAEMON_DAEMON_H_
