// Tests a coordinator process and a worker process that use TLS with each other
// and with clients. All of them must show certificates.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/cluster/child_process.h"
#include "client_lib/session/remote_session.h"
#include "client_lib/transport/grpc_coordinator_link.h"
#include "client_lib/transport/grpc_worker_connector.h"
#include "common/base/error.h"
#include "common/net/testing/authority.h"
#include "common/net/tls/tls.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJoinToken[] = "join-token-7f3a";
constexpr char kAdminToken[] = "admin-token-91bc";
constexpr char kTenantToken[] = "tenant-token-5e0d";
constexpr absl::Duration kPatience = absl::Seconds(30);

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string YamlOf(const ServerTls& tls) {
  return absl::StrCat("{certificate_file: ", tls.certificate_file,
                      ", private_key_file: ", tls.private_key_file,
                      tls.client_ca_file.empty() ? "" : ", client_ca_file: ",
                      tls.client_ca_file, "}");
}

std::string YamlOf(const ChannelTls& tls) {
  return absl::StrCat(
      "{ca_file: ", tls.ca_file,
      tls.certificate_file.empty() ? "" : ", certificate_file: ",
      tls.certificate_file,
      tls.certificate_file.empty() ? "" : ", private_key_file: ",
      tls.private_key_file, "}");
}

class TlsClusterTest : public testing::Test {
 protected:
  TlsClusterTest() : ours_("ours"), theirs_("theirs") {
    folder_ = absl::StrCat(testing::TempDir(), "/cluster-", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    EXPECT_EQ(pipe2(lifeline_, O_CLOEXEC), 0);
    programs_ = FindClusterPrograms().value();
    Write("join.token", kJoinToken);
    Write("admin.token", kAdminToken);
    Write("tenant.token", kTenantToken);
  }
  ~TlsClusterTest() override {
    worker_.Stop(absl::Seconds(5));
    coordinator_.Stop(absl::Seconds(5));
    close(lifeline_[0]);
    close(lifeline_[1]);
  }

  std::string Path(const std::string& name) { return folder_ + "/" + name; }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    chmod(Path(name).c_str(), 0600);
  }

  ServerTls Mutual(const std::string& name, const CertificateSpec& spec = {}) {
    ServerTls tls = ours_.Issue(name, spec);
    tls.client_ca_file = ours_.ca_file();
    return tls;
  }

  // Starts a program and returns its address.
  std::string Start(ChildProcess* child, const std::string& program,
                    const std::string& name, const std::string& yaml) {
    Write(name + ".yaml", yaml);
    const absl::Status started = child->Start(
        program,
        {"--config=" + Path(name + ".yaml"),
         "--address_file=" + Path(name + ".address"),
         absl::StrCat("--lifeline_fd=", ChildProcess::kLifelineFd)},
        lifeline_[0], Path(name + ".log"));
    EXPECT_TRUE(started.ok()) << started;
    EXPECT_TRUE(Eventually([&] {
      return !child->Running() ||
             access(Path(name + ".address").c_str(), F_OK) == 0;
    }));
    EXPECT_TRUE(child->Running()) << ReadAll(Path(name + ".log"));
    std::string address;
    std::ifstream(Path(name + ".address")) >> address;
    return address;
  }

  void StartCoordinator(const ServerTls& tls) {
    address_ = Start(&coordinator_, programs_.coordinator, "coordinator",
                     absl::StrCat("listen: 127.0.0.1:0\ntls: ", YamlOf(tls),
                                  "\njoin_token_file: join.token"
                                  "\nadmin_token_file: admin.token"
                                  "\ntenants:"
                                  "\n  - name: research"
                                  "\n    token_file: tenant.token\n"));
  }

