// Contents that come inside their message, unasked.
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gpu_worker/core/core_fixture.h"

namespace djinn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class UnaskedContentsTest : public WorkerCoreTest {
 protected:
  // A message may have as much as it ever has.
  std::unique_ptr<TestClient> Open(const std::string& session = "s1",
                                   const std::string& tenant = "t1",
                                   bool has_use_for_held = false) {
    v1::LeaseClaims lease = Lease(session, tenant);
    lease.mutable_limits()->set_max_outstanding_bytes(64 << 20);
    Grant(lease);
    v1::ClientHello hello = HelloFor(session);
    if (has_use_for_held) hello.add_features(v1::CLIENT_FEATURE_HELD);
    std::unique_ptr<TestClient> client = Connect(hello);
    client->WaitFor([](const v1::ControlResponse& r) { return r.has_hello(); });
    return client;
  }
  std::unique_ptr<TestClient> OpenNew(const std::string& session,
                                      const std::string& tenant = "t1") {
    return Open(session, tenant, /*has_use_for_held=*/true);
  }
  v1::HeldContents HeldAtOpening(const std::string& session,
                                 const std::string& tenant = "t1") {
    return OpenNew(session, tenant)->last_hello().held();
  }

  const std::string bytes_ = FloatBytes(Floats(300'000, 3));
};

TEST_F(UnaskedContentsTest, TheBytesAreThereAndFoundAgain) {
  std::unique_ptr<TestClient> client = Open();
  EXPECT_THAT(client->last_hello().features(),
              testing::Contains(v1::WORKER_FEATURE_CONTENT));
  client->InstallContent(1, bytes_);
  EXPECT_EQ(client->Read(1, 2), (Floats{3, 3}));
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  // A session that asks is told so.
  std::unique_ptr<TestClient> second = Open("s2");
  second->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  // What comes again all the same is kept once.
  EXPECT_TRUE(second->WaitCompleted(second->InstallContent(2, bytes_)));
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  EXPECT_EQ(core_->contents().List().size(), 1u);
  // Another tenant's are its own.
  std::unique_ptr<TestClient> stranger = Open("s3", "t2");
  EXPECT_TRUE(stranger->WaitCompleted(stranger->InstallContent(1, bytes_)));
  EXPECT_EQ(core_->ledger().usage().used, 2 * bytes_.size());
}

TEST_F(UnaskedContentsTest, WhatATenantHasIsSaidWhenItsSessionsBegin) {
  EXPECT_EQ(HeldAtOpening("s0").samples_size(), 0);
  std::unique_ptr<TestClient> client = Open();
  client->InstallContent(1, bytes_);
  const std::string large(kMaxContentBytes + 1, 'x');
  client->InstallTransfer(2, 1, large);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, large);
  // An earlier client's.
  const std::string other(5000, 'o');
  client->InstallTransfer(3, 2, other, std::nullopt, /*sample=*/0);
  EXPECT_TRUE(client->WaitDecision(2).send());
  client->SendBytes(2, other);
  EXPECT_TRUE(client->WaitCompleted(3));
  const v1::HeldContents held = HeldAtOpening("s2");
  EXPECT_THAT(held.samples(), ElementsAre(SampleContent(bytes_)));
  EXPECT_THAT(held.sizes(), ElementsAre(5000u));
  const v1::HeldContents strangers = HeldAtOpening("s3", "t2");
  EXPECT_EQ(strangers.samples_size() + strangers.sizes_size(), 0);
  // Who takes a stream up again knows, and to some it is of no use.
  Break(client.get());
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(4, 8)));
  EXPECT_FALSE(client->last_hello().has_held());
  EXPECT_FALSE(Open("s4")->last_hello().has_held());
}

