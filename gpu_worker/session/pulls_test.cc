// Tests copies from worker to worker: two cores in one process, with a peer
// connector between them.
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_worker/pull/send_order.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"

namespace djinn::worker {
namespace {

class PullsTest : public TwoCoresTest {
 protected:
  uint64_t SendPull(TestClient* client, uint64_t storage, char ticket,
                    uint64_t bytes, const std::string& worker = "w0") {
    v1::Pull pull;
    pull.set_worker_id(worker);
    pull.set_worker_incarnation(core_->incarnation());
    pull.set_ticket(Ticket(ticket));
    pull.set_size_bytes(bytes);
    return client->InstallPull(storage, pull);
  }
  static v1::Offer RankOf(uint64_t round, double remaining_seconds) {
    v1::Offer rank;
    rank.set_round(round);
    rank.set_remaining_seconds(remaining_seconds);
    return rank;
  }
  // Expects that storage 5 has an error instead of its value.
  static void ExpectFailedPull(TestClient* client, const std::string& reason,
                               const std::string& text) {
    const v1::ErrorDetail error = client->ReadError(5);
    EXPECT_EQ(error.reason(), reason);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
  void PassTimeUntilCompleted(TestClient* client, uint64_t sequence) {
    EXPECT_TRUE(WaitUntil([&] {
      clock_.Advance(absl::Seconds(10));
      return client->completed() >= sequence;
    }));
  }
};

TEST_F(PullsTest, AValueGoesFromWorkerToWorker) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  SendPull(there.get(), 5, 'a', 8);
  EXPECT_EQ(there->Read(5, 2), (Floats{1, 2}));
  // Both may write: neither sees the other's writes.
  there->Define(1, Fill());
  there->Run(1, {5}, {7});
  EXPECT_EQ(there->Read(5, 2), (Floats{7, 7}));
  EXPECT_EQ(here->Read(1, 2), (Floats{1, 2}));
  EXPECT_EQ(core_->offers().offers(), 0u);
}

TEST_F(PullsTest, HowFastAValueCameIsTold) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  peers_->SetPace([this] { clock_.Advance(absl::Milliseconds(100)); });
  constexpr uint64_t kBytes = 3 * CoreCall::kChunkBytes;
  here->Create(1, kBytes);
  here->Offer(1, Ticket('a'));
  // The time spent waiting does not count for the link.
  clock_.Advance(absl::Seconds(1));
  SendPull(there.get(), 5, 'a', kBytes);
  const v1::PeerLink link =
      there->WaitFor([](const v1::ControlResponse& r) { return r.has_link(); })
          .link();
  EXPECT_EQ(link.worker_id(), "w0");
  EXPECT_EQ(link.bytes_per_second(), CoreCall::kChunkBytes * 10);
  const v1::WorkerState state = other_->Snapshot();
  ASSERT_EQ(state.links_size(), 1);
  EXPECT_EQ(state.links(0).worker_id(), "w0");
  EXPECT_EQ(state.links(0).bytes_per_second(), link.bytes_per_second());
}

TEST_F(PullsTest, BurstSaysNothingAboutTheLink) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  SendPull(there.get(), 5, 'a', 8);
  // The chunks arrive in no time.
  here->Create(2, 3 * CoreCall::kChunkBytes);
  here->Offer(2, Ticket('b'));
  SendPull(there.get(), 6, 'b', 3 * CoreCall::kChunkBytes);
  EXPECT_EQ(there->Read(6, 1), (Floats{0}));
  EXPECT_EQ(other_->Snapshot().links_size(), 0);
}

