// Names the PEM files of one side of a TLS connection, and checks them.
#ifndef COMMON_NET_TLS_TLS_FILES_H_
#define COMMON_NET_TLS_TLS_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace djinn {

// Size of the largest accepted file. Bundles of authorities usually have a
// quarter of a megabyte.
inline constexpr size_t kMaxTlsFileBytes = size_t{4} << 20;

// Files of a server. Without a certificate there is no TLS.
struct ServerTls {
  std::string certificate_file;  // with its chain
  std::string private_key_file;
  // Authorities, one of which must have signed the client's certificate. Empty
  // if clients need no certificate.
  std::string client_ca_file;

  bool enabled() const { return !certificate_file.empty(); }
};

// Files of a dialling client. Without an authority there is no TLS.
struct ChannelTls {
  std::string ca_file;  // authorities that may sign the server's certificate
  // Certificate for servers that ask for one; both are set or neither.
  std::string certificate_file;
  std::string private_key_file;
  // Name that the server's certificate must have. Empty: the host in its
  // address, or "localhost" for a Unix socket.
  std::string server_name;

  bool enabled() const { return !ca_file.empty(); }
};

// Return FailedPrecondition (TLS_FILES; for a key also SECRET_FILE), which
// names the file and the fault: missing, unreadable, not PEM, a key that
// belongs to another certificate, or a certificate that is not valid now.
// Return the same error for fields that contradict each other, and OK without
// TLS.
absl::Status CheckServerTls(const ServerTls& tls);
absl::Status CheckChannelTls(const ChannelTls& tls);

}  // namespace djinn

#endif  // COMMON_NET_TLS_TLS_FILES_H_
