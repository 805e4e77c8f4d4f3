#include "common/net/tls/tls_from_memory.h"

#include <string>
#include <utility>

namespace djinn {
namespace {

// gRPC's C++ interface reads texts once. Its C interface asks for them with
// each handshake.
class Credentials : public grpc::ServerCredentials {
 public:
  // Takes over the reference.
  explicit Credentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }
  // Djinn checks the tokens of calls itself.
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/)
      override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

TlsFromMemory::TlsFromMemory(TlsTexts texts) : texts_(std::move(texts)) {}

void TlsFromMemory::Replace(TlsTexts texts) {
  MutexLock lock(&mu_);
  if (texts == texts_) return;
  texts_ = std::move(texts);
  fetched_ = false;
}

std::shared_ptr<grpc::ServerCredentials> TlsFromMemory::MakeCredentials() {
  MutexLock lock(&mu_);
  const auto request =
      texts_.authorities.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  // The credentials take over the options.
  return std::make_shared<Credentials>(
      grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              request, &TlsFromMemory::Fetch, this)));
}

grpc_ssl_certificate_config_reload_status TlsFromMemory::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto* const tls = static_cast<TlsFromMemory*>(self);
  MutexLock lock(&tls->mu_);
  if (std::exchange(tls->fetched_, true)) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  const TlsTexts& texts = tls->texts_;
  const grpc_ssl_pem_key_cert_pair pair = {texts.private_key.c_str(),
                                           texts.certificate.c_str()};
  // gRPC demands authorities. Where clients show no certificate, it uses none.
  const std::string& authorities =
      texts.authorities.empty() ? texts.certificate : texts.authorities;
  *config =
      grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace djinn
