// Starts a gRPC server the way every Djinn process does: checked address,
// common connection options, health v1, reflection and channelz.
#ifndef COMMON_NET_SERVER_H_
#define COMMON_NET_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/call_metrics.h"
#include "common/net/tls_files.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace djinn {

struct ServerOptions {
  // "host:port" (port 0: any free one) or "unix:PATH".
  std::string address;
  // Allows an address that is not local without TLS; see CheckAddress().
  bool insecure = false;
  // Must outlive the server.
  std::vector<grpc::Service*> services;
  // Names that health v1 serves besides "", such as "djinn.v1.Session".
  std::vector<std::string> health_services;
  // Serves channelz to those who have it; to nobody when empty.
  std::string admin_token;
  ServerTls tls;
  // Where calls are counted; outlives the server. Null: nowhere.
  CallMetrics* call_metrics = nullptr;
};

// A server that accepts calls until Shutdown(). Not thread-safe.
class Server {
 public:
  // The errors of CheckAddress() and MakeServerCredentials(); Unavailable
  // (CANNOT_LISTEN) when binding fails.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // Cancels what is left at once.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // A target by which clients reach it: the bound port instead of 0.
  const std::string& address() const { return address_; }

  // Health turns NOT_SERVING, no call is accepted any more, open ones have
  // `grace` to end and are then cancelled. Returns when all handlers returned.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace djinn

#endif  // COMMON_NET_SERVER_H_
