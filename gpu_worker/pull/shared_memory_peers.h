// Pull calls over shared memory to workers on this machine, and over another
// transport to all others.
//
// A worker says in its answers at which socket it is found (kPullSocketHeader);
// what it has said is tried from the next call on. Where nobody is found there,
// or somebody else, the other transport goes on as it did, and that worker is
// not tried again: its machine is another one, or only its sockets are. After
// what may pass, as too many connections, it is, kPause later. A call has a
// connection to itself, which then waits for the next one.
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
  // Peers remembered; beyond that all are learned anew.
  static constexpr size_t kMaxPeers = 256;
  // Connections to one peer that wait for a call.
  static constexpr size_t kMaxIdle = 4;

  // How long a worker is not tried that could not be reached for now.
  static constexpr absl::Duration kPause = absl::Seconds(30);

  // Connections that nobody used for that long end: each takes memory, and one
  // of those that the other worker may have.
  static constexpr absl::Duration kIdleTime = absl::Minutes(1);

  // `clock` outlives this.
  explicit SharedMemoryPeers(Clock* clock = Clock::Real());
  // No call is open any more. Connections say goodbye together.
  ~SharedMemoryPeers() override;

  // Once, before the first call.
  void SetOther(std::unique_ptr<PeerConnector> other);
  // The peer says that it is found there.
  void Learn(const v1::Peer& peer, const std::string& socket);

  // Ends connections that are idle for kIdleTime. To be called now and then.
  // Only this end does so: it knows that no call is about to use them.
  void Tick();

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override;

 private:
  class Connection;
  class Call;
  using Connections = std::vector<std::unique_ptr<Connection>>;
  struct Idle {
    std::unique_ptr<Connection> connection;
    absl::Duration since;  // of the clock
  };
  struct Known {
    uint64_t incarnation = 0;
    std::string socket;
    // Not tried before then, of the clock.
    absl::Duration barred_until = -absl::InfiniteDuration();
    // The longest idle first.
    std::vector<Idle> idle;
  };

  // Takes those that are idle since then, or for longer.
  static void TakeIdle(absl::Duration since, Known* known, Connections* taken);
  // Forgets all. Returns the connections that waited.
  Connections ForgetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Each may take its time to say goodbye, so that this is called without the
  // lock: all say it before one is waited for.
  static void End(Connections connections);

  // Null where there is none to be had.
  std::unique_ptr<Connection> ConnectTo(const v1::Peer& peer);
  void GiveBack(const v1::Peer& peer, std::unique_ptr<Connection> connection);
  void Refuse(const v1::Peer& peer, const absl::Status& why);

  Clock* const clock_;
  std::unique_ptr<PeerConnector> other_;
  Mutex mu_;
  // By worker.
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_SHARED_MEMORY_PEERS_H_