  void StartWorker(const ServerTls& tls, const ChannelTls& coordinator_tls) {
    StartWorker(&worker_, "worker", tls, coordinator_tls, "");
  }
  void StartWorker(ChildProcess* worker, const std::string& id,
                   const ServerTls& tls, const ChannelTls& coordinator_tls,
                   const std::string& more) {
    Start(worker, programs_.worker, id,
          absl::StrCat("worker_id: ", id == "worker" ? "w0" : id,
                       "\nlisten: 127.0.0.1:0\ntls: ", YamlOf(tls),
                       "\ncoordinator: ", address_,
                       "\ncoordinator_tls: ", YamlOf(coordinator_tls),
                       "\njoin_token_file: join.token"
                       "\ndevice: {kind: fake, memory: 64MiB}\n",
                       more));
  }

  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 3000; ++i) {
      if (condition()) return true;
      usleep(10000);
    }
    return false;
  }

  absl::StatusOr<std::unique_ptr<Session>> Open(
      const ChannelTls& tls, const std::string& worker_server_name = "",
      const std::string& token = kTenantToken) {
    SessionOptions options;
    options.connect_timeout = kPatience;
    options.operation_timeout = kPatience;
    options.program = "tls_cluster_test";
    const ChannelSecurity security = ChannelSecurity::Make(tls, false).value();
    return OpenSession(
        options,
        MakeGrpcCoordinatorLink(address_, token, {.security = security})
            .value(),
        MakeGrpcWorkerConnector(security.WithServerName(worker_server_name)));
  }

  // Sends a value over Bulk, and reads it back.
  static absl::Status RunProgram(Session* session) {
    const auto device = session->Device(0);
    if (!device.ok()) return device.status();
    const auto bytes = std::make_shared<std::string>(3 << 20, 'v');
    const StoragePtr storage = (*device)->NewStorage(bytes->size());
    const absl::Status sent =
        (*device)->Upload(0, storage.get(), {*bytes, bytes});
    if (!sent.ok()) return sent;
    srg::TensorView view;
    view.data_type = srg::DataType::kFloat32;
    view.sizes = {3 << 18};
    view.strides = {1};
    std::string read(bytes->size(), '\0');
    const absl::Status status =
        (*device)->Read(0, storage.get(), view, read.data(), read.size());
    if (!status.ok()) return status;
    EXPECT_EQ(read, *bytes);
    return session->Close(kPatience);
  }

  // Runs a program to its end, and returns its exit status and output.
  std::pair<std::string, std::string> Run(
      const std::string& program, const std::vector<std::string>& arguments) {
    const std::string log = Path(absl::StrCat("run-", ++runs_, ".log"));
    ChildProcess child;
    EXPECT_TRUE(child.Start(program, arguments, lifeline_[0], log).ok());
    EXPECT_TRUE(child.WaitForExit(kPatience));
    return {child.DescribeEnd(), ReadAll(log)};
  }

  std::pair<std::string, std::string> Djinnctl(const ChannelTls& tls) {
    return Run(
        std::string(getenv("TEST_SRCDIR")) + "/djinn/coordinator/ctl/djinnctl",
        {"get", "workers", "--coordinator=" + address_,
         "--token_file=" + Path("admin.token"), "--tls_ca_file=" + tls.ca_file,
         "--tls_certificate_file=" + tls.certificate_file,
         "--tls_private_key_file=" + tls.private_key_file});
  }

  Authority ours_;
  Authority theirs_;
  std::string folder_;
  int lifeline_[2];
  int runs_ = 0;
  ClusterPrograms programs_;
  ChildProcess coordinator_;
  ChildProcess worker_;
  std::string address_;
};

TEST_F(TlsClusterTest, AProgramRuns) {
  StartCoordinator(Mutual("coordinator"));
  StartWorker(Mutual("worker"), ours_.IssueForChannel("worker"));
  auto session = Open(ours_.IssueForChannel("program"));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(RunProgram(session->get()), absl::OkStatus());

  const auto [end, output] = Djinnctl(ours_.IssueForChannel("operator"));
  EXPECT_EQ(end, "ended with status 0");
  EXPECT_THAT(output, AllOf(HasSubstr("w0"), HasSubstr("ACTIVE")));
}