TEST_F(PullsTest, TheValueIsThatOfTheOffersTurn) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->Define(1, Fill());
  here->InstallInline(1, FloatBytes({1, 2}));
  // Writes in place, then frees the storage.
  here->Offer(1, Ticket('a'));
  here->Run(1, {1}, {9});
  here->Offer(1, Ticket('b'));
  EXPECT_TRUE(here->WaitCompleted(here->Free({1})));
  SendPull(there.get(), 5, 'b', 8);
  SendPull(there.get(), 6, 'a', 8);
  EXPECT_EQ(there->Read(5, 2), (Floats{9, 9}));
  EXPECT_EQ(there->Read(6, 2), (Floats{1, 2}));
  EXPECT_TRUE(here->WaitCompleted(here->Create(2, 4)));
  EXPECT_TRUE(WaitMemory(4));
}

TEST_F(PullsTest, AnInstallThatIsEarlyWaitsForItsOffer) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  std::unique_ptr<TestClient> neighbour = OpenThere("s2", "t2");
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8);
  // Meanwhile other sessions go on.
  neighbour->InstallInline(1, FloatBytes({3}));
  EXPECT_EQ(neighbour->Read(1, 1), (Floats{3}));
  EXPECT_LT(there->completed(), pull);
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  EXPECT_EQ(there->Read(5, 2), (Floats{1, 2}));
}

TEST_F(PullsTest, AnOfferBehindALongRunIsWaitedFor) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  Grant(Lease("s1", "t1"), 1000000);
  here->Define(1, Fill());
  here->InstallInline(1, FloatBytes({1, 2}));
  NodeGate gate(&device_, 1);
  here->Run(1, {1}, {9});
  here->Offer(1, Ticket('a'));
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8);
  gate.WaitReached(1);
  ASSERT_TRUE(WaitUntil([&] { return peers_->asked() > 0; }));
  // The pull lasts far beyond all time-outs of transfers, but the worker
  // reports that it works.
  for (int i = 0; i < 20; ++i) {
    const int before = peers_->waits();
    clock_.Advance(absl::Seconds(10));
    ASSERT_TRUE(WaitUntil([&] { return peers_->waits() > before; }));
  }
  EXPECT_LT(there->completed(), pull);
  gate.Open();
  EXPECT_EQ(there->Read(5, 2), (Floats{9, 9}));
}

TEST_F(PullsTest, AnOfferThatDoesNotComePoisonsAndTheSessionGoesOn) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  Grant(Lease("s1", "t1"), 1000000);
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8);
  ASSERT_TRUE(WaitUntil([&] { return peers_->asked() > 0; }));
  // The source's claim timeout ends first.
  const int before = peers_->waits();
  clock_.Advance(absl::Seconds(29));
  ASSERT_TRUE(WaitUntil([&] { return peers_->waits() > before; }));
  EXPECT_LT(there->completed(), pull);
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(there->WaitCompleted(pull));
  ExpectFailedPull(there.get(), "PULL_FAILED",
                   "worker w1 could not fetch the value from "
                   "worker w0: nothing is offered");
  there->InstallInline(5, FloatBytes({3}));
  EXPECT_EQ(there->Read(5, 1), (Floats{3}));
}

TEST_F(PullsTest, UnfetchedOfferExpires) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  Grant(Lease("s1", "t1"), 1000000);
  here->InstallInline(1, FloatBytes({1, 2}));
  EXPECT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('a'))));
  clock_.Advance(absl::Minutes(10));
  EXPECT_TRUE(here->WaitCompleted(here->Free({1})));
  EXPECT_TRUE(WaitMemory(0));
  SendPull(there.get(), 5, 'a', 8);
  ExpectFailedPull(there.get(), "PULL_FAILED", "nobody fetched");
}

TEST_F(PullsTest, AnotherOfferOfAKeptCopyReplacesTheEarlierOne) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->InstallCopy(2, 1);
  here->Offer(2, Ticket('a'));
  EXPECT_TRUE(here->WaitCompleted(here->Offer(2, Ticket('b'))));
  SendPull(there.get(), 5, 'a', 8);
  ExpectFailedPull(there.get(), "PULL_FAILED", "under another ticket");
  SendPull(there.get(), 6, 'b', 8);
  EXPECT_EQ(there->Read(6, 2), (Floats{1, 2}));
}

