#include "common/net/tls/tls_files.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/io/read_file.h"
#include "common/io/secret_file.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace djinn {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

absl::Status Unfit(absl::string_view message) {
  ERR_clear_error();
  return MakeError(absl::StatusCode::kFailedPrecondition, "TLS_FILES", message);
}

// Refuses a key that needs a passphrase, rather than ask for it at a terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

std::string TextOf(const ASN1_TIME* time) {
  const Bio text(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(text.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// Reads the file's first certificate.
absl::Status ReadCertificate(const std::string& path,
                             Certificate* certificate) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTlsFileBytes);
  if (!text.ok()) {
    return Unfit(
        absl::StrCat("cannot read ", path, ": ", text.status().message()));
  }
  const Bio file(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  certificate->reset(
      PEM_read_bio_X509(file.get(), nullptr, NoPassphrase, nullptr));
  if (*certificate != nullptr) return absl::OkStatus();
  return Unfit(absl::StrCat(path, " holds no certificate in PEM form"));
}

// Checks this side's certificate: it must be valid now, and the key must be its
// own.
absl::Status CheckIdentity(const std::string& certificate_file,
                           const std::string& private_key_file) {
  Certificate certificate;
  DJINN_RETURN_IF_ERROR(ReadCertificate(certificate_file, &certificate));
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(begin) > 0) {
    return Unfit(absl::StrCat("the certificate in ", certificate_file,
                              " is not valid before ", TextOf(begin)));
  }
  if (X509_cmp_current_time(end) < 0) {
    return Unfit(absl::StrCat("the certificate in ", certificate_file,
                              " expired at ", TextOf(end)));
  }
  DJINN_RETURN_IF_ERROR(CheckSecretFile(private_key_file));
  const Bio file(BIO_new_file(private_key_file.c_str(), "r"));
  const Key key(
      PEM_read_bio_PrivateKey(file.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Unfit(absl::StrCat(private_key_file,
                              " holds no private key in PEM form that needs "
                              "no passphrase"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Unfit(absl::StrCat("the private key in ", private_key_file,
                              " is not that of the certificate in ",
                              certificate_file));
  }
  return absl::OkStatus();
}

absl::Status CheckAuthorities(const std::string& path) {
  Certificate first;
  return ReadCertificate(path, &first);
}

}  // namespace

absl::Status CheckServerTls(const ServerTls& tls) {
  if (tls.certificate_file.empty() != tls.private_key_file.empty()) {
    return Unfit("certificate_file and private_key_file go together");
  }
  if (!tls.enabled()) {
    return tls.client_ca_file.empty()
               ? absl::OkStatus()
               : Unfit("client_ca_file needs a certificate_file");
  }
  DJINN_RETURN_IF_ERROR(
      CheckIdentity(tls.certificate_file, tls.private_key_file));
  return tls.client_ca_file.empty() ? absl::OkStatus()
                                    : CheckAuthorities(tls.client_ca_file);
}

absl::Status CheckChannelTls(const ChannelTls& tls) {
  if (tls.certificate_file.empty() != tls.private_key_file.empty()) {
    return Unfit("certificate_file and private_key_file go together");
  }
  if (!tls.enabled()) {
    return tls.certificate_file.empty() && tls.server_name.empty()
               ? absl::OkStatus()
               : Unfit("certificate_file and server_name need a ca_file");
  }
  DJINN_RETURN_IF_ERROR(CheckAuthorities(tls.ca_file));
  return tls.certificate_file.empty()
             ? absl::OkStatus()
             : CheckIdentity(tls.certificate_file, tls.private_key_file);
}

}  // namespace djinn
