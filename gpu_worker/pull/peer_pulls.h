// Fetches values for sessions of this worker from other workers, or from other
// sessions here.
//
// PeerPulls learns other workers from the coordinator only. It takes an address
// from nowhere else but from such a worker itself, which names the address of
// the process that has the session (EXECUTOR_REDIRECT). It waits for a worker
// that it does not know yet: a lease there may be younger than the
// coordinator's last message. Each fetch
// from another worker has a thread of its own, of which a session has at most
// one; a fetch from this worker copies nothing.
//
// PeerPulls knows no transport: grpc_peers.h, shared_memory_peers.h and tests
// implement PeerConnector.
#ifndef GPU_WORKER_PULL_PEER_PULLS_H_
#define GPU_WORKER_PULL_PEER_PULLS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "djinn/v1/pull.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_call.h"

namespace djinn::worker {

class PullSource {
 public:
  virtual ~PullSource() = default;
  // Begins to fetch. The receiver may be called before this returns, and for a
  // while after Cancel().
  virtual void Start(const std::string& worker_id,
                     const v1::PullRequest& request,
                     std::shared_ptr<PullReceiver> receiver) = 0;
  virtual void Cancel(const PullReceiver* receiver) = 0;
  // Returns whether the coordinator has named the worker.
  virtual bool Knows(const std::string& worker_id) const = 0;
};

class PeerPulls : public PullSource {
 public:
  // `offers`, this worker's own, must outlive this.
  PeerPulls(std::string worker_id, uint64_t incarnation, OfferTable* offers)
      : worker_id_(std::move(worker_id)),
        incarnation_(incarnation),
        offers_(*offers) {}
  ~PeerPulls() override { Shutdown(); }

  // Call it before the first Start(); the connector must outlive the last one.
  // Without a connector, nothing is fetched from other workers.
  void SetConnector(PeerConnector* connector) { connector_ = connector; }
  // Adds and replaces peers; forgets none.
  void Learn(const v1::DesiredState& desired);

  void Start(const std::string& worker_id, const v1::PullRequest& request,
             std::shared_ptr<PullReceiver> receiver) override;
  void Cancel(const PullReceiver* receiver) override;
  bool Knows(const std::string& worker_id) const override;

  // Cancels everything and waits for the threads. Call it once.
  void Shutdown();

 private:
  // The most peers remembered; beyond that none is added.
  static constexpr size_t kMaxPeers = 1 << 16;

  class LocalClaim;
  struct Fetch {
    std::string worker_id;
    v1::PullRequest request;
    // Set until the fetch has ended. The thread alone changes it, under mu_.
    std::shared_ptr<PullReceiver> receiver;
    // Guarded by mu_.
    bool cancelled = false;
    bool over = false;
    PeerCall* call = nullptr;
    std::thread thread;
  };

  void StartHere(const v1::PullRequest& request,
                 std::shared_ptr<PullReceiver> receiver);
  void Run(Fetch* fetch);
  // Waits until the peer is known, and returns it. Returns Cancelled when the
  // fetch was cancelled.
  absl::StatusOr<v1::Peer> Find(const Fetch& fetch);
  // Hands everything that arrives to the receiver, to the end. After an error
  // the receiver has not been called with an outcome.
  absl::Status Receive(Fetch* fetch);
  // Like Receive(), over one call to the peer, except that it returns the
  // outcome as PeerCall::Receive() does.
  absl::StatusOr<std::optional<v1::ErrorDetail>> ReceiveFrom(
      const v1::Peer& peer, Fetch* fetch);
  // Joins the threads that are done.
  void Reap();

  const std::string worker_id_;
  const uint64_t incarnation_;
  OfferTable& offers_;
  PeerConnector* connector_ = nullptr;
  mutable Mutex mu_;
  CondVar changed_;
  absl::flat_hash_map<std::string, v1::Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::list<std::unique_ptr<Fetch>> fetches_ ABSL_GUARDED_BY(mu_);
  // Claims on this worker's own offers.
  absl::flat_hash_map<const PullReceiver*, std::shared_ptr<LocalClaim>> claims_
      ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_PEER_PULLS_H_
