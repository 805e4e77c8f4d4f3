// Serves with TLS from texts that are replaced while the server runs, for
// processes that may not open files.
#ifndef COMMON_NET_TLS_TLS_FROM_MEMORY_H_
#define COMMON_NET_TLS_TLS_FROM_MEMORY_H_

#include <memory>

#include "common/base/mutex.h"
#include "common/net/tls/checked_tls_copies.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"

namespace djinn {

// The certificate of one server, which it must outlive. Thread-safe.
class TlsFromMemory {
 public:
  // Takes texts that are fit (tls_files.h). With authorities, clients must show
  // a certificate that one of them has signed.
  explicit TlsFromMemory(TlsTexts texts);
  TlsFromMemory(const TlsFromMemory&) = delete;
  TlsFromMemory& operator=(const TlsFromMemory&) = delete;

  // Sets what new connections use; open ones stay. Has authorities if and only
  // if the texts before have. gRPC goes on with those before if it cannot use
  // these.
  void Replace(TlsTexts texts);

  // Makes the credentials of the server. Call it once.
  std::shared_ptr<grpc::ServerCredentials> MakeCredentials();

 private:
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  Mutex mu_;
  TlsTexts texts_ ABSL_GUARDED_BY(mu_);
  // Whether gRPC has fetched the texts.
  bool fetched_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace djinn

#endif  // COMMON_NET_TLS_TLS_FROM_MEMORY_H_
