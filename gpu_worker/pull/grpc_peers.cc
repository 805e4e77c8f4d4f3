#include "gpu_worker/pull/grpc_peers.h"

#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/bounded_call.h"
#include "common/net/grpc_status.h"
#include "common/net/tls/tls_probe.h"

namespace djinn::worker {
namespace {

constexpr char kMethod[] = "/djinn.v1.Execution/Pull";
class GrpcPeerCall : public MessageCall {
 public:
  // All arguments but the channel must outlive the call.
  GrpcPeerCall(std::shared_ptr<grpc::Channel> channel, v1::Peer peer,
               const ChannelSecurity& security, ChannelPool* channels,
               const PullSocketListener& listener,
               const v1::PullRequest& request)
      : peer_(std::move(peer)),
        security_(security),
        channels_(channels),
        listener_(listener),
        channel_(std::move(channel)),
        call_(channel_, kMethod) {
    // The first read reports a failure of the write.
    (void)call_.WriteMessage(request);
  }

  bool Read(v1::PullResponse* response) override {
    const bool read = call_.ReadMessage(response, &invalid_);
    if (read && !answered_ && listener_ != nullptr) {
      const std::string socket = call_.PeerHeader(kPullSocketHeader);
      if (!socket.empty()) listener_(peer_, socket);
    }
    answered_ |= read;
    // No one reads any further, so the call would never end by itself.
    if (!invalid_.ok()) call_.Cancel();
    return read;
  }
  absl::Status Finish() override {
    absl::Status status = FromGrpcStatus(call_.Finish());
    // Other calls on the channel go on while they can.
    if (absl::IsUnavailable(status) && ErrorReason(status).empty()) {
      channels_->Distrust(*channel_);
    }
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
  ChannelPool* const channels_;
  const PullSocketListener& listener_;
  const std::shared_ptr<grpc::Channel> channel_;
  bool answered_ = false;
  absl::Status invalid_;  // set when bytes arrived that are not a message
  BoundedCall call_;
};

class GrpcPeers : public PeerConnector {
 public:
  GrpcPeers(ChannelSecurity security, ChannelPool* channels,
            PullSocketListener listener)
      : security_(std::move(security)),
        channels_(channels),
        listener_(std::move(listener)) {}

  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override {
    DJINN_ASSIGN_OR_RETURN(
        std::shared_ptr<grpc::Channel> channel,
        channels_->Take(peer.address(), {security_, /*connection=*/0}));
    return std::make_unique<GrpcPeerCall>(std::move(channel), peer, security_,
                                          channels_, listener_, request);
  }

 private:
  const ChannelSecurity security_;
  ChannelPool* const channels_;
  const PullSocketListener listener_;
};

}  // namespace

void CollectChannels(const ChannelPool::Counts& counts, Exposition* out) {
  const auto count = [&](const char* event, uint64_t value) {
    out->Counter("djinn_worker_channel_events_total",
                 "Events of connections to other workers.",
                 static_cast<double>(value), {{"event", event}});
  };
  count("created", counts.created);
  count("reused", counts.reused);
  count("closed", counts.closed);
  count("failed", counts.failed);
}

std::unique_ptr<PeerConnector> MakeGrpcPeers(ChannelSecurity security,
                                             ChannelPool* channels,
                                             PullSocketListener listener) {
  return std::make_unique<GrpcPeers>(std::move(security), channels,
                                     std::move(listener));
}

}  // namespace djinn::worker
