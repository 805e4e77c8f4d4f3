#include "common/net/tls.h"

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace djinn {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

// `file` is the one that turns TLS on; empty without.
absl::Status CheckTogether(const std::string& file, bool insecure) {
  if (file.empty() || !insecure) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, "CONTRADICTION",
                   absl::StrCat("insecure contradicts TLS, which is set up "
                                "with ",
                                file, ": leave one of them out"));
}

}  // namespace

absl::StatusOr<ChannelSecurity> ChannelSecurity::Make(
    const ChannelTls& tls, bool insecure, unsigned refresh_seconds) {
  DJINN_RETURN_IF_ERROR(CheckTogether(tls.ca_file, insecure));
  DJINN_RETURN_IF_ERROR(CheckChannelTls(tls));
  ChannelSecurity security;
  security.insecure_ = insecure;
  security.tls_ = tls;
  if (!tls.enabled()) return security;
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<FileWatcherCertificateProvider>(
          tls.private_key_file, tls.certificate_file, tls.ca_file,
          refresh_seconds));
  options.watch_root_certs();
  if (!tls.certificate_file.empty()) options.watch_identity_key_cert_pairs();
  // Verifies chain and host name unless told otherwise.
  security.credentials_ = grpc::experimental::TlsCredentials(options);
  return security;
}

ChannelSecurity ChannelSecurity::WithServerName(
    const std::string& server_name) const {
  ChannelSecurity security = *this;
  security.tls_.server_name = server_name;
  return security;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const ServerTls& tls, bool insecure, unsigned refresh_seconds) {
  DJINN_RETURN_IF_ERROR(CheckTogether(tls.certificate_file, insecure));
  DJINN_RETURN_IF_ERROR(CheckServerTls(tls));
  if (!tls.enabled()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(
          tls.private_key_file, tls.certificate_file, tls.client_ca_file,
          refresh_seconds));
  options.watch_identity_key_cert_pairs();
  // Clients come from anywhere: their certificate's signer is what counts.
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  if (!tls.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

bool IsEncrypted(const grpc::ServerContextBase& context) {
  const auto levels =
      context.auth_context()->FindPropertyValues("security_level");
  return !levels.empty() && levels.front() == "TSI_PRIVACY_AND_INTEGRITY";
}

}  // namespace djinn
