// Calls the servers of an etcd cluster.
//
// One server is asked as long as it answers; after a failure the next one in
// the list is. Every call has a deadline. Calls that change nothing are tried
// once at each server. Calls that change something are tried once: a server
// that failed may have applied the change.
//
// Thread-safe. Every call may return Unavailable (STORE_UNREACHABLE) when no
// answer came in time, FailedPrecondition (STORE_UNUSABLE) when the server
// refuses the caller, ResourceExhausted (STORE_FULL), or Unavailable (STORE_IO)
// for other failures of the server.
#ifndef COORDINATOR_PERSISTENCE_ETCD_CLIENT_H_
#define COORDINATOR_PERSISTENCE_ETCD_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/net/tls/tls.h"
#include "etcd/etcd.grpc.pb.h"
#include "etcd/etcd.pb.h"
#include "grpcpp/channel.h"

namespace djinn::coordinator {

struct EtcdClientOptions {
  // Servers as "host:port" or "unix:PATH"; at least one.
  std::vector<std::string> endpoints;
  ChannelSecurity security;
  // The deadline of each try.
  absl::Duration timeout = absl::Seconds(2);
};

class EtcdClient {
 public:
  // Connects to nothing yet. Returns MakeChannel()'s errors.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Make(
      const EtcdClientOptions& options);

  absl::StatusOr<etcdserverpb::RangeResponse> Range(
      const etcdserverpb::RangeRequest& request);
  absl::StatusOr<etcdserverpb::TxnResponse> Txn(
      const etcdserverpb::TxnRequest& request);
  // Returns the id of a new lease. Its time is `ttl`, rounded up to seconds.
  absl::StatusOr<int64_t> GrantLease(absl::Duration ttl);
  // Extends a lease. Returns false when it has ended.
  absl::StatusOr<bool> ExtendLease(int64_t id);
  // Ends a lease; one that has ended is no error.
  absl::Status RevokeLease(int64_t id);

 private:
  struct Server {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<etcdserverpb::KV::Stub> kv;
    std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  };
  using CallFunction =
      std::function<grpc::Status(Server& server, grpc::ClientContext* context)>;

  explicit EtcdClient(absl::Duration timeout) : timeout_(timeout) {}
  absl::Status Call(int tries, const CallFunction& call);

  const absl::Duration timeout_;
  // Fixed after Make().
  std::vector<Server> servers_;

  Mutex mu_;
  // Index of the server to ask first.
  size_t preferred_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace djinn::coordinator

#endif  // COORDINATOR_PERSISTENCE_ETCD_CLIENT_H_
