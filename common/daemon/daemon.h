// Runs a server process: its flags, configuration, signals and address file. A
// service manager learns when it serves (service_manager.h).
// The process ends by SIGTERM, SIGINT or the end of its lifeline. While it
// starts, each of them ends it at once; SIGHUP waits until it has started.
#ifndef COMMON_DAEMON_DAEMON_H_
#define COMMON_DAEMON_DAEMON_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config_reader.h"

namespace djinn {

// The functions of one program. RunDaemon() calls them in this order, in one
// thread.
struct Daemon {
  // Role in logs. The program is called djinn-ROLE.
  std::string role;
  std::function<absl::Status(ConfigReader)> configure;
  // Returns the address that it serves on.
  std::function<absl::StatusOr<std::string>()> start;
  // Returns the address of its HTTP server, or an empty string. Called after
  // start().
  std::function<std::string()> monitoring_address;
  // RunDaemon() calls it on SIGHUP. If it is null, SIGHUP ends the process.
  std::function<void()> reload;
  // Called on SIGTERM, before stop(), in a process that still serves. It may
  // take as long as the configuration says. The function that it gets waits,
  // and returns true when another signal, or the end of the lifeline, says that
  // the process must stop at once. Optional.
  using WaitFunction = std::function<bool(absl::Duration)>;
  std::function<void(const WaitFunction&)> drain;
  std::function<void()> stop;
  // Returns whether the process ends because of a fault, and so with a failing
  // status. Called from any thread. Optional.
  std::function<bool()> failed;
};

// Returns the file of --config.
std::string ConfigPath();

// Runs `daemon` and returns the exit status: 0 after an orderly stop or
// --validate or --print-config, 1 when it cannot start or has failed, 2 for a
// wrong command line or configuration. Exits with 0 when it must end while it
// starts, and with 1 when stopping, after draining, takes 20 seconds.
int RunDaemon(const Daemon& daemon, int argc, char** argv);

}  // namespace djinn

#endif  // COMMON_DAEMON_DAEMON_H_