TEST_F(UnaskedContentsTest, WhoSharesContentsIsToldNothing) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallContent(1, bytes_);
  EXPECT_TRUE(client->WaitCompleted(1));
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> second = OpenNew("s2");
  EXPECT_FALSE(second->last_hello().has_held());
  EXPECT_EQ(second->content_room(), 0u);
  // One that does not know yet may still say what it has.
  second->InstallContent(1, bytes_);
  EXPECT_EQ(second->Read(1, 1), Floats{3});
}

TEST_F(UnaskedContentsTest, RoomIsAPartOfWhatThereIs) {
  std::unique_ptr<TestClient> client = Open();
  // Of the session's 8 MiB, in whole MiB.
  EXPECT_EQ(client->content_room(), 2u << 20);
  EXPECT_TRUE(client->WaitCompleted(client->InstallContent(1, bytes_)));
  EXPECT_EQ(client->content_room(), 1u << 20);
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 6 << 20)));
  EXPECT_EQ(client->content_room(), 0u);
  client->Free({2});
  EXPECT_TRUE(client->WaitCompleted(client->Create(3, 8)));
  EXPECT_EQ(client->content_room(), 1u << 20);
  // Of the device's 16 MiB others have the rest.
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  EXPECT_TRUE(other->WaitCompleted(other->Create(1, 8 << 20)));
  std::unique_ptr<TestClient> third = Open("s3", "t3");
  EXPECT_TRUE(third->WaitCompleted(third->Create(1, 4 << 20)));
  EXPECT_TRUE(client->WaitCompleted(client->Create(4, 8)));
  EXPECT_EQ(client->content_room(), 0u);
  // Whoever comes back hears it with the hello.
  Break(client.get());
  EXPECT_TRUE(third->WaitCompleted(third->Free({1})));
  Resume(client.get());
  EXPECT_TRUE(client->WaitCompleted(client->Create(5, 8)));
  EXPECT_EQ(client->content_room(), 1u << 20);
}

TEST_F(UnaskedContentsTest, WithoutRoomTheStorageIsPoisoned) {
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

TEST_F(UnaskedContentsTest, AStorageThatHadBytesTakesOthers) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({4, 5}));
  client->InstallContent(1, bytes_);
  EXPECT_EQ(client->Read(1, 2), (Floats{3, 3}));
  // Who writes to it writes to a copy.
  FakeStructure s;
  s.FillInPlace(s.Bound(), 300'000);
  client->Define(1, s.get());
  client->Run(1, {1}, {5});
  EXPECT_EQ(client->Read(1, 2), (Floats{5, 5}));
  client->InstallTransfer(2, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).already_held());
  EXPECT_EQ(client->Read(2, 2), (Floats{3, 3}));
}

TEST_F(UnaskedContentsTest, AGeneratorsStateGoesInline) {
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

TEST_F(UnaskedContentsTest, WhatIsTooSmallOrTooLargeEndsTheStream) {
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

TEST_F(UnaskedContentsTest, WhatIsOnDiskIsSaidBySize) {
  const std::string folder = testing::TempDir() + "/unasked_contents";
  std::filesystem::remove_all(folder);
  const auto restart = [&] {
    core_.reset();
    absl::StatusOr<std::unique_ptr<ContentStore>> store = ContentStore::Open(
        {.directory = folder, .limit_bytes = 64 << 20}, &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    WorkerCoreOptions options;
    options.store = *std::move(store);
    Start(options);
  };
  restart();
  {
    std::unique_ptr<TestClient> client = Open();
    client->InstallContent(1, bytes_);
    EXPECT_TRUE(client->WaitCompleted(1));
    EXPECT_TRUE(WaitUntil([&] {
      clock_.Advance(absl::Seconds(1));
      return core_->Snapshot().disk().cache().entries() == 1;
    }));
  }
  restart();
  EXPECT_THAT(HeldAtOpening("s2").sizes(), ElementsAre(bytes_.size()));
  std::unique_ptr<TestClient> client = Open("s3");
  client->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).already_held());
}

}  // namespace
}  // namespace djinn::worker
