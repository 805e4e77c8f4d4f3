// A certificate authority for tests, with Ed25519 keys.
#ifndef COMMON_NET_TESTING_AUTHORITY_H_
#define COMMON_NET_TESTING_AUTHORITY_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/net/tls_files.h"
#include "openssl/evp.h"
#include "openssl/x509.h"

namespace djinn {

struct CertificateSpec {
  // As OpenSSL writes alternative names.
  std::string names = "DNS:localhost,IP:127.0.0.1";
  // Validity, from now.
  absl::Duration begin = -absl::Hours(1);
  absl::Duration end = absl::Hours(1);
};

// Writes PEM files into a folder of its own under testing::TempDir(); those of
// one name replace each other.
class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();

  const std::string& ca_file() const { return ca_file_; }

  // NAME.crt and NAME.key, made anew.
  ServerTls Issue(const std::string& name, const CertificateSpec& spec = {});

  // For a channel to servers of this authority that shows such a certificate.
  ChannelTls IssueForChannel(const std::string& name,
                             const CertificateSpec& spec = {});
  // Likewise without a certificate.
  ChannelTls Channel() const;

 private:
  std::string folder_;
  std::string ca_file_;
  EVP_PKEY* key_;
  X509* certificate_;
};

}  // namespace djinn

#endif  // COMMON_NET_TESTING_AUTHORITY_H_
