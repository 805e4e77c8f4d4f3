// djinn-coordinator --config=FILE
//
// Runs a coordinator until SIGTERM or SIGINT. See config.h for the file and
// common/daemon for flags and exit status.
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "common/log/log.h"
#include "coordinator/config/config.h"
#include "coordinator/server/coordinator.h"

namespace djinn::coordinator {
namespace {

int Main(int argc, char** argv) {
  Config config;
  std::unique_ptr<Coordinator> coordinator;
  Daemon daemon;
  daemon.role = "coordinator";
  daemon.configure = [&](ConfigReader reader) -> absl::Status {
    DJINN_ASSIGN_OR_RETURN(config, ReadConfig(std::move(reader)));
    return absl::OkStatus();
  };
  daemon.reload = [&] {
    const absl::Status status = coordinator->reloader()->Reload().status();
    log::Info("audit", {{"who", "SIGHUP"},
                        {"what", "ReloadConfig"},
                        {"result", status.ok() ? "OK" : ErrorReason(status)}});
  };
  daemon.start = [&]() -> absl::StatusOr<std::string> {
    DJINN_ASSIGN_OR_RETURN(
        coordinator,
        Coordinator::Start(
            std::move(config), Clock::Real(), RandomSource::Real(),
            [] { return ReadConfig(ConfigReader::FromFile(ConfigPath())); }));
    return coordinator->address();
  };
  daemon.monitoring_address = [&] { return coordinator->monitoring_address(); };
  daemon.stop = [&] { coordinator->Stop(); };
  return RunDaemon(daemon, argc, argv);
}

}  // namespace
}  // namespace djinn::coordinator

int main(int argc, char** argv) { return djinn::coordinator::Main(argc, argv); }
