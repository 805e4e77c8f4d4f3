// Uploads whose hash comes with the bytes, or when it is asked for.
#include <filesystem>
#include <memory>
#include <string>

#include "common/content_proof.h"
#include "gpu_worker/core/core_fixture.h"

namespace djinn::worker {
namespace {

class LateHashesTest : public WorkerCoreTest {
 protected:
  // The tenant has the bytes in memory: another session's storage 1.
  std::unique_ptr<TestClient> Bring(const std::string& bytes,
                                    const std::string& session = "owner",
                                    const std::string& tenant = "t1") {
    std::unique_ptr<TestClient> client = Open(session, tenant);
    client->InstallTransfer(1, 1, bytes);
    v1::TransferDecision decision = client->WaitDecision(1);
    if (decision.has_prove()) {
      client->SendProof(1, ProveContent(decision.prove().key(), bytes));
      decision = client->WaitOutcome(1);
    }
    EXPECT_TRUE(decision.send());
    client->SendBytes(1, bytes);
    EXPECT_TRUE(client->WaitCompleted(1));
    return client;
  }
  // What is said to a hash that was asked for.
  v1::TransferDecision SayHash(TestClient* client, uint64_t id,
                               const std::string& bytes) {
    EXPECT_TRUE(client->WaitDecision(id).hash());
    client->SendHash(id, HashOf(bytes));
    return client
        ->WaitFor([&](const v1::ControlResponse& r) {
          return r.transfer().transfer_id() == id && !r.transfer().hash();
        })
        .transfer();
  }
  static ContentHash HashOf(const std::string& bytes) {
    return HashContent(bytes.data(), bytes.size());
  }
  static std::string Value(TestClient* client, uint64_t storage, size_t size,
                           uint64_t transfer_id) {
    srg::TensorView view;
    view.data_type = srg::DataType::kUint8;
    view.sizes = {static_cast<int64_t>(size)};
    view.strides = {1};
    client->SendRead(storage, view, transfer_id);
    return client->WaitBulk(transfer_id, size);
  }

  const std::string bytes_ = FloatBytes(Floats(300'000, 3));
};

TEST_F(LateHashesTest, BytesAreInstalledOnceTheirHashIsThere) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes_);
  client->SendHash(1, HashOf(bytes_));
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
  // Found again by those who hash first.
  std::unique_ptr<TestClient> second = Open("s2");
  second->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(second->WaitDecision(1).already_held());
  EXPECT_EQ(core_->contents().stats().misses, 1u);
}

TEST_F(LateHashesTest, TheHashMayOvertakeTheBytes) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendHash(1, HashOf(bytes_));
  client->SendBytes(1, bytes_);
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
  // Said again it changes nothing: the network may have cut the stream.
  client->SendHash(1, HashOf(bytes_));
  EXPECT_TRUE(client->WaitCompleted(client->Create(2, 8)));
}

TEST_F(LateHashesTest, WhatMayBeHereIsNotSentBeforeItsHashIsKnown) {
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(SayHash(client.get(), 1, bytes_).already_held());
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  EXPECT_EQ(core_->contents().stats().hits, 1u);
  // Another tenant's bytes ask no questions.
  std::unique_ptr<TestClient> stranger = Open("s2", "t2");
  stranger->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(stranger->WaitDecision(1).send());
}

TEST_F(LateHashesTest, BytesThatOnlyLookAlikeAreTheirOwn) {
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::string other = bytes_;
  other[100'000] ^= 1;
  ASSERT_EQ(SampleContent(other), SampleContent(bytes_));
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, other);
  EXPECT_TRUE(SayHash(client.get(), 1, other).send());
  client->SendBytes(1, other);
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, other.size(), 2) == other);
  EXPECT_TRUE(Value(owner.get(), 1, bytes_.size(), 2) == bytes_);
  EXPECT_EQ(core_->contents().List().size(), 2u);
  EXPECT_EQ(core_->contents().stats().hits, 0u);
}

