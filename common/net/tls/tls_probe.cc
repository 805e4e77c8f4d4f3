#include "common/net/tls/tls_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/error.h"
#include "openssl/err.h"
#include "openssl/ssl.h"
#include "openssl/x509v3.h"

namespace djinn {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(2);
// The protocols that a gRPC client offers.
constexpr unsigned char kProtocols[] = "\x02h2";

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Deleter<SSL_free>>;

// Blocks SIGPIPE in this thread. OpenSSL writes to sockets without
// MSG_NOSIGNAL, so a lost peer would otherwise end the program.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlock() {
    const timespec now = {};
    if (sigismember(&before_, SIGPIPE) == 0) {
      sigtimedwait(&pipe_, nullptr, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// A socket whose operations end at the deadline.
class Socket {
 public:
  explicit Socket(absl::Time deadline) : deadline_(deadline) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }

  bool Connect(const std::string& address) {
    absl::string_view path = address;
    if (absl::ConsumePrefix(&path, "unix:")) {
      if (absl::StartsWith(path, "//")) path.remove_prefix(2);
      sockaddr_un name = {};
      name.sun_family = AF_UNIX;
      path.copy(name.sun_path, sizeof(name.sun_path) - 1);
      return ConnectTo(AF_UNIX, reinterpret_cast<sockaddr*>(&name),
                       sizeof(name));
    }
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints,
                    &found) != 0) {
      return false;
    }
    const std::unique_ptr<addrinfo, Deleter<freeaddrinfo>> owner(found);
    for (; found != nullptr; found = found->ai_next) {
      if (ConnectTo(found->ai_family, found->ai_addr, found->ai_addrlen)) {
        return true;
      }
    }
    return false;
  }

  // Returns false when the deadline comes first.
  bool Await(short events) {
    pollfd watched = {fd_, events, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline_ - absl::Now());
    return left > 0 && poll(&watched, 1, static_cast<int>(left)) > 0;
  }

 private:
  bool ConnectTo(int family, const sockaddr* name, socklen_t size) {
    if (fd_ >= 0) close(fd_);
    fd_ = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(fd_, name, size) == 0) return true;
    if (errno != EINPROGRESS || !Await(POLLOUT)) return false;
    int error = 0;
    socklen_t error_size = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &error_size);
    return error == 0;
  }

  const absl::Time deadline_;
  int fd_ = -1;
};

enum class End { kDone, kFailed, kTimeout };

// Completes `step`, such as SSL_connect(), on a non-blocking socket.
template <typename Step>
End Complete(SSL* connection, Socket* socket, Step step) {
  for (;;) {
    ERR_clear_error();
    const int result = step();
    if (result > 0) return End::kDone;
    switch (SSL_get_error(connection, result)) {
      case SSL_ERROR_WANT_READ:
        if (!socket->Await(POLLIN)) return End::kTimeout;
        break;
      case SSL_ERROR_WANT_WRITE:
        if (!socket->Await(POLLOUT)) return End::kTimeout;
        break;
      default:
        return End::kFailed;
    }
  }
}

// `asked` becomes true when the peer asks for a certificate.
Connection MakeConnection(SSL_CTX* context, const ChannelTls& tls,
                          const std::string& host, bool* asked) {
  SSL_CTX_set_cert_cb(
      context,
      [](SSL*, void* flag) {
        *static_cast<bool*>(flag) = true;
        return 1;
      },
      asked);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_alpn_protos(context, kProtocols, sizeof(kProtocols) - 1);
  if (tls.enabled()) {
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_load_verify_locations(context, tls.ca_file.c_str(), nullptr);
  }
  if (!tls.certificate_file.empty()) {
    SSL_CTX_use_certificate_chain_file(context, tls.certificate_file.c_str());
    SSL_CTX_use_PrivateKey_file(context, tls.private_key_file.c_str(),
                                SSL_FILETYPE_PEM);
  }
  Connection connection(SSL_new(context));
  if (tls.enabled()) {
    X509_VERIFY_PARAM* const checks = SSL_get0_param(connection.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(checks, host.c_str()) != 1) {
      SSL_set1_host(connection.get(), host.c_str());
      SSL_set_tlsext_host_name(connection.get(), host.c_str());
    }
  }
  return connection;
}

// Returns the name that the peer's certificate must have.
std::string HostOf(const std::string& address, const ChannelTls& tls) {
  if (!tls.server_name.empty()) return tls.server_name;
  if (absl::StartsWith(address, "unix:")) return "localhost";
  const std::string host = address.substr(0, address.rfind(':'));
  return absl::StartsWith(host, "[") ? host.substr(1, host.size() - 2) : host;
}

// Describes why the handshake failed. Empty when the connection broke.
std::string Describe(SSL* connection, const ChannelTls& tls,
                     const std::string& host) {
  const unsigned long error = ERR_get_error();
  const long verified = SSL_get_verify_result(connection);
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH ||
      verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    return absl::StrCat("its certificate does not name \"", host, "\"");
  }
  if (verified != X509_V_OK) {
    return absl::StrCat(
        "its certificate is refused: ", X509_verify_cert_error_string(verified),
        " (with the authorities in ", tls.ca_file, ")");
  }
  const int reason = ERR_GET_REASON(error);
  if (error == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return "";
  if (reason == SSL_R_WRONG_VERSION_NUMBER) return "it does not speak TLS";
  const char* const text = ERR_reason_error_string(error);
  return text == nullptr ? "unknown error" : text;
}

// Returns the fault, or an empty string when nothing is wrong with TLS.
std::string Probe(const std::string& address, const ChannelSecurity& security) {
  const ChannelTls& tls = security.tls();
  Socket socket(absl::Now() + kTimeout);
  if (!socket.Connect(address)) return "";
  const Context context(SSL_CTX_new(TLS_client_method()));
  const std::string host = HostOf(address, tls);
  bool asked = false;
  const Connection connection =
      MakeConnection(context.get(), tls, host, &asked);
  SSL* const ssl = connection.get();
  SSL_set_fd(ssl, socket.fd());
  const End handshake =
      Complete(ssl, &socket, [ssl] { return SSL_connect(ssl); });
  if (handshake == End::kTimeout) return "";
  if (!security.encrypted()) {
    // A peer that shows a certificate speaks TLS.
    const bool speaks_tls = SSL_get0_peer_certificate(ssl) != nullptr;
    return speaks_tls ? "it speaks TLS, and no ca_file is set on this side"
                      : "";
  }
  if (handshake == End::kFailed) return Describe(ssl, tls, host);
  if (!asked) return "";
  // The peer checks this side's certificate last. A gRPC server that accepts it
  // sends data first; others close the connection, and not all send a reason.
  char first;
  const End read =
      Complete(ssl, &socket, [&] { return SSL_peek(ssl, &first, 1); });
  if (read == End::kDone) return "";
  if (tls.certificate_file.empty()) {
    return "it demands a certificate of this side, and none is set";
  }
  return read == End::kTimeout ? ""
                               : absl::StrCat("it refuses the certificate in ",
                                              tls.certificate_file);
}

}  // namespace

absl::Status ExplainTlsFailure(absl::Status status, const std::string& address,
                               const ChannelSecurity& security) {
  if (!absl::IsUnavailable(status)) return status;
  const PipeSignalBlock block;
  const std::string problem = Probe(address, security);
  ERR_clear_error();
  if (problem.empty()) return status;
  return MakeError(
      absl::StatusCode::kFailedPrecondition, "TLS_HANDSHAKE",
      absl::StrCat("no TLS connection with ", address, ": ", problem),
      {{"address", address}});
}

}  // namespace djinn
