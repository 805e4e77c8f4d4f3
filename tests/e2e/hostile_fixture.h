// Provides what hostile tests share: one cluster, a client that may send any
// message, and two other tenants that must not notice that client. One of these
// tenants is active, and the other only holds its storages.
#ifndef TESTS_E2E_HOSTILE_FIXTURE_H_
#define TESTS_E2E_HOSTILE_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/cluster/embedded_cluster.h"
#include "common/base/error.h"
#include "djinn/v1/admin.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/wire_client.h"
#include "tests/e2e/wire_messages.h"

namespace djinn {

inline constexpr uint64_t kWorkerMemory = uint64_t{256} << 20;
class Environment : public testing::Environment {
 public:
  void SetUp() override {
    ClusterOptions options;
    options.worker_memory_bytes = kWorkerMemory;
    options.worker_threads = 1;
    cluster_ = ClusterProcesses::Start(options).value();
    AddTenants();
  }
  void TearDown() override { cluster_.reset(); }
  ClusterProcesses& cluster() { return *cluster_; }

  // Returns the token of a tenant other than the cluster's own.
  static std::string TokenOf(const std::string& tenant) {
    return absl::StrCat("token-of-", tenant);
  }

 private:
  void AddTenants() {
    const std::filesystem::path folder =
        std::filesystem::path(cluster_->token_file()).parent_path();
    std::ofstream config(folder / "coordinator.yaml", std::ios::app);
    for (const std::string tenant : {"bystander", "holder"}) {
      config << "  - {name: " << tenant << ", token_file: " << tenant << "}\n";
      std::ofstream(folder / tenant) << TokenOf(tenant) << "\n";
    }
    config.close();
    v1::ReloadConfigResponse response;
    ASSERT_TRUE(AdminClient(cluster_->coordinator_address(),
                            cluster_->admin_token_file())
                    .Call(&v1::Admin::Stub::ReloadConfig,
                          v1::ReloadConfigRequest(), &response));
    ASSERT_EQ(response.added_tenants_size(), 2);
  }

  std::unique_ptr<ClusterProcesses> cluster_;
};
inline Environment* const environment = static_cast<Environment*>(
    testing::AddGlobalTestEnvironment(new Environment));

inline std::string Coordinator() {
  return environment->cluster().coordinator_address();
}
inline std::string Token() {
  return ReadFirstWord(environment->cluster().token_file());
}

inline absl::Status StatusOf(const v1::ErrorDetail& detail) {
  return MakeError(static_cast<absl::StatusCode>(detail.code()),
                   detail.reason(), detail.message());
}

// Returns the error in a response; OK when it has none.
inline absl::Status ErrorIn(const v1::ControlResponse& response) {
  if (response.has_poisoned()) return StatusOf(response.poisoned());
  if (response.read().has_error()) return StatusOf(response.read().error());
  if (response.metadata().has_error()) {
    return StatusOf(response.metadata().error());
  }
  if (response.transfer().has_refused()) {
    return StatusOf(response.transfer().refused());
  }
  if (response.admitted().has_refused()) {
    return StatusOf(response.admitted().refused());
  }
  return absl::OkStatus();
}

// A client after its hello: storage 1 holds Values() at version 1; graph 1 is
// Add() and has run once, into storage 2 at version 1.
class Client {
 public:
  explicit Client(const std::string& token = Token())
      : session_(Coordinator(), token), control_(session_.OpenControl()) {
    SayHello(session_.Hello());
    const auto hello = control_->Wait(
        [](const v1::ControlResponse& r) { return r.has_hello(); });
    EXPECT_TRUE(hello.has_value()) << control_->WaitEnd();
    if (hello.has_value()) limits_ = hello->hello().limits();
    Send(Install(1, 0, Values()));
    Send(Define(1, Add()));
    Send(RunOf(1, 1, 1, 2));
    EXPECT_EQ(ValueOf(2, 1), FloatBytes({2, 4, 6, 8}));
  }

  const WireSession& session() const { return session_; }
  const v1::SessionLimits& limits() const { return limits_; }
  ControlStream& control() { return *control_; }

  void SayHello(const v1::ClientHello& hello) {
    v1::ControlRequest request;
    *request.mutable_hello() = hello;
    control_->Send(request);
  }
  uint64_t Send(v1::Ordered message) {
    return SendAs(sequence_ + 1, std::move(message));
  }
  uint64_t SendAs(uint64_t sequence, v1::Ordered message) {
    sequence_ = sequence;
    message.set_sequence(sequence);
    v1::ControlRequest request;
    *request.mutable_ordered() = std::move(message);
    control_->Send(request);
    return sequence;
  }