TEST_F(LateHashesTest, ASampleThatIsAnothersNeverBringsOtherBytes) {
  // What a sample says decides nothing: neither when the bytes are here, nor
  // when they are not.
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::unique_ptr<TestClient> client = Open();
  const std::string other = FloatBytes(Floats(300'000, 4));
  client->AnnounceTransfer(1, 1, other, SampleContent(bytes_));
  EXPECT_TRUE(SayHash(client.get(), 1, other).send());
  client->SendBytes(1, other);
  EXPECT_TRUE(client->WaitCompleted(1));
  EXPECT_TRUE(Value(client.get(), 1, other.size(), 2) == other);
  const uint64_t again = client->AnnounceTransfer(3, 3, bytes_, 4711);
  EXPECT_TRUE(client->WaitDecision(3).send());
  client->SendBytes(3, bytes_);
  client->SendHash(3, HashOf(bytes_));
  EXPECT_TRUE(client->WaitCompleted(again));
  // The copy that came is dropped for the one that was here.
  EXPECT_EQ(core_->contents().List().size(), 2u);
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size() + other.size());
}

TEST_F(LateHashesTest, WhereNoSampleWasSaidTheHashIsAskedForBySize) {
  std::unique_ptr<TestClient> older = Open("older");
  const std::string other = FloatBytes(Floats(300'000, 4));
  older->InstallTransfer(1, 1, other, HashOf(other), /*sample=*/0);
  EXPECT_TRUE(older->WaitDecision(1).send());
  older->SendBytes(1, other);
  EXPECT_TRUE(older->WaitCompleted(1));
  std::unique_ptr<TestClient> client = Open();
  client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(SayHash(client.get(), 1, bytes_).send());
  client->SendBytes(1, bytes_);
  // Of another size there is nothing.
  const std::string longer = bytes_ + "longer";
  client->AnnounceTransfer(2, 2, longer);
  EXPECT_TRUE(client->WaitDecision(2).send());
  client->SendBytes(2, longer);
  client->SendHash(2, HashOf(longer));
  client->AnnounceTransfer(3, 3, "none of that size", 0);
  EXPECT_TRUE(client->WaitDecision(3).hash());
}

TEST_F(LateHashesTest, BytesThatDoNotHaveTheHashAreKeptUnderTheirOwn) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes_);
  client->SendHash(1, {1, 2});
  // The first one counts.
  client->SendHash(1, HashOf(bytes_));
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 11) == bytes_);
  ASSERT_EQ(core_->contents().List().size(), 1u);
  EXPECT_EQ(core_->contents().List()[0].hash, HashOf(bytes_));
  // Likewise where it was said beforehand: what is here is not looked at, as it
  // has another one, and turns out to be the same.
  const uint64_t second = client->AnnounceTransfer(2, 2, bytes_);
  EXPECT_TRUE(client->WaitDecision(2).hash());
  client->SendHash(2, {1, 2});
  EXPECT_TRUE(client->WaitOutcome(2).send());
  client->SendBytes(2, bytes_);
  EXPECT_TRUE(client->WaitCompleted(second));
  EXPECT_TRUE(Value(client.get(), 2, bytes_.size(), 12) == bytes_);
  EXPECT_EQ(core_->contents().List().size(), 1u);
}

TEST_F(LateHashesTest, WithoutAHashTheTransferIsGivenUp) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes_);
  Grant(Lease("s1", "t1"), 1000000);
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Seconds(31));
    return client->completed() == install;
  }));
  EXPECT_EQ(client->ReadError(1).reason(), "TRANSFER_TIMEOUT");
  EXPECT_TRUE(WaitMemory(0));
  // It comes too late, and changes nothing.
  client->SendHash(1, HashOf(bytes_));
  client->InstallInline(1, FloatBytes({3}));
  EXPECT_EQ(client->Read(1, 1), (Floats{3}));
}

TEST_F(LateHashesTest, AHashThatIsAskedForInVainComesWithTheBytes) {
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::unique_ptr<TestClient> client = Open();
  Grant(Lease("s1", "t1"), 1000000);
  Grant(Lease("owner", "t1"), 1000000);
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).hash());
  // Once: what is asked for in vain then has as long for its bytes.
  clock_.Advance(absl::Seconds(31));
  EXPECT_TRUE(
      WaitUntil([&] { return client->responses().back().transfer().send(); }));
  client->SendHash(1, HashOf(bytes_));
  client->SendBytes(1, bytes_);
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
  EXPECT_EQ(core_->contents().List().size(), 1u);
}

TEST_F(LateHashesTest, WhoSharesIsAlwaysAsked) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  // What another tenant has, and what nobody has: no difference.
  const std::string absent = FloatBytes(Floats(300'000, 4));
  other->AnnounceTransfer(1, 1, bytes_);
  const v1::TransferDecision here = other->WaitDecision(1);
  EXPECT_TRUE(SayHash(other.get(), 1, bytes_).has_prove());
  other->SendProof(1, std::string(kContentMacBytes, 'x'));
  EXPECT_TRUE(other->WaitOutcome(1).send());
  other->SendBytes(1, bytes_);
  EXPECT_TRUE(other->WaitCompleted(1));
  other->AnnounceTransfer(2, 2, absent);
  v1::TransferDecision missing = other->WaitDecision(2);
  EXPECT_TRUE(SayHash(other.get(), 2, absent).has_prove());
  missing.set_transfer_id(1);
  EXPECT_EQ(here.SerializeAsString(), missing.SerializeAsString());
  // The bytes that it sent are its own: nothing was proven.
  EXPECT_EQ(core_->contents().stats().adoptions, 0u);
}

TEST_F(LateHashesTest, WhatTheSessionMayNotHaveIsRefusedUnasked) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({4, 5}));
  client->AnnounceTransfer(1, 1, std::string(9 << 20, 'x'), 0);
  EXPECT_EQ(client->WaitDecision(1).refused().reason(), "SESSION_MEMORY");
  EXPECT_EQ(client->Read(1, 2), (Floats{4, 5}));
}

