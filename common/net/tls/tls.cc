#include "common/net/tls/tls.h"

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/hash/hash.h"
#include "common/io/read_file.h"
#include "common/net/tls/checked_tls_copies.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace djinn {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

// Returns CONTRADICTION if `insecure` is set together with `file`, which is the
// file that turns TLS on, or is empty.
absl::Status CheckTogether(const std::string& file, bool insecure) {
  if (file.empty() || !insecure) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, "CONTRADICTION",
                   absl::StrCat("insecure contradicts TLS, which is set up "
                                "with ",
                                file, ": leave one of them out"));
}

// The kind of check of a server's files.
constexpr char kServer[] = "server";

TlsPaths PathsOf(const ServerTls& tls) {
  return {tls.private_key_file, tls.certificate_file, tls.client_ca_file};
}

// Interval at which gRPC looks at the copies of the files.
constexpr unsigned kCopySeconds = 1;

// Returns what gives gRPC the files, as long as they pass the check.
template <typename Tls>
absl::StatusOr<std::shared_ptr<FileWatcherCertificateProvider>> MakeProvider(
    TlsPaths files, const Tls& tls, absl::Status (*check)(const Tls&),
    const char* kind, unsigned refresh_seconds) {
  DJINN_ASSIGN_OR_RETURN(files,
                         CheckedTlsCopies(
                             files, kind, [tls, check] { return check(tls); },
                             absl::Seconds(refresh_seconds)));
  return std::make_shared<FileWatcherCertificateProvider>(
      files.private_key, files.certificate, files.authorities, kCopySeconds);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ChannelTls& tls, unsigned refresh_seconds) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  DJINN_ASSIGN_OR_RETURN(
      auto provider,
      MakeProvider({tls.private_key_file, tls.certificate_file, tls.ca_file},
                   tls, &CheckChannelTls, "channel", refresh_seconds));
  options.set_certificate_provider(std::move(provider));
  options.watch_root_certs();
  if (!tls.certificate_file.empty()) options.watch_identity_key_cert_pairs();
  // The defaults verify the chain and the host name.
  return grpc::experimental::TlsCredentials(options);
}

// Returns a digest of the files without secrets; empty if they cannot be read.
std::string DigestOf(const ChannelTls& tls) {
  std::string digests;
  for (const std::string& file :
       {tls.ca_file, tls.certificate_file, tls.private_key_file}) {
    if (file.empty()) continue;
    const absl::StatusOr<std::string> text = ReadFile(file, kMaxTlsFileBytes);
    if (!text.ok()) return "";
    digests += Sha256(*text);
  }
  return digests;
}

// Keeps the credentials made last from each set of files, while they are in
// use.
//
// Thread-safe.
class CredentialsMadeLast {
 public:
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> For(
      const ChannelTls& tls, unsigned refresh_seconds) {
    const std::string digest = DigestOf(tls);
    MutexLock lock(&mu_);
    absl::erase_if(made_, [](const auto& made) {
      return made.second.credentials.expired();
    });
    Made& made = made_[{tls.ca_file, tls.certificate_file, tls.private_key_file,
                        refresh_seconds}];
    std::shared_ptr<grpc::ChannelCredentials> credentials =
        digest == made.digest && !digest.empty() ? made.credentials.lock()
                                                 : nullptr;
    if (credentials != nullptr) return credentials;
    DJINN_ASSIGN_OR_RETURN(credentials, MakeCredentials(tls, refresh_seconds));
    made = {digest, credentials};
    return credentials;
  }

 private:
  struct Made {
    std::string digest;
    std::weak_ptr<grpc::ChannelCredentials> credentials;
  };
  using Files = std::tuple<std::string, std::string, std::string, unsigned>;

  Mutex mu_;
  absl::flat_hash_map<Files, Made> made_ ABSL_GUARDED_BY(mu_);
};

CredentialsMadeLast& MadeLast() {
  static auto* const made = new CredentialsMadeLast;
  return *made;
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
  DJINN_ASSIGN_OR_RETURN(security.credentials_,
                         MadeLast().For(tls, refresh_seconds));
  return security;
}

bool ChannelSecurity::IsSameAs(const ChannelSecurity& other) const {
  if (encrypted() != other.encrypted()) return false;
  if (!encrypted()) return insecure_ == other.insecure_;
  return credentials_ == other.credentials_ &&
         tls_.server_name == other.tls_.server_name;
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
  DJINN_ASSIGN_OR_RETURN(
      auto provider, MakeProvider(PathsOf(tls), tls, &CheckServerTls, kServer,
                                  refresh_seconds));
  grpc::experimental::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_identity_key_cert_pairs();
  // Clients may have any address, so only the signer of their certificate is
  // checked.
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  if (!tls.client_ca_file.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<TlsTexts> FitServerTexts(const ServerTls& tls,
                                        unsigned refresh_seconds) {
  return CheckedTlsTexts(
      PathsOf(tls), kServer, [tls] { return CheckServerTls(tls); },
      absl::Seconds(refresh_seconds));
}

bool IsEncrypted(const grpc::ServerContextBase& context) {
  const auto levels =
      context.auth_context()->FindPropertyValues("security_level");
  return !levels.empty() && levels.front() == "TSI_PRIVACY_AND_INTEGRITY";
}

}  // namespace djinn
