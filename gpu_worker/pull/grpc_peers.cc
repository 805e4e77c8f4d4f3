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

class GrpcPeerCall : public MessageCall {
 public:
  // `security` and `listener` outlive the call.
  GrpcPeerCall(std::shared_ptr<grpc::Channel> channel, v1::Peer peer,
               const ChannelSecurity& security,
               const PullSocketListener& listener,
               const v1::PullRequest& request)
      : peer_(std::move(peer)),
        security_(security),
        listener_(listener),
        call_(std::move(channel), kMethod) {
    // What goes wrong with it shows at the first read.
    (void)call_.WriteMessage(request);
  }

  bool Read(v1::PullResponse* response) override {
    const bool read = call_.ReadMessage(response, &invalid_);
    if (read && !answered_ && listener_ != nullptr) {
      const std::string socket = call_.PeerHeader(kPullSocketHeader);
      if (!socket.empty()) listener_(peer_, socket);
    }
    answered_ |= read;
    // Nobody reads on, so that it would never end by itself.
    if (!invalid_.ok()) call_.Cancel();
    return read;
  }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(call_.Finish());
    if (!invalid_.ok()) return invalid_;
    return answered_ ? status
                     : ExplainTlsFailure(std::move(status), peer_.address(),
                                         security_);
  }
  void Cancel() override { call_.Cancel(); }
  bool encrypted() const override { return security_.encrypted(); }

 private:
  const v1::Peer peer_;
  const ChannelSecurity& security_;
  const PullSocketListener& listener_;
  bool answered_ = false;
  absl::Status invalid_;  // what came was no message
  BoundedCall call_;
};

class GrpcPeers : public PeerConnector {
 public:
  GrpcPeers(ChannelSecurity security, PullSocketListener listener)
      : security_(std::move(security)), listener_(std::move(listener)) {}

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override {
    DJINN_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                           ChannelTo(peer.address()));
    return std::make_unique<GrpcPeerCall>(std::move(channel), peer, security_,
                                          listener_, request);
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
  const PullSocketListener listener_;
  Mutex mu_;
  Channels channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<PeerConnector> MakeGrpcPeers(ChannelSecurity security,
                                             PullSocketListener listener) {
  return std::make_unique<GrpcPeers>(std::move(security), std::move(listener));
}

}  // namespace djinn::worker
