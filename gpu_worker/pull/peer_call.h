// Calls for values that other workers offer, whatever carries them.
#ifndef GPU_WORKER_PULL_PEER_CALL_H_
#define GPU_WORKER_PULL_PEER_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/execution.pb.h"
#include "djinn/v1/types.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// The header in which a worker's answer to a Pull call says at which socket
// workers on its machine find it, too.
inline constexpr char kPullSocketHeader[] = "djinn-pull-socket-bin";

// Where a fetch ends up. Called by one thread at a time.
class PullReceiver {
 public:
  virtual ~PullReceiver() = default;
  // The other worker is there, and the offer is not yet.
  virtual void OnWaiting() = 0;
  // The bytes at `offset`. Not OK: no more of them, please.
  virtual absl::Status OnBytes(uint64_t offset, absl::string_view bytes) = 0;
  // The last call, unless it was cancelled: all bytes came, or a buffer with
  // them that others hold as well, or the root error in their place, or an
  // error.
  virtual void OnComplete() = 0;
  virtual void OnShared(std::shared_ptr<Buffer> buffer) = 0;
  virtual void OnPoisoned(v1::ErrorDetail error) = 0;
  virtual void OnFailed(absl::Status why) = 0;
};

// The other worker did what the protocol does not allow.
absl::Status BrokenByPeer(absl::string_view what);

// One open call. One thread receives; Cancel() comes from any.
class PeerCall {
 public:
  virtual ~PeerCall() = default;
  // Tells the receiver of waiting and hands it the bytes, in their order.
  // Returns when all `size` came; with the root error that came in their place;
  // or with what went wrong.
  virtual absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
      uint64_t size, PullReceiver* receiver) = 0;
  // Makes Receive() return soon.
  virtual void Cancel() = 0;
};

// One whose messages are read one after the other.
class MessageCall : public PeerCall {
 public:
  absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
      uint64_t size, PullReceiver* receiver) final;

 private:
  // False: nothing follows.
  virtual bool Read(v1::PullResponse* response) = 0;
  // How the call ended, once Read() returned false.
  virtual absl::Status Finish() = 0;
  // Whether nobody could change the bytes on their way.
  virtual bool encrypted() const = 0;
};

class PeerConnector {
 public:
  virtual ~PeerConnector() = default;
  // Does not wait for the connection: a call to nowhere fails as it receives.
  virtual absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) = 0;
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_PEER_CALL_H_
