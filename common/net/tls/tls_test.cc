#include "common/net/tls/tls.h"

#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/config/config_reader.h"
#include "common/net/channel_options.h"
#include "common/net/grpc_status.h"
#include "common/net/server.h"
#include "common/net/testing/authority.h"
#include "common/net/tls/checked_tls_copies.h"
#include "common/net/tls/tls_from_memory.h"
#include "common/net/tls/tls_probe.h"
#include "common/net/tls_config.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"

namespace djinn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Authority& Ours() {
  static Authority* const authority = new Authority("ours");
  return *authority;
}
Authority& Theirs() {
  static Authority* const authority = new Authority("theirs");
  return *authority;
}

std::string Text(const absl::Status& status) { return status.ToString(); }

// Answers any call with Aborted and "encrypted" or "plain".
class EchoService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(bool encrypted) {
        Finish(grpc::Status(grpc::StatusCode::ABORTED,
                            encrypted ? "encrypted" : "plain"));
      }
      void OnDone() override { delete this; }
    };
    return new Reactor(IsEncrypted(*context));
  }
};

// A server with any credentials, also those that Server refuses.
class EchoServer {
 public:
  explicit EchoServer(std::shared_ptr<grpc::ServerCredentials> credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  explicit EchoServer(const ServerTls& tls)
      : EchoServer(
            MakeServerCredentials(tls, false, /*refresh_seconds=*/1).value()) {}

  const std::string& address() const { return address_; }

 private:
  EchoService service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// Returns Aborted when the server was reached.
absl::Status Call(const std::string& address, const ChannelSecurity& security) {
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
      MakeChannel(address, {security, 0}).value());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  const grpc::Slice slice("x");
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(&context, "/any/Method", request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return ExplainTlsFailure(FromGrpcStatus(status), address, security);
}

absl::Status Call(const EchoServer& server, const ChannelTls& tls) {
  return Call(server.address(), ChannelSecurity::Make(tls, false).value());
}

TEST(TlsTest, EncryptsWithAndWithoutClientCertificates) {
  ServerTls tls = Ours().Issue("server");
  EXPECT_EQ(Call(EchoServer(tls), Ours().Channel()),
            absl::AbortedError("encrypted"));
  tls.client_ca_file = Ours().ca_file();
  EXPECT_EQ(Call(EchoServer(tls), Ours().IssueForChannel("client")),
            absl::AbortedError("encrypted"));
  EXPECT_EQ(Call(EchoServer(ServerTls()), ChannelTls()),
            absl::AbortedError("plain"));
}

// gRPC's threads can be in a handshake until the process is gone.
TEST(TlsTest, OpenSslIsUsableUntilTheProcessEnds) {
  // A process of its own, in which nothing has used OpenSSL yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // Registered first, this runs after a handler of OpenSSL's would.
        std::atexit([] {
          // A handshake fetches its algorithms like this.
          _exit(EVP_MD_fetch(nullptr, "SHA512", nullptr) == nullptr ? 1 : 0);
        });
        const absl::Status status =
            Call(EchoServer(Ours().Issue("server")), Ours().Channel());
        if (status != absl::AbortedError("encrypted")) _exit(2);
        std::exit(3);
      },
      testing::ExitedWithCode(0), "");
}

TEST(TlsTest, HandshakeErrorNamesTheProblem) {
  const ServerTls plain;
  const ServerTls tls = Ours().Issue("server");
  ServerTls mutual = tls;
  mutual.client_ca_file = Ours().ca_file();
  ChannelTls other_client = Theirs().IssueForChannel("client");
  other_client.ca_file = Ours().ca_file();
  ChannelTls other_name = Ours().Channel();
  other_name.server_name = "gpu.example.com";
  const struct {
    ServerTls server;
    ChannelTls client;
    std::string problem;
  } cases[] = {
      {tls, Theirs().Channel(), Theirs().ca_file()},
      {tls, other_name, "does not name \"gpu.example.com\""},
      {mutual, Ours().Channel(), "demands a certificate of this side"},
      {mutual, other_client, other_client.certificate_file},
      {tls, ChannelTls(), "speaks TLS, and no ca_file is set"},
      {plain, Ours().Channel(), "does not speak TLS"},
  };
  for (const auto& test : cases) {
    const EchoServer server(test.server);
    const absl::Status status = Call(server, test.client);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(ErrorReason(status), "TLS_HANDSHAKE") << status;
    EXPECT_THAT(Text(status),
                AllOf(HasSubstr(server.address()), HasSubstr(test.problem)));
  }
}