TEST_F(PullsTest, AKeptCopyIsNotGivenUpBeforeItIsFetched) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  const uint64_t size = 5 << 20;
  here->Create(1, size);
  here->InstallCopy(2, 1);
  here->Offer(2, Ticket('a'));
  here->Free({1});
  here->Create(3, size);
  EXPECT_EQ(here->ReadError(3).reason(), "SESSION_MEMORY");
  EXPECT_TRUE(there->WaitCompleted(SendPull(there.get(), 5, 'a', size)));
  EXPECT_EQ(there->Read(5, 1), (Floats{0}));
  here->Create(4, size);
  EXPECT_EQ(here->Read(4, 1), (Floats{0}));
  EXPECT_EQ(here->ReadError(2).reason(), "COPY_GIVEN_UP");
}

TEST_F(PullsTest, ATicketOfAnotherSessionOpensNothing) {
  std::unique_ptr<TestClient> here = Open("s1", "t1");
  std::unique_ptr<TestClient> thief = OpenThere("s2", "t2");
  here->InstallInline(1, FloatBytes({1, 2}));
  EXPECT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('a'))));
  SendPull(thief.get(), 5, 'a', 8);
  ExpectFailedPull(thief.get(), "PULL_FAILED",
                   "nothing is offered under this ticket");
  // The offer's own session still gets the value, and only once.
  std::unique_ptr<TestClient> there = OpenThere("s1", "t1");
  SendPull(there.get(), 5, 'a', 8);
  EXPECT_EQ(there->Read(5, 2), (Floats{1, 2}));
  SendPull(there.get(), 6, 'a', 8);
  EXPECT_EQ(there->ReadError(6).reason(), "PULL_FAILED");
}

TEST_F(PullsTest, AnotherSizeIsRefused) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  SendPull(there.get(), 5, 'a', 12);
  ExpectFailedPull(there.get(), "PULL_FAILED",
                   "12 bytes were asked for, the offer has 8");
}

TEST_F(PullsTest, APullWithoutRoomNamesTheLimit) {
  std::unique_ptr<TestClient> there = OpenThere();
  SendPull(there.get(), 5, 'a', 9 << 20);
  ExpectFailedPull(there.get(), "SESSION_MEMORY",
                   "limit 8388608 bytes, used 0, asked 9437184");
}

TEST_F(PullsTest, OfferedBytesCountOnceUntilTheStorageHasOthers) {
  std::unique_ptr<TestClient> here = Open();
  const uint64_t size = 5 << 20;
  here->Create(1, size);
  EXPECT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('a'))));
  EXPECT_EQ(core_->ledger().usage().used, size);
  // The storage is freed but its bytes are not, so there is no room for as
  // many.
  here->Free({1});
  here->Create(2, size);
  const v1::ErrorDetail error = here->ReadError(2);
  EXPECT_EQ(error.reason(), "SESSION_MEMORY");
  EXPECT_NE(error.message().find("used 5242880"), std::string::npos);
  std::unique_ptr<TestClient> there = OpenThere();
  EXPECT_TRUE(there->WaitCompleted(SendPull(there.get(), 5, 'a', size)));
  EXPECT_TRUE(here->WaitCompleted(here->Create(3, size)));
  EXPECT_EQ(here->Read(3, 1), (Floats{0}));
}

TEST_F(PullsTest, AnOfferYieldsWhenItsStorageIsWrittenWithoutRoom) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  const uint64_t size = 5 << 20;
  here->Define(1, Fill());
  here->Create(1, size);
  here->Offer(1, Ticket('a'));
  here->Run(1, {1}, {9});
  EXPECT_EQ(here->Read(1, 2), (Floats{9, 9}));
  EXPECT_TRUE(WaitMemory(size));
  SendPull(there.get(), 5, 'a', size);
  ExpectFailedPull(there.get(), "PULL_FAILED", "limit 8388608");
}

