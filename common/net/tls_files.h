// Which PEM files a side of a TLS connection uses, and whether they are fit.
#ifndef COMMON_NET_TLS_FILES_H_
#define COMMON_NET_TLS_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace djinn {

// No file may be larger: bundles of authorities usually hold a quarter of a
// megabyte.
inline constexpr size_t kMaxTlsFileBytes = size_t{4} << 20;

// Of a server. No certificate: no TLS.
struct ServerTls {
  std::string certificate_file;  // with its chain
  std::string private_key_file;
  // Clients must show a certificate that one of these authorities signed.
  // Empty: clients need none.
  std::string client_ca_file;

  bool enabled() const { return !certificate_file.empty(); }
};

// Of whoever dials. No authority: no TLS.
struct ChannelTls {
  std::string ca_file;  // who may have signed the server's certificate
  // Shown to servers that ask; both or neither.
  std::string certificate_file;
  std::string private_key_file;
  // Whom the server's certificate must name; empty: the host in its address,
  // "localhost" for a Unix socket.
  std::string server_name;

  bool enabled() const { return !ca_file.empty(); }
};

// FailedPrecondition (TLS_FILES; for a key also SECRET_FILE) naming the file
// and what is wrong with it: missing, unreadable, not PEM, a key of another
// certificate, a certificate that is not valid now; or fields that do not go
// together. OK without TLS.
absl::Status CheckServerTls(const ServerTls& tls);
absl::Status CheckChannelTls(const ChannelTls& tls);

}  // namespace djinn

#endif  // COMMON_NET_TLS_FILES_H_
