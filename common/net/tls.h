// Encryption of connections: what protects a channel or a server, made from
// PEM files that are read again when they change, so that certificates can be
// renewed under running processes.
#ifndef COMMON_NET_TLS_H_
#define COMMON_NET_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"

namespace djinn {

// How often the files are looked at.
inline constexpr unsigned kTlsRefreshSeconds = 10;

// How the channels to one kind of peer are protected. Copies share a thread
// that watches the files.
class ChannelSecurity {
 public:
  // None: for peers on this host.
  ChannelSecurity() = default;

  // CheckChannelTls()'s errors; InvalidArgument (CONTRADICTION) for TLS
  // together with `insecure`, which allows peers on other hosts without
  // encryption. As long as somebody has what was made of files last, and they
  // hold the same, it counts as a copy of that.
  static absl::StatusOr<ChannelSecurity> Make(
      const ChannelTls& tls, bool insecure,
      unsigned refresh_seconds = kTlsRefreshSeconds);

  // The same for peers whose certificates name somebody else.
  ChannelSecurity WithServerName(const std::string& server_name) const;

  // Whether channels of the two may stand in for each other: by copies of the
  // same credentials, to peers of the same name; or by none, to the same hosts.
  bool IsSameAs(const ChannelSecurity& other) const;

  // True when what is sent is encrypted and its integrity protected.
  bool encrypted() const { return tls_.enabled(); }
  // Whether a peer may be on another host.
  bool allows_other_hosts() const { return encrypted() || insecure_; }
  const ChannelTls& tls() const { return tls_; }
  const std::shared_ptr<grpc::ChannelCredentials>& credentials() const {
    return credentials_;
  }

 private:
  ChannelTls tls_;
  bool insecure_ = false;
  std::shared_ptr<grpc::ChannelCredentials> credentials_ =
      grpc::InsecureChannelCredentials();
};

// Likewise for a server.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTls& tls, bool insecure,
    unsigned refresh_seconds = kTlsRefreshSeconds);

// Whether the connection that a call came by is encrypted and its integrity
// protected.
bool IsEncrypted(const grpc::ServerContextBase& context);

}  // namespace djinn

#endif  // COMMON_NET_TLS_H_