// Takes an offer, and keeps it for long.
class SlowClaimant : public OfferClaimant {
 public:
  void StillWaiting() override {}
  void Give(std::shared_ptr<const OfferedBytes> bytes) override {
    taken = std::move(bytes);
  }
  void Refuse(absl::Status) override {}
  std::shared_ptr<const OfferedBytes> taken;
};

TEST_F(PullsTest, OfferBeingSentIsRecalledForAWriteWithoutRoom) {
  std::unique_ptr<TestClient> here = Open();
  const uint64_t size = 5 << 20;
  here->Define(1, Fill());
  here->Create(1, size);
  ASSERT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('a'))));
  const auto claimant = std::make_shared<SlowClaimant>();
  v1::PullRequest request;
  request.set_session_id("s1");
  request.set_ticket(Ticket('a'));
  request.set_size_bytes(size);
  request.set_worker_incarnation(core_->incarnation());
  core_->Pull(request, claimant);
  ASSERT_NE(claimant->taken, nullptr);
  EXPECT_FALSE(claimant->taken->recalled);
  here->Run(1, {1}, {9});
  EXPECT_EQ(here->Read(1, 2), (Floats{9, 9}));
  EXPECT_TRUE(claimant->taken->recalled);
}

TEST_F(PullsTest, APoisonedValueBringsItsRootError) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  here->Define(1, Fill());
  here->InstallInline(1, FloatBytes({1, 2}));
  device_.SetExecuteHook([](const std::string&) {
    return absl::InternalError("the kernel threw");
  });
  here->Run(1, {1}, {9});
  const v1::ErrorDetail root = here->ReadError(1);
  here->Offer(1, Ticket('a'));
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8);
  const v1::ErrorDetail derived = there->ReadError(5);
  EXPECT_NE(root.error_id(), 0u);
  EXPECT_EQ(derived.error_id(), root.error_id());
  EXPECT_EQ(derived.message(), root.message());
  EXPECT_EQ(derived.worker_id(), "w0");
  EXPECT_EQ(derived.sequence(), pull);
}

TEST_F(PullsTest, AWorkerThatIsGoneEndsThePull) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8);
  // The worker stops after the claim, before the offer.
  core_->Shutdown();
  EXPECT_TRUE(there->WaitCompleted(pull));
  const v1::ErrorDetail error = there->ReadError(5);
  EXPECT_EQ(error.reason(), "PULL_FAILED");
  EXPECT_EQ(error.worker_id(), "w1");
}

TEST_F(PullsTest, AnUnknownWorkerIsATypedError) {
  std::unique_ptr<TestClient> there = OpenThere();
  const uint64_t pull = SendPull(there.get(), 5, 'a', 8, "evil:80");
  PassTimeUntilCompleted(there.get(), pull);
  ExpectFailedPull(there.get(), "PULL_FAILED",
                   "the coordinator has named no such worker");
}

TEST_F(PullsTest, ASessionOnOneWorkerSharesTheBytes) {
  std::unique_ptr<TestClient> first = Open();
  // The session has another lease, for another virtual device.
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.set_lease_id("second");
  Grant(lease);
  std::unique_ptr<TestClient> second = Connect(HelloFor("s1"));
  const uint64_t size = 5 << 20;
  first->Create(1, size);
  first->Offer(1, Ticket('a'));
  SendPull(second.get(), 1, 'a', size);
  EXPECT_EQ(second->Read(1, 1), (Floats{0}));
  EXPECT_EQ(core_->ledger().usage().used, size);
  first->Define(1, Fill());
  first->Run(1, {1}, {4});
  EXPECT_EQ(first->Read(1, 2), (Floats{4, 4}));
  EXPECT_EQ(second->Read(1, 2), (Floats{0, 0}));
}

