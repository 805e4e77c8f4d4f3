// What hostile tests share: one cluster, a client that may say anything, and a
// bystander that must never notice.
#ifndef TESTS_E2E_HOSTILE_FIXTURE_H_
#define TESTS_E2E_HOSTILE_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/cluster/embedded_cluster.h"
#include "common/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/admin_client.h"
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
    auto started = ClusterProcesses::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = *std::move(started);
  }
  void TearDown() override { cluster_.reset(); }
  ClusterProcesses& cluster() { return *cluster_; }

 private:
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

// What a response says went wrong; OK when nothing.
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

// A client past its hello: storage 1, version 1, holds Values(); structure 1 is
// Add() and has run once, into storage 2, version 1.
class Client {
 public:
  Client()
      : session_(Coordinator(), Token()), control_(session_.OpenControl()) {
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

  // The first thing said to be wrong, or the stream's end.
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
  // Opens Bulk, and says hello there, at the first use.
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

// Another session of the tenant on the same worker, that must never notice.
class HostileWireTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { bystander_ = new Client; }
  static void TearDownTestSuite() {
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
