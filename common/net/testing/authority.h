// A certificate authority for tests, with Ed25519 keys.
#ifndef COMMON_NET_TESTING_AUTHORITY_H_
#define COMMON_NET_TESTING_AUTHORITY_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/net/tls/tls_files.h"
#include "openssl/evp.h"
#include "openssl/x509.h"

namespace djinn {

struct CertificateSpec {
  // Alternative names in OpenSSL's syntax.
  std::string names = "DNS:localhost,IP:127.0.0.1";
  // Validity from now.
  absl::Duration begin = -absl::Hours(1);
  absl::Duration end = absl::Hours(1);
};

// Issues certificates as PEM files in a folder of its own under
// testing::TempDir(). Files of one name replace each other.
class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();

  const std::string& ca_file() const { return ca_file_; }

  // Makes new files NAME.crt and NAME.key.
  ServerTls Issue(const std::string& name, const CertificateSpec& spec = {});

  // Makes a certificate for a channel to servers of this authority.
  ChannelTls IssueForChannel(const std::string& name,
                             const CertificateSpec& spec = {});
  // Returns the settings of a channel without a certificate.
  ChannelTls Channel() const;

 private:
  std::string folder_;
  std::string ca_file_;
  EVP_PKEY* key_;
  X509* certificate_;
};

}  // namespace djinn

#endif  // COMMON_NET_TESTING_AUTHORITY_H_