TEST_F(PullsTest, AClientThatGoesLeavesNothingBehind) {
  {
    std::unique_ptr<TestClient> here = Open();
    std::unique_ptr<TestClient> there = OpenThere();
    here->Create(1, 1000);
    EXPECT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('a'))));
    SendPull(there.get(), 5, 'b', 1000);
    there->SendCancel();
    there->WaitFor(
        [](const v1::ControlResponse& r) { return r.has_cancelled(); });
  }
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_EQ(core_->offers().offers(), 0u);
  EXPECT_TRUE(WaitUntil([&] { return other_->ledger().usage().used == 0; }));
}

TEST_F(PullsTest, MalformedOfferEndsTheStream) {
  std::unique_ptr<TestClient> client = Open();
  client->InstallInline(1, FloatBytes({1}));
  client->Offer(1, "short");
  EXPECT_EQ(ErrorReason(client->WaitClosed()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> other = Open("s2");
  other->Offer(7, Ticket('a'));
  EXPECT_EQ(ErrorReason(other->WaitClosed()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> third = Open("s3");
  SendPull(third.get(), 1, 'a', 0);
  EXPECT_EQ(ErrorReason(third->WaitClosed()), "PROTOCOL_VIOLATION");
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    std::unique_ptr<TestClient> fourth = Open("s4");
    fourth->InstallInline(1, FloatBytes({1}));
    fourth->Offer(1, Ticket('a'), RankOf(1, seconds));
    EXPECT_EQ(ErrorReason(fourth->WaitClosed()), "PROTOCOL_VIOLATION");
  }
}

// A worker that claims a value and is about to receive it.
class Asker : public OfferClaimant {
 public:
  void StillWaiting() override {}
  void Give(std::shared_ptr<const OfferedBytes> bytes) override {
    given_ = std::move(bytes);
  }
  void Refuse(absl::Status why) override { ADD_FAILURE() << why; }

  scheduler::TransferRank rank() const { return given_->rank; }

 private:
  std::shared_ptr<const OfferedBytes> given_;
};

TEST_F(PullsTest, OfferOnTheLongestPathIsSentFirst) {
  std::unique_ptr<TestClient> here = Open();
  here->InstallInline(1, FloatBytes({1, 2}));
  // In the order of the program: a value whose path ends soon, one whose path
  // does not, one of the next run, and one without a remaining time.
  here->Offer(1, Ticket('a'), RankOf(1, 0.1));
  here->Offer(1, Ticket('b'), RankOf(1, 0.8));
  here->Offer(1, Ticket('c'), RankOf(2, 0.8));
  v1::Offer unknown;
  unknown.set_round(1);
  EXPECT_TRUE(here->WaitCompleted(here->Offer(1, Ticket('d'), unknown)));
  FakeClock clock;
  SendOrder order(&clock);
  std::map<char, uint64_t> senders;
  for (const char ticket : {'a', 'b', 'c', 'd'}) {
    v1::PullRequest request;
    request.set_session_id("s1");
    request.set_worker_incarnation(core_->incarnation());
    request.set_ticket(Ticket(ticket));
    request.set_size_bytes(8);
    const auto asker = std::make_shared<Asker>();
    core_->Pull(request, asker);
    SendUrgency urgency = core_->UrgencyOf("s1");
    urgency.session_id = "s1";
    urgency.rank = asker->rank();
    senders[ticket] = order.Begin(urgency);
  }
  // All want to be sent at once: only one may, and when it is over, the next
  // one.
  std::string sent;
  while (!senders.empty()) {
    std::vector<char> may;
    for (const auto& [ticket, sender] : senders) {
      if (order.MaySend(sender)) may.push_back(ticket);
    }
    ASSERT_EQ(may.size(), 1u) << sent;
    sent.push_back(may[0]);
    order.End(senders[may[0]]);
    senders.erase(may[0]);
  }
  EXPECT_EQ(sent, "dbac");
}

}  // namespace
}  // namespace djinn::worker