TEST(TlsTest, AnExpiredCertificateOfAServerIsNamed) {
  const ServerTls expired = Ours().Issue(
      "expired", {.begin = -absl::Hours(2), .end = -absl::Hours(1)});
  grpc::SslServerCredentialsOptions options;
  std::stringstream key, certificate;
  key << std::ifstream(expired.private_key_file).rdbuf();
  certificate << std::ifstream(expired.certificate_file).rdbuf();
  options.pem_key_cert_pairs = {{key.str(), certificate.str()}};
  const EchoServer server(grpc::SslServerCredentials(options));
  const absl::Status status = Call(server, Ours().Channel());
  EXPECT_EQ(ErrorReason(status), "TLS_HANDSHAKE");
  EXPECT_THAT(Text(status), HasSubstr("certificate has expired"));
}

TEST(TlsTest, AnAbsentServerIsNoProblemOfTls) {
  const ChannelSecurity security =
      ChannelSecurity::Make(Ours().Channel(), false).value();
  const absl::Status status = Call("unix:no-such.sock", security);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(ErrorReason(status), "");
}

TEST(TlsTest, RenewedCertificatesAreTakenUp) {
  const EchoServer server(Ours().Issue("renewed"));
  ChannelTls tls = Ours().Channel();
  tls.server_name = "new.example.com";
  EXPECT_EQ(ErrorReason(Call(server, tls)), "TLS_HANDSHAKE");
  Ours().Issue("renewed", {.names = "DNS:new.example.com"});
  absl::Status status;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline && !absl::IsAborted(status)) {
    status = Call(server, tls);
  }
  EXPECT_EQ(status, absl::AbortedError("encrypted"));
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(TlsTest, UnfitNewFilesAreLoggedOnceAndNotUsed) {
  const ServerTls tls = Ours().Issue("watched");
  const std::string first = ReadAll(tls.certificate_file);
  const ServerTls expired = Ours().Issue(
      "expired", {.begin = -absl::Hours(2), .end = -absl::Hours(1)});
  const ServerTls other = Ours().Issue("other");
  const auto take_up = [&] {
    return CheckedTlsCopies(
        {tls.private_key_file, tls.certificate_file, ""}, "server",
        [&] { return CheckServerTls(tls); }, absl::Hours(1));
  };
  const TlsPaths copies = take_up().value();
  EXPECT_EQ(ReadAll(copies.certificate), first);
  EXPECT_EQ(ReadAll(copies.private_key), ReadAll(tls.private_key_file));
  EXPECT_EQ(copies.authorities, "");
  for (const std::string& unfit :
       {std::string("hello"), ReadAll(expired.certificate_file),
        ReadAll(other.certificate_file)}) {
    std::ofstream(tls.certificate_file) << unfit;
    for (const bool logged : {true, false}) {
      testing::internal::CaptureStderr();
      EXPECT_EQ(ErrorReason(take_up().status()), "TLS_FILES");
      const std::string log = testing::internal::GetCapturedStderr();
      EXPECT_EQ(log.find(tls.certificate_file) != std::string::npos, logged)
          << log;
      EXPECT_EQ(ReadAll(copies.certificate), first);
    }
  }
  Ours().Issue("watched", {.names = "DNS:new.example.com"});
  EXPECT_EQ(take_up()->certificate, copies.certificate);
  EXPECT_EQ(ReadAll(copies.certificate), ReadAll(tls.certificate_file));
  EXPECT_EQ(ReadAll(copies.private_key), ReadAll(tls.private_key_file));
}

TlsTexts TextsOf(const ServerTls& tls) {
  return {ReadAll(tls.private_key_file), ReadAll(tls.certificate_file),
          tls.client_ca_file.empty() ? "" : ReadAll(tls.client_ca_file)};
}

