#include "gpu_worker/pull/grpc_peers.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "common/net/bounded_call.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/tls_probe.h"
#include "common/status_macros.h"

namespace djinn::worker {
namespace {

constexpr char kMethod[] = "/djinn.v1.Execution/Pull";
// Connections kept open to workers that something was fetched from.
constexpr size_t kMaxChannels = 256;
// Calls that wait for their offers must not keep others from a connection.
constexpr int kMaxCallsPerChannel = kMaxConcurrentStreams / 2;

class GrpcPeerCall : public PeerCall {
 public:
  // `security` outlives the call.
  GrpcPeerCall(std::shared_ptr<grpc::Channel> channel, std::string address,
               const ChannelSecurity& security, const v1::PullRequest& request)
      : address_(std::move(address)),
        security_(security),
        call_(std::move(channel), kMethod) {
    // What goes wrong with it shows at the first read.
    (void)call_.WriteMessage(request);
  }

  bool Read(v1::PullResponse* response) override {
    const bool read = call_.ReadMessage(response, &invalid_);
    answered_ |= read;
    // Nobody reads on, so that it would never end by itself.
    if (!invalid_.ok()) call_.Cancel();
    return read;
  }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(call_.Finish());
    if (!invalid_.ok()) return invalid_;
    return answered_
               ? status
               : ExplainTlsFailure(std::move(status), address_, security_);
  }
  void Cancel() override { call_.Cancel(); }
  bool encrypted() const override { return security_.encrypted(); }

 private:
  const std::string address_;
  const ChannelSecurity& security_;
  bool answered_ = false;
  absl::Status invalid_;  // what came was no message
  BoundedCall call_;
};

class GrpcPeers : public PeerConnector {
 public:
  explicit GrpcPeers(ChannelSecurity security)
      : security_(std::move(security)) {}

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                           ChannelTo(peer.address()));
    return std::make_unique<GrpcPeerCall>(std::move(channel), peer.address(),
                                          security_, request);
  }

 private:
  // By address and number of the connection.
  using Channels = absl::flat_hash_map<std::pair<std::string, int>,
                                       std::shared_ptr<grpc::Channel>>;

  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(
      const std::string& address) {
    // Calls under way keep theirs; what nobody uses closes without the lock.
    Channels old;
    MutexLock lock(&mu_);
    for (int connection = 0;; ++connection) {
      const auto found = channels_.find({address, connection});
      if (found == channels_.end()) {
        DJINN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                               MakeChannel(address, {security_, connection}));
        if (channels_.size() >= kMaxChannels) old.swap(channels_);
        channels_[{address, connection}] = channel;
        return channel;
      }
      // Each of its calls holds it.
      if (found->second.use_count() <= kMaxCallsPerChannel) {
        return found->second;
      }
    }
  }

  const ChannelSecurity security_;
  Mutex mu_;
  Channels channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<PeerConnector> MakeGrpcPeers(ChannelSecurity security) {
  return std::make_unique<GrpcPeers>(std::move(security));
}

}  // namespace djinn::worker
