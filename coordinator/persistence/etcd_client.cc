#include "coordinator/persistence/etcd_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/net/channel_options.h"
#include "grpcpp/client_context.h"

namespace djinn::coordinator {
namespace {

// etcd's servers end connections on which pings come more often than every five
// seconds. A channel pings after kPingAfter of its silence.
constexpr absl::Duration kSilence = absl::Seconds(20);
// How long a call waits for the connection before it fails.
constexpr absl::Duration kConnectPatience = absl::Milliseconds(250);

absl::Status ToStatus(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const auto error = [&](absl::StatusCode code, const char* reason) {
    return MakeError(
        code, reason,
        absl::StrCat("etcd at ", address, ": ", status.error_message()),
        {{"endpoint", address}});
  };
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
      return error(absl::StatusCode::kUnavailable, "STORE_UNREACHABLE");
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return error(absl::StatusCode::kResourceExhausted, "STORE_FULL");
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED:
    // The servers demand a user, or allow less than etcd does by default.
    case grpc::StatusCode::INVALID_ARGUMENT:
      return error(absl::StatusCode::kFailedPrecondition, "STORE_UNUSABLE");
    default:
      return error(absl::StatusCode::kUnavailable, "STORE_IO");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Make(
    const EtcdClientOptions& options) {
  auto client = absl::WrapUnique(new EtcdClient(options.timeout));
  ChannelOptions channel_options;
  channel_options.security = options.security;
  channel_options.silence = kSilence;
  for (const std::string& endpoint : options.endpoints) {
    DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                           MakeChannel(endpoint, channel_options));
    client->servers_.push_back({endpoint, channel,
                                etcdserverpb::KV::NewStub(channel),
                                etcdserverpb::Lease::NewStub(channel)});
  }
  return client;
}

absl::Status EtcdClient::Call(int tries, const CallFunction& call) {
  absl::Status last;
  for (int i = 0; i < tries; ++i) {
    size_t index;
    {
      MutexLock lock(&mu_);
      index = preferred_;
    }
    Server& server = servers_[index];
    // gRPC advances a connection at once only while a thread waits for it. A
    // call at a server that was away would fail without waiting.
    server.channel->WaitForConnected(
        std::chrono::system_clock::now() +
        absl::ToChronoMilliseconds(std::min(timeout_, kConnectPatience)));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMilliseconds(timeout_));
    last = ToStatus(call(server, &context), server.address);
    if (!absl::IsUnavailable(last)) return last;
    MutexLock lock(&mu_);
    // Another thread may have gone on already.
    if (preferred_ == index) preferred_ = (index + 1) % servers_.size();
  }
  return last;
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request) {
  etcdserverpb::RangeResponse response;
  DJINN_RETURN_IF_ERROR(Call(static_cast<int>(servers_.size()),
                             [&](Server& server, grpc::ClientContext* context) {
                               response.Clear();
                               return server.kv->Range(context, request,
                                                       &response);
                             }));
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(
    const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  DJINN_RETURN_IF_ERROR(
      Call(1, [&](Server& server, grpc::ClientContext* context) {
        return server.kv->Txn(context, request, &response);
      }));
  return response;
}

absl::StatusOr<int64_t> EtcdClient::GrantLease(absl::Duration ttl) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(std::max<int64_t>(
      1, absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1)))));
  etcdserverpb::LeaseGrantResponse response;
  // A lease of which the answer was lost has no keys and ends by itself.
  DJINN_RETURN_IF_ERROR(Call(static_cast<int>(servers_.size()),
                             [&](Server& server, grpc::ClientContext* context) {
                               response.Clear();
                               return server.lease->LeaseGrant(context, request,
                                                               &response);
                             }));
  return response.id();
}

absl::StatusOr<bool> EtcdClient::ExtendLease(int64_t id) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(id);
  etcdserverpb::LeaseKeepAliveResponse response;
  DJINN_RETURN_IF_ERROR(Call(
      static_cast<int>(servers_.size()),
      [&](Server& server, grpc::ClientContext* context) {
        const auto stream = server.lease->LeaseKeepAlive(context);
        const bool answered = stream->Write(request) && stream->WritesDone() &&
                              stream->Read(&response);
        // A stream that was answered has served its purpose.
        if (answered) context->TryCancel();
        const grpc::Status status = stream->Finish();
        if (answered) return grpc::Status::OK;
        return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                          "the stream ended without an answer")
                           : status;
      }));
  return response.ttl() > 0;
}

absl::Status EtcdClient::RevokeLease(int64_t id) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(id);
  return Call(static_cast<int>(servers_.size()),
              [&](Server& server, grpc::ClientContext* context) {
                etcdserverpb::LeaseRevokeResponse response;
                const grpc::Status status =
                    server.lease->LeaseRevoke(context, request, &response);
                return status.error_code() == grpc::StatusCode::NOT_FOUND
                           ? grpc::Status::OK
                           : status;
              });
}

}  // namespace djinn::coordinator