  std::string ValueOf(uint64_t storage, uint64_t version) {
    const uint64_t sequence = Send(Read(storage, version));
    const auto reply = control_->Wait([&](const v1::ControlResponse& r) {
      return r.has_read() && r.read().sequence() == sequence;
    });
    if (!reply.has_value()) return control_->WaitEnd().ToString();
    return reply->read().has_error() ? reply->read().ShortDebugString()
                                     : reply->read().value();
  }

  // Returns the first reported error, or the stream's status.
  absl::Status Verdict() {
    const auto response = control_->Wait(
        &seen_, [](const v1::ControlResponse& r) { return !ErrorIn(r).ok(); });
    return response.has_value() ? ErrorIn(*response) : control_->WaitEnd();
  }

  bool WaitDecision(uint64_t transfer_id) {
    return control_
        ->Wait([&](const v1::ControlResponse& r) {
          return r.transfer().transfer_id() == transfer_id;
        })
        .has_value();
  }
  // Returns the Bulk stream. Opens it with a hello at the first use.
  BulkStream& bulk() {
    if (bulk_ == nullptr) {
      bulk_ = session_.OpenBulk();
      v1::BulkChunk chunk;
      chunk.mutable_hello()->set_session_id(session_.id());
      chunk.mutable_hello()->set_lease_token(session_.lease().token());
      bulk_->Send(chunk);
    }
    return *bulk_;
  }

 private:
  WireSession session_;
  std::unique_ptr<ControlStream> control_;
  std::unique_ptr<BulkStream> bulk_;
  v1::SessionLimits limits_;
  uint64_t sequence_ = 0;
  size_t seen_ = 0;
};

// Returns what a tenant holds and is billed for, as the worker last reported.
inline v1::TenantInfo HeldBy(const std::string& tenant) {
  const ClusterProcesses& cluster = environment->cluster();
  v1::TenantInfo info =
      AdminClient(cluster.coordinator_address(), cluster.admin_token_file())
          .Tenant(tenant);
  v1::TenantInfo held;
  held.set_session_count(info.session_count());
  held.set_lease_count(info.lease_count());
  held.set_storage_bytes(info.storage_bytes());
  held.set_content_bytes(info.content_bytes());
  *held.mutable_use() = info.use();
  *held.mutable_credits()->mutable_used() = info.credits().used();
  return held;
}

// Keeps sessions of other tenants on the same worker, which must not notice a
// test.
class HostileWireTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    bystander_ = new Client(Environment::TokenOf("bystander"));
    holder_ = new Client(Environment::TokenOf("holder"));
    // This storage is created last, so a report that has it has all the others.
    holder_->Send(Create(3, 0, 8));
    ASSERT_TRUE(Eventually([] {
      held_ = HeldBy("holder");
      return held_.use().storages().count() == 3 &&
             held_.credits().used().device_time().ByteSizeLong() > 0;
    }));
    // A report that has this storage is newer than the holder's work.
    bystander_->Send(Create(++last_storage_, 0, 8));
    EXPECT_TRUE(Eventually(
        [] { return HeldBy("bystander").use().storages().count() == 3; }));
    held_ = HeldBy("holder");
    bystander_->Send(Free({last_storage_}));
    EXPECT_TRUE(Eventually(
        [] { return HeldBy("bystander").use().storages().count() == 2; }));
  }
  static void TearDownTestSuite() {
    // A report that contains this storage is newer than everything that the
    // tests did.
    bystander_->Send(Create(++last_storage_, 0, 8));
    EXPECT_TRUE(Eventually(
        [] { return HeldBy("bystander").use().storages().count() == 3; }));
    EXPECT_EQ(HeldBy("holder").DebugString(), held_.DebugString());
    EXPECT_EQ(holder_->ValueOf(1, 1), Values());
    EXPECT_EQ(holder_->ValueOf(2, 1), FloatBytes({2, 4, 6, 8}));
    delete holder_;
    holder_ = nullptr;
    delete bystander_;
    bystander_ = nullptr;
  }
  void TearDown() override {
    EXPECT_EQ(bystander_->ValueOf(1, 1), Values());
    EXPECT_EQ(bystander_->ValueOf(2, 1), FloatBytes({2, 4, 6, 8}));
    bystander_->Send(RunOf(1, 1, 1, ++last_storage_));
    EXPECT_EQ(bystander_->ValueOf(last_storage_, 1), FloatBytes({2, 4, 6, 8}));
    bystander_->Send(Free({last_storage_}));
  }

  static inline Client* bystander_ = nullptr;
  static inline Client* holder_ = nullptr;
  static inline v1::TenantInfo held_;
  static inline uint64_t last_storage_ = 1000;
};

inline void ExpectStatus(const absl::Status& status, absl::StatusCode code,
                         const std::string& reason,
                         const std::vector<std::string>& texts = {}) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(ErrorReason(status), reason) << status;
  for (const std::string& text : texts) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  }
}

}  // namespace djinn

#endif  // TESTS_E2E_HOSTILE_FIXTURE_H_
