// Tests contents across tenants: tenants that opted in share them, after a
// proof.
#include <memory>
#include <string>

#include "common/hash/content_proof.h"
#include "common/metrics/exposition.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

class ProofsTest : public WorkerCoreTest {
 protected:
  // Opens a session of the tenant that uploads the bytes as storage 1.
  std::unique_ptr<TestClient> Bring(const std::string& session,
                                    const std::string& tenant,
                                    const std::string& bytes) {
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

  // Sends a proof of `mac` for transfer `id`, and returns the decision.
  v1::TransferDecision Prove(TestClient* client, uint64_t id,
                             const std::string& mac) {
    EXPECT_TRUE(client->WaitDecision(id).has_prove());
    client->SendProof(id, mac);
    return client->WaitOutcome(id);
  }
  std::string KeyOf(TestClient* client, uint64_t id) {
    return client->WaitDecision(id).prove().key();
  }

  const std::string bytes_ = FloatBytes(Floats(5000, 3));
};

TEST_F(ProofsTest, ProofOfPossessionSharesTheContent) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  other->InstallTransfer(1, 1, bytes_);
  const v1::TransferDecision outcome =
      Prove(other.get(), 1, ProveContent(KeyOf(other.get(), 1), bytes_));
  EXPECT_TRUE(outcome.already_held());
  EXPECT_EQ(other->Read(1, 2), (Floats{3, 3}));
  // The content is in memory once.
  EXPECT_EQ(core_->ledger().usage().used, bytes_.size());
  EXPECT_EQ(core_->contents().stats().adoptions, 1u);
  // The content is the tenant's own from now on, whichever tenants share.
  Share({});
  std::unique_ptr<TestClient> again = Open("s3", "t2");
  again->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(again->WaitDecision(1).already_held());
}

TEST_F(ProofsTest, BothTenantsMustShare) {
  for (const std::vector<std::string>& sharing :
       {std::vector<std::string>{}, {"t1"}}) {
    Share(sharing);
    const std::string name = std::to_string(sharing.size());
    const std::string bytes(5000, static_cast<char>('a' + sharing.size()));
    std::unique_ptr<TestClient> owner = Bring("o" + name, "t1", bytes);
    std::unique_ptr<TestClient> other = Open("x" + name, "t2");
    other->InstallTransfer(1, 1, bytes);
    EXPECT_TRUE(other->WaitDecision(1).send());
  }
  // A tenant that shares is asked for a proof, but does not get a content of a
  // tenant that does not share.
  Share({"t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  other->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(Prove(other.get(), 1, ProveContent(KeyOf(other.get(), 1), bytes_))
                  .send());
}

TEST_F(ProofsTest, ATenantThatSharesNoLongerIsNotShared) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  Share({"t2"});
  std::unique_ptr<TestClient> other = Open("s2", "t2");
  other->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(Prove(other.get(), 1, ProveContent(KeyOf(other.get(), 1), bytes_))
                  .send());
}

TEST_F(ProofsTest, AWrongProofLooksLikeAMiss) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  const std::string guess(kContentMacBytes, 'x');
  std::unique_ptr<TestClient> thief = Open("s2", "t2");
  // A client that cannot prove the bytes sees no difference between a present
  // and an absent content.
  const std::string absent(bytes_.size(), 'n');
  thief->InstallTransfer(1, 1, bytes_);
  v1::TransferDecision here = Prove(thief.get(), 1, guess);
  thief->SendBytes(1, bytes_);
  thief->InstallTransfer(2, 2, absent);
  v1::TransferDecision missing = Prove(thief.get(), 2, guess);
  thief->SendBytes(2, absent);
  EXPECT_TRUE(thief->WaitCompleted(2));
  missing.set_transfer_id(1);
  EXPECT_EQ(here.SerializeAsString(), missing.SerializeAsString());
  EXPECT_TRUE(here.send());
  // The bytes that it sent after all are its own.
  EXPECT_EQ(core_->contents().stats().adoptions, 0u);
  EXPECT_EQ(core_->ledger().usage().used, 3 * bytes_.size());
}

