// Tests eager uploads: contents that travel inside their message.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/hash/content_proof.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

using testing::HasSubstr;

class EagerUploadsTest : public WorkerCoreTest {
 protected:
  // Opens a session whose messages may be as large as any lease allows.
  std::unique_ptr<TestClient> Open(const std::string& session = "s1",
                                   const std::string& tenant = "t1") {
    v1::LeaseClaims lease = Lease(session, tenant);
    lease.mutable_limits()->set_max_outstanding_bytes(64 << 20);
    Grant(lease);
    std::unique_ptr<TestClient> client = Connect(HelloFor(session));
    client->WaitHello();
    return client;
  }

  const std::string bytes_ = FloatBytes(Floats(300'000, 3));
};

TEST_F(EagerUploadsTest, TheBytesAreThereAndFoundAgain) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallContent(1, bytes_);
  EXPECT_EQ(client->Read(1, 2), (Floats{3, 3}));
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  // A hash-first upload finds the content.
  std::unique_ptr<TestClient> second = Open("s2");
  second->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  // An equal eager upload is kept once.
  EXPECT_TRUE(second->WaitCompleted(second->InstallContent(2, bytes_)));
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  EXPECT_EQ(core_->contents().List().size(), 1u);
  // Another tenant's content is its own.
  std::unique_ptr<TestClient> stranger = Open("s3", "t2");
  EXPECT_TRUE(stranger->WaitCompleted(stranger->InstallContent(1, bytes_)));
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes_.size());
}

// An eager content is its tenant's own, whatever contents other tenants have:
// nothing about it depends on them.
TEST_F(EagerUploadsTest, ATenantThatSharesContentsUploadsEagerlyToo) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> client = Open();
  EXPECT_GT(client->content_room(), 0u);
  EXPECT_TRUE(client->WaitCompleted(client->InstallContent(1, bytes_)));
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  other->InstallContent(1, bytes_);
  EXPECT_EQ(other->Read(1, 1), Floats{3});
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes_.size());
  EXPECT_EQ(core_->contents().stats().adoptions, 0u);
  // A tenant with a hash-first upload proves its bytes, and shares them.
  Share({"t1", "t2", "t3"});
  std::unique_ptr<TestClient> third = Open("s3", "t3");
  third->InstallTransfer(1, 1, bytes_);
  third->SendProof(1,
                   ProveContent(third->WaitDecision(1).prove().key(), bytes_));
  EXPECT_TRUE(third->WaitOutcome(1).already_held());
}

TEST_F(EagerUploadsTest, RoomIsAPartOfWhatThereIs) {
  std::unique_ptr<TestClient> client = Open();
  // The room is a part of the session's 8 MiB, in whole MiB.
  EXPECT_EQ(client->content_room(), 2u << 20);
  EXPECT_TRUE(client->WaitCompleted(client->InstallContent(1, bytes_)));
  EXPECT_EQ(client->content_room(), 1u << 20);
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 6 << 20)));
  EXPECT_EQ(client->content_room(), 0u);
  client->Free({2});
  EXPECT_TRUE(client->WaitCompleted(client->Create(3, 8)));
  EXPECT_EQ(client->content_room(), 1u << 20);
  // Other sessions have the rest of the device's 16 MiB.
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 8 << 20)));
  std::unique_ptr<TestClient> third = Open("s3", "t3");
  EXPECT_TRUE(third->WaitCompleted(third->Create(1, 4 << 20)));
  EXPECT_TRUE(client->WaitCompleted(client->Create(4, 8)));
  EXPECT_EQ(client->content_room(), 0u);
  // A client that resumes learns the room from the hello.
  Break(client.get());
  EXPECT_TRUE(third->WaitCompleted(third->Free({1})));
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(5, 8)));
  EXPECT_EQ(client->content_room(), 1u << 20);
}

TEST_F(EagerUploadsTest, WithoutRoomTheStorageIsPoisoned) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_TRUE(client->WaitCompleted(client->Create(1, 8 << 20)));
  client->InstallContent(2, bytes_);
  const v1::ErrorDetail error = client->ReadError(2);
  EXPECT_EQ(error.reason(), "SESSION_MEMORY");
  EXPECT_THAT(error.message(), HasSubstr("asked 1200000"));
  EXPECT_EQ(core_->ledger().usage().used, 8u << 20);
  // The session goes on.
  client->Free({1});
  client->InstallContent(2, bytes_);
  EXPECT_EQ(client->Read(2, 1), Floats{3});
}

TEST_F(EagerUploadsTest, AStorageThatHadBytesTakesOthers) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({4, 5}));
  client->InstallContent(1, bytes_);
  EXPECT_EQ(client->Read(1, 2), (Floats{3, 3}));
  // A writer of the content writes to a copy.
  FakeGraph s;
  s.FillInPlace(s.Bound(), 300'000);
  client->Define(1, s.get());
  client->Run(1, {1}, {5});
  EXPECT_EQ(client->Read(1, 2), (Floats{5, 5}));
  client->InstallTransfer(2, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).already_held());
  EXPECT_EQ(client->Read(2, 2), (Floats{3, 3}));
}

TEST_F(EagerUploadsTest, AGeneratorsStateGoesInline) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallSeed(1, 7);
  const uint64_t sent = client->InstallContent(1, bytes_);
  const v1::ErrorDetail error = client
                                    ->WaitFor([](const v1::ControlResponse& r) {
                                      return r.has_poisoned();
                                    })
                                    .poisoned();
  EXPECT_EQ(error.reason(), "INVALID_GENERATOR");
  EXPECT_TRUE(client->WaitCompleted(sent));
}

TEST_F(EagerUploadsTest, ContentOfAWrongSizeEndsTheStream) {
  int count = 0;
  for (const size_t size : {size_t{1024}, kMaxContentBytes + 1}) {
    std::unique_ptr<TestClient> client = Open("s" + std::to_string(++count));
    client->InstallContent(1, std::string(size, 'x'));
    const absl::Status closed = client->WaitClosed();
    EXPECT_EQ(ErrorReason(closed), "PROTOCOL_VIOLATION");
    EXPECT_THAT(closed.message(), HasSubstr(absl::StrCat(size, " bytes")));
  }
  EXPECT_TRUE(WaitMemory(0));
}

}  // namespace
}  // namespace djinn::worker
