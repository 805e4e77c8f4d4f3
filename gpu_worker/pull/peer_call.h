// Calls that fetch values from other workers, independent of the transport.
#ifndef GPU_WORKER_PULL_PEER_CALL_H_
#define GPU_WORKER_PULL_PEER_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "djinn/v1/pull.pb.h"
#include "djinn/v1/types.pb.h"
#include "djinn/v1/worker_registry.pb.h"
#include "gpu_worker/device/device.h"

namespace djinn::worker {

// The header in which a worker's answer to a Pull call names the socket at
// which workers on its machine reach it, too.
inline constexpr char kPullSocketHeader[] = "djinn-pull-socket-bin";

// The reason and the key of an error with which a worker names the address of
// the process that has the session.
inline constexpr char kRedirectReason[] = "EXECUTOR_REDIRECT";
inline constexpr char kRedirectAddress[] = "address";

// Receives the result of a fetch. One thread at a time calls it.
class PullReceiver {
 public:
  virtual ~PullReceiver() = default;
  // The other worker answers, but the offer is not there yet.
  virtual void OnWaiting() = 0;
  // Receives the bytes at `offset`. An error stops the fetch.
  virtual absl::Status OnBytes(uint64_t offset, absl::string_view bytes) = 0;
  // One of the following four is the last call, unless the fetch was cancelled.
  //
  // All bytes arrived.
  virtual void OnComplete() = 0;
  // All bytes are in `buffer`, which others hold as well.
  virtual void OnShared(std::shared_ptr<Buffer> buffer) = 0;
  // The offer holds a root error instead.
  virtual void OnPoisoned(v1::ErrorDetail error) = 0;
  // The fetch failed.
  virtual void OnFailed(absl::Status why) = 0;
};

// Returns the error for a peer that broke the protocol.
absl::Status BrokenByPeer(absl::string_view what);

// One open call. One thread receives; any thread may cancel.
class PeerCall {
 public:
  virtual ~PeerCall() = default;
  // Calls the receiver for waiting and for the bytes, in their order. Returns
  // when all `size` bytes arrived, with the root error that arrived in their
  // place, or with an error.
  virtual absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
      uint64_t size, PullReceiver* receiver) = 0;
  // Makes Receive() return soon.
  virtual void Cancel() = 0;
};

// A call whose messages are read one after the other.
class MessageCall : public PeerCall {
 public:
  absl::StatusOr<std::optional<v1::ErrorDetail>> Receive(
      uint64_t size, PullReceiver* receiver) final;

 private:
  // Reads the next message; returns false when none follows.
  virtual bool Read(v1::PullResponse* response) = 0;
  // Returns how the call ended, once Read() returned false.
  virtual absl::Status Finish() = 0;
  // Returns whether the transport protects the bytes from changes. Otherwise
  // the receiver checks their CRC.
  virtual bool encrypted() const = 0;
};

class PeerConnector {
 public:
  virtual ~PeerConnector() = default;
  // Opens a call. Does not wait for the connection: a call to an unreachable
  // peer fails as it receives.
  virtual absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) = 0;
  // Returns whether the connector finds a worker by its id alone, so that
  // Open() needs no address.
  virtual bool finds_workers() const { return false; }
};

}  // namespace djinn::worker

#endif  // GPU_WORKER_PULL_PEER_CALL_H_