TEST(TlsTest, TextsAreThoseOfTheFilesThatWereFitLast) {
  const ServerTls tls = Ours().Issue("texts");
  const TlsTexts first = TextsOf(tls);
  const auto texts = [&] {
    return FitServerTexts(tls, /*refresh_seconds=*/3600);
  };
  EXPECT_EQ(*texts(), first);
  std::ofstream(tls.certificate_file) << "hello";
  testing::internal::CaptureStderr();
  EXPECT_EQ(*texts(), first);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(tls.certificate_file));
  Ours().Issue("texts");
  EXPECT_NE(*texts(), first);
  EXPECT_EQ(*texts(), TextsOf(tls));

  ServerTls absent = tls;
  absent.certificate_file = "no-such.crt";
  EXPECT_EQ(ErrorReason(FitServerTexts(absent).status()), "TLS_FILES");
}

TEST(TlsTest, NewConnectionsUseTheReplacedTexts) {
  TlsFromMemory tls(TextsOf(Ours().Issue("first")));
  const EchoServer server(tls.MakeCredentials());
  const ChannelTls by_old_name = Ours().Channel();
  ChannelTls by_new_name = Ours().Channel();
  by_new_name.server_name = "new.example.com";
  EXPECT_EQ(Call(server, by_old_name), absl::AbortedError("encrypted"));
  EXPECT_EQ(ErrorReason(Call(server, by_new_name)), "TLS_HANDSHAKE");

  const TlsTexts second =
      TextsOf(Ours().Issue("second", {.names = "DNS:new.example.com"}));
  tls.Replace(second);
  EXPECT_EQ(Call(server, by_new_name), absl::AbortedError("encrypted"));
  EXPECT_EQ(ErrorReason(Call(server, by_old_name)), "TLS_HANDSHAKE");

  // Texts that gRPC cannot use change nothing.
  for (const TlsTexts& unfit : {TlsTexts{second.private_key, "hello", ""},
                                TlsTexts{"hello", second.certificate, ""}}) {
    tls.Replace(unfit);
    EXPECT_EQ(Call(server, by_new_name), absl::AbortedError("encrypted"));
  }
  tls.Replace(TextsOf(Ours().Issue("third")));
  EXPECT_EQ(Call(server, by_old_name), absl::AbortedError("encrypted"));
}

TEST(TlsTest, TextsWithAuthoritiesDemandACertificateOfTheirs) {
  ServerTls files = Ours().Issue("server");
  files.client_ca_file = Ours().ca_file();
  TlsFromMemory tls(TextsOf(files));
  const EchoServer server(tls.MakeCredentials());
  ChannelTls stranger = Theirs().IssueForChannel("client");
  stranger.ca_file = Ours().ca_file();
  EXPECT_EQ(Call(server, Ours().IssueForChannel("client")),
            absl::AbortedError("encrypted"));
  EXPECT_EQ(ErrorReason(Call(server, Ours().Channel())), "TLS_HANDSHAKE");
  EXPECT_EQ(ErrorReason(Call(server, stranger)), "TLS_HANDSHAKE");

  // Another authority takes the place of the first one.
  files.client_ca_file = Theirs().ca_file();
  tls.Replace(TextsOf(files));
  EXPECT_EQ(Call(server, stranger), absl::AbortedError("encrypted"));
  EXPECT_EQ(ErrorReason(Call(server, Ours().IssueForChannel("client"))),
            "TLS_HANDSHAKE");
}

TEST(TlsTest, OtherHostsNeedTlsOrInsecure) {
  EXPECT_EQ(ErrorReason(MakeChannel("10.0.0.1:80").status()),
            "INSECURE_ADDRESS");
  for (const bool insecure : {false, true}) {
    const ChannelTls tls = insecure ? ChannelTls() : Ours().Channel();
    const ChannelSecurity security =
        ChannelSecurity::Make(tls, insecure).value();
    EXPECT_EQ(security.encrypted(), !insecure);
    EXPECT_TRUE(MakeChannel("10.0.0.1:80", {security, 0}).ok());
  }
  ServerOptions options;
  options.address = "0.0.0.0:0";
  options.tls = Ours().Issue("server");
  EXPECT_TRUE(Server::Start(options).ok());
}

TEST(TlsTest, InsecureContradictsTls) {
  const ChannelTls tls = Ours().Channel();
  const absl::Status channel = ChannelSecurity::Make(tls, true).status();
  EXPECT_EQ(ErrorReason(channel), "CONTRADICTION");
  EXPECT_THAT(Text(channel),
              AllOf(HasSubstr("insecure"), HasSubstr(tls.ca_file)));
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.tls = Ours().Issue("server");
  options.insecure = true;
  EXPECT_EQ(ErrorReason(Server::Start(options).status()), "CONTRADICTION");
}

