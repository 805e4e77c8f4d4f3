// Makes Pull calls over shared memory to workers on this machine, and over
// another transport to all others.
//
// A worker names its socket in its answers (kPullSocketHeader). From the next
// call on, this connector tries that socket. If the socket leads to no worker
// or to another one, calls use the other transport, and the connector does not
// try that worker again: the worker or its folder of sockets is on another
// machine. After an error that may pass, such as too many connections, it tries
// again after kPause. A call has a connection to itself, which then waits for
// the next call.
//
// Thread-safe.
#ifndef GPU_WORKER_PULL_SHARED_MEMORY_PEERS_H_
#define GPU_WORKER_PULL_SHARED_MEMORY_PEERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {

class SharedMemoryPeers : public PeerConnector {
 public:
  // The most peers remembered; beyond that, all are forgotten.
  static constexpr size_t kMaxPeers = 256;
  // The most idle connections to one peer.
  static constexpr size_t kMaxIdle = 4;

  // How long the connector avoids a worker after an error that may pass.
  static constexpr absl::Duration kPause = absl::Seconds(30);

  // How long an unused connection stays open. Each takes memory, and counts
  // against the other worker's limit of connections.
  static constexpr absl::Duration kIdleTime = absl::Minutes(1);

  // `clock` must outlive this.
  explicit SharedMemoryPeers(Clock* clock = Clock::Real());
  // No call may be open any more. Closes all connections together.
  ~SharedMemoryPeers() override;

  // Sets the other transport. Call it once, before the first call.
  void SetOther(std::unique_ptr<PeerConnector> other);
  // Notes the socket that the peer named.
  void Learn(const v1::Peer& peer, const std::string& socket);

  // Ends connections that have been idle for kIdleTime. The caller calls it
  // periodically. Only this side ends idle connections, because it knows that
  // no call is about to use them.
  void Tick();

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override;

 private:
  class Connection;
  class Call;
  using Connections = std::vector<std::unique_ptr<Connection>>;
  struct Idle {
    std::unique_ptr<Connection> connection;
    absl::Duration since;  // by the clock
  };
  struct Known {
    uint64_t incarnation = 0;
    std::string socket;
    // Until when the peer is not tried, by the clock.
    absl::Duration barred_until = -absl::InfiniteDuration();
    // The longest idle first.
    std::vector<Idle> idle;
  };

  // Takes the connections that have been idle since then, or longer.
  static void TakeIdle(absl::Duration since, Known* known, Connections* taken);
  // Forgets all peers. Returns their idle connections.
  Connections ForgetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the connections. Call it without the lock, because each peer may take
  // some time to answer. Tells all peers before it waits for any of them.
  static void End(Connections connections);

  // Returns null when no connection can be had.
  std::unique_ptr<Connection> ConnectTo(const v1::Peer& peer);
  void GiveBack(const v1::Peer& peer, std::unique_ptr<Connection> connection);
  void Refuse(const v1::Peer& peer, const absl::Status& why);

  Clock* const clock_;
  std::unique_ptr<PeerConnector> other_;
  Mutex mu_;
  // The peers by worker id.
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_SHARED_MEMORY_PEERS_H_