TEST_F(ProofsTest, AProofIsForOneTransferOfOneSession) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> a = Open("s2", "t2");
  std::unique_ptr<TestClient> b = Open("s3", "t2");
  a->InstallTransfer(1, 1, bytes_);
  b->InstallTransfer(1, 1, bytes_);
  const std::string of_a = ProveContent(KeyOf(a.get(), 1), bytes_);
  // The proof was made with another session's key.
  EXPECT_TRUE(Prove(b.get(), 1, of_a).send());
  EXPECT_TRUE(Prove(a.get(), 1, of_a).already_held());
  // A repeated proof changes nothing, and is no violation: the network may have
  // cut the stream.
  a->SendProof(1, of_a);
  EXPECT_EQ(a->Read(1, 1), (Floats{3}));
}

TEST_F(ProofsTest, AReplayedProofIsWrong) {
  // The client announces a second content of the same length with the same
  // hash, whose bytes are not here.
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> client = Open("s2", "t2");
  client->InstallTransfer(1, 1, bytes_);
  const std::string first_key = KeyOf(client.get(), 1);
  const std::string proof = ProveContent(first_key, bytes_);
  EXPECT_TRUE(Prove(client.get(), 1, std::string(16, 'x')).send());
  client->SendBytes(1, std::string(bytes_.size(), 'n'));
  EXPECT_TRUE(client->WaitCompleted(1));
  client->InstallTransfer(2, 2, bytes_);
  EXPECT_NE(KeyOf(client.get(), 2), first_key);
  EXPECT_TRUE(Prove(client.get(), 2, proof).send());
}

TEST_F(ProofsTest, AProofOfAnotherLengthIsWrong) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> client = Open("s2", "t2");
  // The announced hash is that of a present content of another length.
  const ContentHash hash = HashContent(bytes_.data(), bytes_.size());
  client->InstallTransfer(1, 1, bytes_ + "more", hash);
  EXPECT_TRUE(
      Prove(client.get(), 1, ProveContent(KeyOf(client.get(), 1), bytes_))
          .send());
  client->SendBytes(1, bytes_ + "more");
  EXPECT_TRUE(client->WaitCompleted(1));
  // The proof covers only a part of the bytes.
  client->InstallTransfer(2, 2, bytes_);
  EXPECT_TRUE(Prove(client.get(), 2,
                    ProveContent(KeyOf(client.get(), 2), bytes_.substr(1)))
                  .send());
}

TEST_F(ProofsTest, AProofThatDoesNotComeInTimeIsAMiss) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  Grant(Lease("s2", "t2"), 1000000);
  Grant(Lease("s1", "t1"), 1000000);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s2"));
  client->InstallTransfer(1, 1, bytes_);
  const std::string key = KeyOf(client.get(), 1);
  clock_.Advance(absl::Seconds(31));
  EXPECT_TRUE(client->WaitOutcome(1).send());
  // The proof comes too late, and has no effect.
  client->SendProof(1, ProveContent(key, bytes_));
  client->SendBytes(1, bytes_);
  EXPECT_EQ(client->Read(1, 1), (Floats{3}));
  EXPECT_EQ(core_->contents().stats().adoptions, 0u);
}

TEST_F(ProofsTest, ContentUnderProofIsNotEvicted) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> client = Open("s2", "t2");
  client->InstallTransfer(1, 1, bytes_);
  const std::string key = KeyOf(client.get(), 1);
  // No storage uses the content any more, and its memory is needed.
  EXPECT_TRUE(owner->WaitCompleted(owner->Free({1})));
  std::unique_ptr<TestClient> hungry = Open("s3", "t1");
  const uint64_t all = (8 << 20) - 4096;
  std::unique_ptr<TestClient> hungrier = Open("s4", "t1");
  hungry->Create(1, all);
  hungrier->Create(1, all);
  EXPECT_TRUE(hungry->WaitCompleted(1));
  EXPECT_TRUE(hungrier->WaitCompleted(1));
  EXPECT_TRUE(Prove(client.get(), 1, ProveContent(key, bytes_)).already_held());
  EXPECT_EQ(client->Read(1, 1), (Floats{3}));
}