TEST_F(LateHashesTest, AHashThatNobodyWaitsForEndsTheStream) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallTransfer(1, 1, bytes_);
  client->WaitDecision(1);
  // Its hash is known.
  client->SendHash(1, HashOf(bytes_));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> other = Open("s2");
  other->SendHash(7, HashOf(bytes_));
  EXPECT_EQ(ErrorReason(other->WaitClosed()), "PROTOCOL_VIOLATION");
  EXPECT_TRUE(WaitMemory(0));
}

TEST_F(LateHashesTest, AHashThatFollowsIsNotThereAlready) {
  std::unique_ptr<TestClient> client = Open();
  v1::Ordered message;
  v1::Transfer* const transfer = message.mutable_install()->mutable_transfer();
  message.mutable_install()->set_storage(1);
  transfer->set_transfer_id(1);
  transfer->set_size_bytes(8);
  transfer->set_hash_low(3);
  transfer->set_hash_follows(true);
  client->Send(std::move(message));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(LateHashesTest, AHashLostWithItsStreamIsSaidAgain) {
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).send());
  client->SendBytes(1, bytes_);
  // Breaking loses what is on its way; what is lost is sent again.
  EXPECT_TRUE(WaitUntil([&] {
    client->Break();
    Resume(client.get());
    const uint64_t here = client->last_hello().transfer().received_bytes();
    if (here == bytes_.size()) return true;
    client->SendBytes(1, bytes_, here);
    return false;
  }));
  // All is here but the hash.
  EXPECT_EQ(client->last_hello().transfer().transfer_id(), 1u);
  EXPECT_LT(client->completed(), install);
  EXPECT_TRUE(core_->contents().List().empty());
  client->SendHash(1, HashOf(bytes_));
  EXPECT_TRUE(client->WaitCompleted(install));
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
}

TEST_F(LateHashesTest, AQuestionForAHashOutlivesItsStream) {
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  std::unique_ptr<TestClient> client = Open();
  const uint64_t install = client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).hash());
  Break(client.get());
  Resume(client.get());
  client->SendHash(1, HashOf(bytes_));
  EXPECT_TRUE(client->WaitOutcome(1).already_held());
  EXPECT_TRUE(client->WaitCompleted(install));
}

TEST_F(LateHashesTest, WhatIsCancelledOrDroppedLeavesNothing) {
  std::unique_ptr<TestClient> owner = Bring(bytes_);
  const uint64_t held = core_->ledger().usage().used;
  const std::string other = FloatBytes(Floats(300'000, 4));
  int count = 0;
  for (const bool cancel : {true, false}) {
    // Halfway, complete but for the hash, and asked for it.
    for (const size_t sent : {kBulkChunkBytes, other.size(), size_t{0}}) {
      const std::string session = "s" + std::to_string(++count);
      std::unique_ptr<TestClient> client = Open(session);
      client->AnnounceTransfer(1, 1, sent == 0 ? bytes_ : other);
      EXPECT_EQ(client->WaitDecision(1).hash(), sent == 0);
      client->SendBytes(1, other, 0, sent);
      if (cancel) {
        client->SendCancel();
        client->WaitFor(
            [](const v1::ControlResponse& r) { return r.has_cancelled(); });
        client->SendHash(1, HashOf(other));
      } else {
        v1::DesiredState dropped = Agreed();
        dropped.add_drop_session_ids(session);
        core_->Apply(dropped);
        client->WaitClosed().IgnoreError();
      }
      EXPECT_TRUE(WaitMemory(held));
    }
  }
  EXPECT_EQ(core_->contents().List().size(), 1u);
}

TEST_F(LateHashesTest, WhatMayBeOnDiskIsAskedForItsHash) {
  const std::string folder = testing::TempDir() + "/late_hashes";
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
    std::unique_ptr<TestClient> owner = Bring(bytes_);
    EXPECT_TRUE(WaitUntil([&] {
      clock_.Advance(absl::Seconds(1));
      return core_->Snapshot().disk().cache().entries() == 1;
    }));
  }
  restart();
  std::unique_ptr<TestClient> client = Open();
  client->AnnounceTransfer(1, 1, bytes_);
  EXPECT_TRUE(SayHash(client.get(), 1, bytes_).already_held());
  EXPECT_TRUE(Value(client.get(), 1, bytes_.size(), 2) == bytes_);
  EXPECT_EQ(core_->Snapshot().disk().cache().hits(), 1u);
}

}  // namespace
}  // namespace djinn::worker
