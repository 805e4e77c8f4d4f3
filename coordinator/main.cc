// djinn-coordinator --config=FILE
//
// Runs a coordinator until SIGTERM or SIGINT; with `etcd` in its configuration,
// as one of several. See config.h for the file and
// common/daemon for flags and exit status.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "common/net/tls/tls.h"
#include "coordinator/config/config.h"
#include "coordinator/persistence/etcd_store.h"
#include "coordinator/server/coordinator.h"
#include "coordinator/server/replica.h"

namespace djinn::coordinator {
namespace {

absl::StatusOr<Config> ReadConfigAgain() {
  return ReadConfig(ConfigReader::FromFile(ConfigPath()));
}

absl::StatusOr<std::unique_ptr<Store>> MakeSharedStore(
    const Config::Etcd& etcd) {
  EtcdOptions options;
  options.prefix = etcd.prefix;
  options.client.endpoints = etcd.endpoints;
  DJINN_ASSIGN_OR_RETURN(options.client.security,
                         ChannelSecurity::Make(etcd.tls, etcd.insecure));
  // A renewal of the lease makes two calls, which are tried at every server. It
  // must end within the lease even if none answers.
  const auto tries = static_cast<int64_t>(2 * (etcd.endpoints.size() + 1));
  options.client.timeout =
      std::max(absl::Milliseconds(250), etcd.lease / tries);
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                         EtcdStore::Make(options, RandomSource::Real()));
  return store;
}

int Main(int argc, char** argv) {
  Config config;
  // With etcd, a replica runs the coordinator.
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Replica> replica;
  Daemon daemon;
  daemon.role = "coordinator";
  daemon.configure = [&](ConfigReader reader) -> absl::Status {
    DJINN_ASSIGN_OR_RETURN(config, ReadConfig(std::move(reader)));
    return absl::OkStatus();
  };
  daemon.reload = [&] {
    if (replica != nullptr) return replica->Reload();
    coordinator->reloader()->ReloadAtSignal();
  };
  daemon.start = [&]() -> absl::StatusOr<std::string> {
    if (config.etcd.enabled()) {
      DJINN_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                             MakeSharedStore(config.etcd));
      DJINN_ASSIGN_OR_RETURN(
          replica,
          Replica::Start(std::move(config), std::move(store), Clock::Real(),
                         RandomSource::Real(), &ReadConfigAgain));
      return replica->address();
    }
    DJINN_ASSIGN_OR_RETURN(
        coordinator,
        Coordinator::Start(std::move(config), Clock::Real(),
                           RandomSource::Real(), &ReadConfigAgain));
    return coordinator->address();
  };
  daemon.monitoring_address = [&] {
    return replica != nullptr ? replica->monitoring_address()
                              : coordinator->monitoring_address();
  };
  daemon.stop = [&] {
    if (replica != nullptr) replica->Stop();
    if (coordinator != nullptr) coordinator->Stop();
  };
  return RunDaemon(daemon, argc, argv);
}

}  // namespace
}  // namespace djinn::coordinator

int main(int argc, char** argv) { return djinn::coordinator::Main(argc, argv); }
