#include "tests/bench/wire_session.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/bearer.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/protocol_version.h"
#include "common/status_macros.h"

namespace djinn::bench {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Channels::Next(
    const std::string& address) {
  if (channels_.size() < count_) {
    ChannelOptions options;
    options.connection = static_cast<int>(channels_.size());
    DJINN_ASSIGN_OR_RETURN(channels_.emplace_back(),
                           MakeChannel(address, options));
  }
  return channels_[next_++ % count_];
}

absl::StatusOr<WireSession> OpenWireSession(const std::string& coordinator,
                                            const std::string& token,
                                            Channels* channels) {
  WireSession session;
  session.context = std::make_unique<grpc::ClientContext>();
  PutBearer(token, session.context.get());
  DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         channels->Next(coordinator));
  session.attach = v1::Session::NewStub(channel)->Attach(session.context.get());
  const auto exchange = [&](const v1::SessionRequest& request,
                            v1::SessionResponse* response) {
    if (session.attach->Write(request) && session.attach->Read(response)) {
      return absl::OkStatus();
    }
    const absl::Status end = FromGrpcStatus(session.attach->Finish());
    return end.ok() ? absl::UnavailableError("a stream ended") : end;
  };
  v1::SessionRequest open;
  open.mutable_open()->set_protocol_version(kProtocolVersion);
  v1::SessionResponse response;
  DJINN_RETURN_IF_ERROR(exchange(open, &response));
  session.session_id = response.opened().session_id();
  v1::SessionRequest request;
  request.mutable_lease()->set_virtual_device(0);
  DJINN_RETURN_IF_ERROR(exchange(request, &response));
  if (!response.has_granted()) {
    return absl::ResourceExhaustedError(response.ShortDebugString());
  }
  session.lease = std::move(*response.mutable_granted()->mutable_lease());
  return session;
}

v1::ControlRequest HelloOf(const WireSession& session) {
  v1::ControlRequest request;
  v1::ClientHello* const hello = request.mutable_hello();
  hello->set_protocol_version(kProtocolVersion);
  hello->set_session_id(session.session_id);
  hello->set_session_epoch(session.lease.session_epoch());
  hello->set_lease_token(session.lease.token());
  hello->set_worker_incarnation(session.lease.worker_incarnation());
  return request;
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  std::ifstream stream(file);
  std::string token;
  if (stream >> token) return token;
  return absl::NotFoundError(absl::StrCat("no token in ", file));
}

}  // namespace djinn::bench