TEST_F(TlsClusterTest, ClientsOfTheCoordinatorHearWhatIsWrong) {
  StartCoordinator(Mutual("coordinator"));
  ChannelTls wrong_authority = ours_.IssueForChannel("program");
  wrong_authority.ca_file = theirs_.ca_file();
  ChannelTls wrong_name = ours_.IssueForChannel("program");
  wrong_name.server_name = "elsewhere";
  ChannelTls wrong_certificate = theirs_.IssueForChannel("program");
  wrong_certificate.ca_file = ours_.ca_file();
  const struct {
    ChannelTls tls;
    std::string problem;
  } cases[] = {
      {wrong_authority, theirs_.ca_file()},
      {wrong_name, "does not name \"elsewhere\""},
      {ours_.Channel(), "demands a certificate"},
      {wrong_certificate, wrong_certificate.certificate_file},
      {ChannelTls(), "speaks TLS"},
  };
  for (const auto& test : cases) {
    const absl::Status status = Open(test.tls).status();
    EXPECT_EQ(ErrorReason(status), "TLS_HANDSHAKE") << status;
    EXPECT_THAT(status.ToString(),
                AllOf(HasSubstr(address_), HasSubstr(test.problem)));
  }
  const auto [end, output] = Djinnctl(ours_.Channel());
  EXPECT_EQ(end, "ended with status 3");
  EXPECT_THAT(output, HasSubstr("demands a certificate"));
}

TEST_F(TlsClusterTest, AWorkerMustBeNamedByItsCertificate) {
  StartCoordinator(Mutual("coordinator"));
  StartWorker(Mutual("worker", {.names = "DNS:djinn-worker"}),
              ours_.IssueForChannel("worker"));
  const ChannelTls tls = ours_.IssueForChannel("program");
  auto session = Open(tls);
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::Status status = RunProgram(session->get());
  EXPECT_EQ(ErrorReason(status), "TLS_HANDSHAKE") << status;
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("w0"), HasSubstr("does not name")));
  session = Open(tls, "djinn-worker");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(RunProgram(session->get()), absl::OkStatus());
}

TEST_F(TlsClusterTest, WorkersFetchFromWorkersThatTheyCanTrust) {
  StartCoordinator(Mutual("coordinator"));
  const ChannelTls own = ours_.IssueForChannel("worker");
  ChannelTls suspicious = own;
  suspicious.ca_file = theirs_.ca_file();
  StartWorker(&worker_, "w0", Mutual("w0"), own,
              "peer_tls: " + YamlOf(suspicious) + "\n");
  ChildProcess second;
  StartWorker(&second, "w1", Mutual("w1"), own, "");
  auto session = Open(ours_.IssueForChannel("program"));
  ASSERT_TRUE(session.ok()) << session.status();
  const std::shared_ptr<VirtualDevice> devices[] = {
      (*session)->Device(0).value(), (*session)->Device(1).value()};
  // The coordinator chooses which of the devices is on w1.
  const int on_w1 = devices[1]->Placement()->worker_id == "w1" ? 1 : 0;
  ASSERT_EQ(devices[on_w1]->Placement()->worker_id, "w1");
  const auto bytes = std::make_shared<std::string>(3 << 20, 'v');
  srg::TensorView view;
  view.data_type = srg::DataType::kFloat32;
  view.sizes = {3 << 18};
  view.strides = {1};
  const auto copy = [&](int to) {
    const StoragePtr source = devices[1 - to]->NewStorage(bytes->size());
    const StoragePtr destination = devices[to]->NewStorage(bytes->size());
    EXPECT_EQ(devices[1 - to]->Upload(0, source.get(), {*bytes, bytes}),
              absl::OkStatus());
    EXPECT_EQ(devices[to]->CopyFrom(0, destination.get(), source.get()),
              absl::OkStatus());
    std::string read(bytes->size(), '\0');
    const absl::Status status =
        devices[to]->Read(0, destination.get(), view, read.data(), read.size());
    EXPECT_EQ(status.ok(), read == *bytes);
    return status;
  };
  EXPECT_EQ(copy(on_w1), absl::OkStatus());
  // The other worker trusts another authority.
  const absl::Status refused = copy(1 - on_w1);
  EXPECT_EQ(ErrorReason(refused), "PULL_FAILED");
  EXPECT_THAT(refused.ToString(), AllOf(HasSubstr("w0"), HasSubstr("w1"),
                                        HasSubstr(theirs_.ca_file())));
  (*session)->Close(kPatience).IgnoreError();
  second.Stop(absl::Seconds(5));
}