TEST_F(ProofsTest, AChallengeEndsWithItsSession) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  EXPECT_TRUE(owner->WaitCompleted(owner->Free({1})));
  {
    std::unique_ptr<TestClient> client = Open("s2", "t2");
    client->InstallTransfer(1, 1, bytes_);
    KeyOf(client.get(), 1);
  }
  // Nothing holds the content any more.
  EXPECT_TRUE(WaitUntil(
      [&] { return core_->contents().stats().idle_bytes == bytes_.size(); }));
}

TEST_F(ProofsTest, OutstandingChallengesAreBounded) {
  WorkerCoreOptions options;
  options.max_challenges = 1;
  Start(options);
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> a = Open("s1", "t1");
  std::unique_ptr<TestClient> b = Open("s2", "t2");
  a->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(a->WaitDecision(1).has_prove());
  // The client is not asked for a proof and sends its bytes.
  b->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(b->WaitDecision(1).send());
}

TEST_F(ProofsTest, TheWorkIsChargedToWhoAsks) {
  v1::LeaseClaims lease = Lease("s2", "t2");
  lease.mutable_limits()->set_memory_bytes(uint64_t{1} << 40);
  Share({"t2"});
  Grant(lease);
  std::unique_ptr<TestClient> client = Connect(HelloFor("s2"));
  // There is no such content. The clock stands still, but the work takes
  // processor time.
  const std::string bytes(4 << 20, 'x');
  client->InstallTransfer(1, 1, bytes);
  EXPECT_TRUE(Prove(client.get(), 1, std::string(16, 'x')).send());
  const v1::WorkerState state = core_->Snapshot();
  ASSERT_EQ(state.sessions_size(), 1);
  EXPECT_GT(state.sessions(0).lease_use().device_time().nanos(), 0);
  // The work is part of no turn, and counted by itself.
  EXPECT_EQ(state.executed().device_time().nanos(), 0);
  EXPECT_THAT(
      Metrics(),
      testing::Not(testing::HasSubstr("djinn_worker_proof_seconds_total 0\n")));
}

TEST_F(ProofsTest, ContentBeyondTheSessionsLimitIsRefusedWithoutProof) {
  Share({"t1"});
  std::unique_ptr<TestClient> client = Open("s1", "t1");
  client->InstallTransfer(1, 1, std::string(9 << 20, 'x'));
  EXPECT_EQ(client->WaitDecision(1).refused().reason(), "SESSION_MEMORY");
}

TEST_F(ProofsTest, UnrequestedProofEndsTheStream) {
  std::unique_ptr<TestClient> client = Open("s1", "t1");
  client->SendProof(1, std::string(kContentMacBytes, 'x'));
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(ProofsTest, AProofOfAnotherSizeEndsTheStream) {
  Share({"t1"});
  std::unique_ptr<TestClient> client = Open("s1", "t1");
  client->InstallTransfer(1, 1, bytes_);
  EXPECT_TRUE(client->WaitDecision(1).has_prove());
  client->SendProof(1, "short");
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(ProofsTest, AChallengeOutlivesItsStream) {
  Share({"t1", "t2"});
  std::unique_ptr<TestClient> owner = Bring("s1", "t1", bytes_);
  std::unique_ptr<TestClient> client = Open("s2", "t2");
  client->InstallTransfer(1, 1, bytes_);
  const std::string key = KeyOf(client.get(), 1);
  Break(client.get());
  Resume(client.get(), "s2");
  client->SendProof(1, ProveContent(key, bytes_));
  EXPECT_TRUE(client->WaitOutcome(1).already_held());
}

}  // namespace
}  // namespace djinn::worker
