// Runs one of several coordinators that share a store, of which one leads.
//
// The process follows until it is elected. A follower listens at the same
// addresses as the leader does, names the leader to everybody who calls, and
// keeps no state of the cluster. An elected process restores the state from the
// store and serves as a Coordinator. When its lease ends, or another process
// writes to the store, it ends all streams, forgets the state and follows
// again. What runs on workers goes on meanwhile.
#ifndef COORDINATOR_SERVER_REPLICA_H_
#define COORDINATOR_SERVER_REPLICA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/net/monitoring/monitoring_port.h"
#include "common/net/monitoring/readiness.h"
#include "common/net/server.h"
#include "common/net/unproven_connections.h"
#include "coordinator/config/config.h"
#include "coordinator/config/operators.h"
#include "coordinator/persistence/election.h"
#include "coordinator/persistence/store.h"
#include "coordinator/server/coordinator.h"
#include "grpcpp/generic/async_generic_service.h"

namespace djinn::coordinator {

class Replica {
 public:
  // Starts to follow, on the configured addresses, and to stand for election.
  // Serves until Stop(). The store need not answer yet. `clock` and `random`
  // must outlive the replica. `read_config` reads the configuration again, when
  // the process is elected and for Reload(). Returns the errors of
  // Server::Start() and MonitoringServer::Start().
  static absl::StatusOr<std::unique_ptr<Replica>> Start(
      Config config, std::unique_ptr<Store> store, Clock* clock,
      RandomSource* random, Coordinator::ReadConfigFunction read_config);

  // Does what Stop() does.
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Return the addresses, which do not change when the process is elected.
  const std::string& address() const { return address_; }
  const std::string& monitoring_address() const { return monitoring_address_; }
  // Returns what this process knows of the leadership.
  Election::View view();

  // Reads the configuration again, and writes the audit line. A leader does
  // what ConfigReloader does. A follower admits the operators of the new one;
  // its other settings count when it is elected.
  void Reload();
  // Ends the leadership, if there is one, so that another process is elected at
  // once. Then ends the servers.
  void Stop();

 private:
  // Serves calls while the process follows. Members end in reverse order.
  struct Follower {
    Follower(const Config& config, std::function<std::string()> leader);

    Credentials credentials;
    UnprovenConnections unproven;
    std::unique_ptr<grpc::CallbackGenericService> service;
    std::unique_ptr<Server> server;
    std::unique_ptr<Readiness> readiness;
    std::unique_ptr<MonitoringPort> monitoring;
  };

  Replica(Config config, std::unique_ptr<Store> store, Clock* clock,
          RandomSource* random, Coordinator::ReadConfigFunction read_config);

  void Run();
  // Follows or leads as `view` says.
  void Obey(const Election::View& view)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);
  absl::Status Follow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);
  absl::Status Lead(uint64_t term) ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);
  // Replaces the configuration by what the file has, and returns
  // ConfigChanges(). Returns FailedPrecondition (BAD_CONFIG), and replaces
  // nothing, when the file is wrong.
  absl::StatusOr<std::string> ReadConfigAgain()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);
  // Reads the file for another role, because it may have changed since. Writes
  // an audit line if it has. A wrong file leaves the last configuration.
  void TakeConfig() ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);
  absl::Status StartMonitoring(Follower* follower)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(roles_mu_);

  // Set by Start().
  std::string address_;
  std::string monitoring_address_;
  const std::unique_ptr<Store> store_;
  Clock* const clock_;
  RandomSource* const random_;
  const Coordinator::ReadConfigFunction read_config_;
  // Held while the process changes its role, which may take a second. No
  // server's thread takes it.
  Mutex roles_mu_;
  // The configuration that was read last, with the ports in use.
  Config config_ ABSL_GUARDED_BY(roles_mu_);
  std::unique_ptr<Follower> follower_ ABSL_GUARDED_BY(roles_mu_);
  std::unique_ptr<Coordinator> leader_ ABSL_GUARDED_BY(roles_mu_);
  // The term in which `leader_` serves.
  uint64_t term_ ABSL_GUARDED_BY(roles_mu_) = 0;

  Mutex mu_;
  // Made when the address is known, and not replaced. Other threads read the
  // pointer under the lock, because followers answer before that.
  std::unique_ptr<Election> election_;
  CondVar changed_;
  bool stepped_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Why the process could not lead although it was elected; empty otherwise.
  std::string failure_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_SERVER_REPLICA_H_
