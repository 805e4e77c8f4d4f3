// Encrypts connections. Credentials of channels and servers are made from PEM
// files that are read again when they change, so that certificates can be
// renewed while processes run. What is unfit then is logged and not used.
#ifndef COMMON_NET_TLS_TLS_H_
#define COMMON_NET_TLS_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/tls/checked_tls_copies.h"
#include "common/net/tls/tls_files.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"

namespace djinn {

// Interval at which the files are checked for changes. New connections use
// changed files a second later.
inline constexpr unsigned kTlsRefreshSeconds = 5;

// The protection of channels to one kind of peer. Copies share a thread that
// watches the files.
class ChannelSecurity {
 public:
  // No protection, for peers on this host.
  ChannelSecurity() = default;

  // Makes credentials. Returns CheckChannelTls()'s errors, or InvalidArgument
  // (CONTRADICTION) for TLS together with `insecure`, which allows peers on
  // other hosts without encryption.
  //
  // The result counts as a copy of the credentials that were made last from the
  // same files, as long as those exist and the files have not changed.
  static absl::StatusOr<ChannelSecurity> Make(
      const ChannelTls& tls, bool insecure,
      unsigned refresh_seconds = kTlsRefreshSeconds);

  // Returns the same protection for peers whose certificates have another name.
  ChannelSecurity WithServerName(const std::string& server_name) const;

  // Returns whether channels of the two may replace each other: both have
  // copies of the same credentials for the same peer name, or neither has any
  // and they allow the same hosts.
  bool IsSameAs(const ChannelSecurity& other) const;

  // Returns whether sent bytes are encrypted and their integrity is protected.
  bool encrypted() const { return tls_.enabled(); }
  // Returns whether a peer may be on another host.
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

// Makes the credentials of a server, with the errors of CheckServerTls() and
// CONTRADICTION as above.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTls& tls, bool insecure,
    unsigned refresh_seconds = kTlsRefreshSeconds);

// Returns the texts that such a server uses now: those of the files when they
// were fit last. Returns CheckServerTls()'s errors only if they never were.
// `tls` must be enabled.
absl::StatusOr<TlsTexts> FitServerTexts(
    const ServerTls& tls, unsigned refresh_seconds = kTlsRefreshSeconds);

// Returns whether the connection of a call is encrypted and its integrity
// protected.
bool IsEncrypted(const grpc::ServerContextBase& context);

}  // namespace djinn

#endif  // COMMON_NET_TLS_TLS_H_