TEST(TlsFilesTest, UnfitFilesAreNamed) {
  const ServerTls good = Ours().Issue("good");
  const ServerTls other = Ours().Issue("other");
  const ServerTls expired = Ours().Issue(
      "expired", {.begin = -absl::Hours(2), .end = -absl::Hours(1)});
  const ServerTls early =
      Ours().Issue("early", {.begin = absl::Hours(1), .end = absl::Hours(2)});
  const std::string no_pem = testing::TempDir() + "/no.pem";
  std::ofstream(no_pem) << "hello";
  chmod(no_pem.c_str(), 0600);
  const struct {
    ServerTls tls;
    std::string problem;
  } cases[] = {
      {{"/no.crt", good.private_key_file, ""}, "cannot read /no.crt: No such"},
      {{good.certificate_file, "/no.key", ""}, "cannot read /no.key: No such"},
      {{good.certificate_file, good.private_key_file, "/no.ca"}, "/no.ca"},
      {{no_pem, good.private_key_file, ""}, no_pem + " holds no certificate"},
      {{good.certificate_file, no_pem, ""}, no_pem + " holds no private key"},
      {{good.certificate_file, other.private_key_file, ""},
       other.private_key_file + " is not that of the certificate in " +
           good.certificate_file},
      {expired, expired.certificate_file + " expired at "},
      {early, early.certificate_file + " is not valid before "},
      {{good.certificate_file, "", ""}, "go together"},
      {{"", "", Ours().ca_file()}, "needs a certificate_file"},
  };
  for (const auto& test : cases) {
    const absl::Status status = CheckServerTls(test.tls);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Text(status), HasSubstr(test.problem));
  }
  EXPECT_EQ(CheckServerTls(good), absl::OkStatus());
  EXPECT_EQ(CheckServerTls({}), absl::OkStatus());
  EXPECT_THAT(Text(CheckChannelTls({no_pem, "", "", ""})), HasSubstr(no_pem));
  EXPECT_THAT(Text(CheckChannelTls({"", "", "", "x"})),
              HasSubstr("need a ca_file"));
  EXPECT_THAT(Text(CheckChannelTls({Ours().ca_file(), expired.certificate_file,
                                    expired.private_key_file, ""})),
              HasSubstr("expired at"));
}

TEST(TlsConfigTest, ReadsFilesRelativeToTheConfiguration) {
  const ServerTls issued = Ours().Issue("server");
  const std::string folder =
      issued.certificate_file.substr(0, issued.certificate_file.rfind('/'));
  ConfigReader reader = ConfigReader::FromText(
      "tls: {certificate_file: server.crt, private_key_file: server.key,\n"
      "      client_ca_file: ca.crt}\n"
      "peer_tls: {ca_file: ca.crt, server_name: x}\n",
      "c.yaml", folder);
  ConfigMap root = reader.root();
  const ServerTls tls = ReadServerTls(&root, "tls", false);
  const ChannelTls peer_tls = ReadChannelTls(&root, "peer_tls", false);
  EXPECT_EQ(reader.Finish(), absl::OkStatus());
  EXPECT_EQ(tls.certificate_file, issued.certificate_file);
  EXPECT_EQ(tls.client_ca_file, Ours().ca_file());
  EXPECT_EQ(peer_tls.ca_file, Ours().ca_file());
  EXPECT_EQ(peer_tls.server_name, "x");
}

TEST(TlsConfigTest, NamesContradictionsAndFiles) {
  ConfigReader reader = ConfigReader::FromText(
      "insecure: true\n"
      "tls: {certificate_file: a.crt, private_key_file: a.key}\n",
      "c.yaml", "/none");
  ConfigMap root = reader.root();
  ReadServerTls(&root, "tls", root.Bool("insecure", false));
  EXPECT_EQ(std::string(reader.Finish().message()),
            "c.yaml:2: tls: cannot read /none/a.crt: No such file or "
            "directory\n"
            "c.yaml:1: insecure: contradicts tls: leave one of them out");
}

}  // namespace
}  // namespace djinn
