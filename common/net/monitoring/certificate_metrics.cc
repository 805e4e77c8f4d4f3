#include "common/net/monitoring/certificate_metrics.h"

#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/io/read_file.h"
#include "common/net/tls/tls_files.h"
#include "openssl/bio.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace djinn {

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path) {
  const auto unfit = [&path](absl::string_view why) {
    ERR_clear_error();
    return MakeError(absl::StatusCode::kFailedPrecondition, "TLS_FILES",
                     absl::StrCat(path, ": ", why));
  };
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTlsFileBytes);
  if (!text.ok()) return unfit(text.status().message());
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(
      BIO_new_mem_buf(text->data(), static_cast<int>(text->size())), BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free);
  if (certificate == nullptr) return unfit("holds no certificate in PEM form");
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return unfit("its certificate has no end");
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

MetricsSource CertificateMetrics(
    std::vector<std::pair<std::string, std::string>> files) {
  return [files = std::move(files)](Exposition* out) {
    for (const auto& [key, path] : files) {
      if (path.empty()) continue;
      out->Gauge("djinn_certificate_expiry_timestamp_seconds",
                 "Unix time after which a certificate of this process is "
                 "invalid; 0 when it cannot be read.",
                 static_cast<double>(absl::ToUnixSeconds(
                     CertificateExpiry(path).value_or(absl::UnixEpoch()))),
                 {{"key", key}});
    }
  };
}

}  // namespace djinn
