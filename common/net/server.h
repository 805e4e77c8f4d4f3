// Starts a gRPC server with all that every Djinn process has: a checked
// address, common connection options, health v1, reflection and channelz.
// Connections over TCP reach gRPC once their first bytes have arrived, so that
// peers that say nothing delay no other (connection_gate.h), and there are few
// of peers that show no token (unproven_connections.h).
#ifndef COMMON_NET_SERVER_H_
#define COMMON_NET_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/call_metrics.h"
#include "common/net/connection_gate.h"
#include "common/net/socket.h"
#include "common/net/tls/tls.h"
#include "common/net/tls/tls_files.h"
#include "common/net/tls/tls_from_memory.h"
#include "common/net/unproven_connections.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace djinn {

struct ServerOptions {
  // Address "host:port" (port 0: any free one) or "unix:PATH".
  std::string address;
  // Allows an address that is not local without TLS; see CheckAddress().
  bool insecure = false;
  // The services, which must outlive the server.
  std::vector<grpc::Service*> services;
  // Names that health v1 serves besides "", such as "djinn.v1.Session".
  std::vector<std::string> health_services;
  // The initial state of all of them in grpc.health.v1.
  bool serving = true;
  // Returns whether a token is that of an operator, who may call channelz. Any
  // thread calls it. Null: channelz answers no caller.
  std::function<bool(absl::string_view token)> is_operator;
  ServerTls tls;
  // Takes the place of `tls`, and outlives the server. Null: `tls` counts.
  TlsFromMemory* tls_from_memory = nullptr;
  // Counter of calls, which outlives the server. Null: calls are not counted.
  CallMetrics* call_metrics = nullptr;
  // A socket that listens at `address` already, which outlives the server. The
  // server then binds nothing, and accepts from Accept() on. -1:
  // none.
  int listener = -1;
  // Answers the calls of all methods that `services` do not have. It must
  // outlive the server. Null: those calls are UNIMPLEMENTED.
  grpc::CallbackGenericService* other_calls = nullptr;
  // Connections of this server alone, of whose proofs the services tell
  // (NoteProven() in bearer.h). It outlives the server. Null: the server has
  // its own, and operators who call channelz are the only ones who prove
  // anything.
  UnprovenConnections* unproven = nullptr;
};

// A server that accepts calls until Shutdown(). Not thread-safe, SetServing()
// excepted.
class Server {
 public:
  // Starts a server. Errors: those of CheckAddress() and
  // MakeServerCredentials(); Unavailable (CANNOT_LISTEN) when binding fails.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // Cancels open calls at once.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Returns a target for clients: the bound port replaces 0.
  const std::string& address() const { return address_; }

  // Sets what health v1 says of all services; Watch calls hear of it. Any
  // thread may call it until the server is destroyed.
  void SetServing(bool serving);
  // Sets what health v1 says of one service; "" is the process as a whole.
  void SetServing(const std::string& service, bool serving);
  // Accepts from ServerOptions.listener from now on. Call it once, if there is
  // one: from other addresses Start() accepts by itself.
  void Accept();

  // Stops: health becomes NOT_SERVING, no further call is accepted, and open
  // calls have `grace` to end before they are cancelled. Returns when all
  // handlers have returned.
  void Shutdown(absl::Duration grace);

 private:
  Server();

  std::string address_;
  // Null when the options had one.
  std::unique_ptr<UnprovenConnections> own_unproven_;
  UnprovenConnections* unproven_ = nullptr;
  std::unique_ptr<grpc::Server> server_;
  // Listening sockets before the gate takes them. Empty for a Unix socket,
  // whose file says who may connect.
  std::vector<Socket> listeners_;
  // Both are null for a Unix socket.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ConnectionGate> gate_;
};

}  // namespace djinn

#endif  // COMMON_NET_SERVER_H_