TEST_F(TlsClusterTest, AWorkerLogsWhyItCannotJoin) {
  StartCoordinator(Mutual("coordinator"));
  const auto logged = [this](const std::string& text) {
    return ReadAll(Path("worker.log")).find(text) != std::string::npos;
  };
  StartWorker(Mutual("worker"), theirs_.Channel());
  EXPECT_TRUE(Eventually([&] { return logged(theirs_.ca_file()); }));
  worker_.Stop(absl::Seconds(5));
  StartWorker(Mutual("worker"), ours_.Channel());
  EXPECT_TRUE(Eventually([&] { return logged("demands a certificate"); }));
}

TEST_F(TlsClusterTest, ValidationNamesUnfitFiles) {
  const ServerTls expired = ours_.Issue(
      "expired", {.begin = -absl::Hours(2), .end = -absl::Hours(1)});
  ServerTls mismatched = ours_.Issue("coordinator");
  mismatched.private_key_file = expired.private_key_file;
  const std::string secrets =
      "\njoin_token_file: join.token\nadmin_token_file: admin.token"
      "\ntenants: [{name: research, token_file: tenant.token}]\n";
  const struct {
    std::string yaml;
    std::string problem;
  } cases[] = {
      {"tls: " + YamlOf(expired),
       "coordinator.yaml:1: tls: the certificate in " +
           expired.certificate_file + " expired at "},
      {"tls: " + YamlOf(mismatched), mismatched.private_key_file},
      {"insecure: true\ntls: " + YamlOf(ours_.Issue("coordinator")),
       "insecure: contradicts tls"},
      {"listen: 0.0.0.0:7070", "Set up TLS"},
  };
  for (const auto& test : cases) {
    Write("coordinator.yaml", test.yaml + secrets);
    const auto [end, output] =
        Run(programs_.coordinator,
            {"--config=" + Path("coordinator.yaml"), "--validate"});
    EXPECT_EQ(end, "ended with status 2");
    EXPECT_THAT(output, HasSubstr(test.problem));
  }
}

// No process prints a token, at any log level.
TEST_F(TlsClusterTest, NoProcessPrintsTokens) {
  setenv("DJINN_LOG_LEVEL", "debug", 1);
  setenv("GRPC_VERBOSITY", "debug", 1);
  setenv("GRPC_TRACE", "all", 1);
  StartCoordinator(Mutual("coordinator"));
  StartWorker(Mutual("worker"), ours_.IssueForChannel("worker"));
  const ChannelTls tls = ours_.IssueForChannel("program");
  auto session = Open(tls);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(RunProgram(session->get()), absl::OkStatus());
  std::string told = Open(tls, "", "wrong-token-00").status().ToString();
  EXPECT_THAT(told, HasSubstr("TOKEN_UNKNOWN"));
  const auto [end, output] = Djinnctl(tls);
  EXPECT_EQ(end, "ended with status 0");
  told += output;
  for (ChildProcess* child : {&coordinator_, &worker_}) {
    told += ReadAll(absl::StrCat("/proc/", child->pid(), "/cmdline"));
    told += ReadAll(absl::StrCat("/proc/", child->pid(), "/environ"));
  }
  for (const std::string& program : {programs_.coordinator, programs_.worker}) {
    told += Run(program, {"--help"}).second;
  }
  worker_.Stop(absl::Seconds(5));
  coordinator_.Stop(absl::Seconds(5));
  unsetenv("GRPC_TRACE");
  unsetenv("GRPC_VERBOSITY");
  unsetenv("DJINN_LOG_LEVEL");
  told += ReadAll(Path("coordinator.log")) + ReadAll(Path("worker.log"));
  EXPECT_THAT(told, AllOf(HasSubstr("listening on"), HasSubstr("--config")));
  EXPECT_THAT(
      told,
      AllOf(Not(HasSubstr(kJoinToken)), Not(HasSubstr(kAdminToken)),
            Not(HasSubstr(kTenantToken)), Not(HasSubstr("wrong-token-00"))));
}

}  // namespace
}  // namespace djinn
