// Tests offers and claims, and scripted answers of peers.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/hash/crc32c.h"
#include "gpu_worker/pull/offer_table.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using Activity = OfferTable::Activity;

const std::string kTicket(16, 't');

class Asker : public OfferClaimant {
 public:
  void StillWaiting() override { ++words; }
  void Give(std::shared_ptr<const OfferedBytes> given) override {
    ++outcomes;
    bytes = std::move(given);
  }
  void Refuse(absl::Status why) override {
    ++outcomes;
    refusal = std::move(why);
  }

  int words = 0;
  int outcomes = 0;
  std::shared_ptr<const OfferedBytes> bytes;
  absl::Status refusal;
};

class OfferTableTest : public testing::Test {
 protected:
  static std::shared_ptr<OfferedBytes> Bytes(uint64_t size = 8) {
    auto bytes = std::make_shared<OfferedBytes>();
    bytes->size_bytes = size;
    return bytes;
  }
  std::shared_ptr<Asker> Ask(const std::string& session = "s1",
                             const std::string& ticket = kTicket,
                             uint64_t size = 8) {
    v1::PullRequest request;
    request.set_session_id(session);
    request.set_ticket(ticket);
    request.set_size_bytes(size);
    auto asker = std::make_shared<Asker>();
    table_.Claim(request, asker);
    return asker;
  }
  absl::Status Offer(const std::string& session = "s1",
                     const std::string& ticket = kTicket) {
    return table_.Add(session, this, ticket, Bytes());
  }
  void Check(Activity activity) {
    table_.CheckDeadlines([activity](const std::string&) { return activity; });
  }

  FakeClock clock_;
  OfferTable table_{{.offer_timeout = absl::Minutes(10),
                     .claim_timeout = absl::Seconds(30),
                     .max_offers = 3,
                     .max_claims = 2,
                     .max_used_tickets = 2},
                    &clock_};
};

TEST_F(OfferTableTest, AnOfferIsTakenOnce) {
  ASSERT_TRUE(Offer().ok());
  EXPECT_EQ(Ask()->bytes->size_bytes, 8u);
  EXPECT_EQ(ErrorReason(Ask()->refusal), "OFFER_UNKNOWN");
  EXPECT_EQ(ErrorReason(Offer()), "PROTOCOL_VIOLATION");
  EXPECT_EQ(table_.offers(), 0u);
}

TEST_F(OfferTableTest, OffersAreNumberedInTheirOrder) {
  const std::string other(16, 'o');
  // The order of claims does not matter.
  const auto early = Ask("s1", other);
  ASSERT_TRUE(Offer("s1").ok());
  ASSERT_TRUE(Offer("s1", other).ok());
  EXPECT_GT(early->bytes->rank.number, Ask()->bytes->rank.number);
}

TEST_F(OfferTableTest, ATicketIsOneSessionsAlone) {
  ASSERT_TRUE(Offer("s1").ok());
  const auto stranger = Ask("s2");
  EXPECT_EQ(stranger->outcomes, 0);
  Check(Activity::kGone);
  EXPECT_EQ(ErrorReason(stranger->refusal), "OFFER_UNKNOWN");
  EXPECT_NE(Ask("s1")->bytes, nullptr);
}

TEST_F(OfferTableTest, AClaimWaitsForItsOffer) {
  const auto asker = Ask();
  EXPECT_EQ(asker->outcomes, 0);
  ASSERT_TRUE(Offer("s1", std::string(16, 'u')).ok());
  EXPECT_EQ(asker->outcomes, 0);
  ASSERT_TRUE(Offer().ok());
  EXPECT_NE(asker->bytes, nullptr);
  EXPECT_EQ(asker->outcomes, 1);
}

TEST_F(OfferTableTest, AClaimOutlastsASessionThatWorksButNotForEver) {
  const auto asker = Ask();
  for (int i = 0; i < 19; ++i) {
    clock_.Advance(absl::Seconds(29));
    Check(Activity::kBusy);
  }
  EXPECT_EQ(asker->outcomes, 0);
  EXPECT_EQ(asker->words, 19);
  clock_.Advance(absl::Minutes(1));
  Check(Activity::kBusy);
  EXPECT_EQ(ErrorReason(asker->refusal), "OFFER_UNKNOWN");
  const auto impatient = Ask();
  clock_.Advance(absl::Seconds(30));
  Check(Activity::kIdle);
  EXPECT_EQ(ErrorReason(impatient->refusal), "OFFER_UNKNOWN");
}

TEST_F(OfferTableTest, ExpiredOfferIsForgottenLater) {
  ASSERT_TRUE(table_.Add("s1", this, kTicket, Bytes()).ok());
  clock_.Advance(absl::Minutes(10));
  Check(Activity::kIdle);
  EXPECT_EQ(table_.offers(), 1);
  clock_.Advance(absl::Minutes(10));
  Check(Activity::kIdle);
  EXPECT_EQ(table_.offers(), 0);
}

TEST_F(OfferTableTest, UnfetchedOfferExpires) {
  auto bytes = Bytes();
  const std::weak_ptr<const OfferedBytes> held = bytes;
  ASSERT_TRUE(table_.Add("s1", this, kTicket, std::move(bytes)).ok());
  clock_.Advance(absl::Minutes(10));
  EXPECT_FALSE(held.expired());
  Check(Activity::kIdle);
  EXPECT_TRUE(held.expired());
  EXPECT_EQ(ErrorReason(Ask()->refusal), "OFFER_EXPIRED");
}

TEST_F(OfferTableTest, AnotherSizeIsRefusedAndTheTicketIsUsed) {
  ASSERT_TRUE(Offer().ok());
  EXPECT_EQ(ErrorReason(Ask("s1", kTicket, 9)->refusal), "SIZE_MISMATCH");
  EXPECT_EQ(ErrorReason(Ask()->refusal), "OFFER_UNKNOWN");
}

TEST_F(OfferTableTest, APoisonedValueHasNoSize) {
  auto bytes = std::make_shared<OfferedBytes>();
  bytes->poison = std::make_shared<const v1::ErrorDetail>();
  ASSERT_TRUE(table_.Add("s1", this, kTicket, std::move(bytes)).ok());
  EXPECT_NE(Ask()->bytes, nullptr);
}

TEST_F(OfferTableTest, AWithdrawnOfferSaysWhy) {
  ASSERT_TRUE(Offer().ok());
  EXPECT_TRUE(table_.Withdraw("s1", kTicket,
                              LimitExceeded("SESSION_MEMORY", "x", 1, 2, 3)));
  EXPECT_EQ(ErrorReason(Ask()->refusal), "SESSION_MEMORY");
  EXPECT_FALSE(table_.Withdraw("s1", kTicket, absl::OkStatus()));
}

TEST_F(OfferTableTest, EverythingIsBounded) {
  const auto ticket = [](char c) { return std::string(16, c); };
  for (const char c : {'a', 'b', 'c'}) {
    EXPECT_TRUE(Offer("s1", ticket(c)).ok());
  }
  EXPECT_EQ(ErrorReason(Offer("s1", ticket('d'))), "TOO_MANY_OFFERS");
  EXPECT_TRUE(Offer("s2", ticket('d')).ok());
  const auto first = Ask("s1", ticket('x'));
  const auto second = Ask("s1", ticket('y'));
  EXPECT_EQ(ErrorReason(Ask("s1", ticket('z'))->refusal), "TOO_MANY_PULLS");
  table_.Abandon(first.get());
  EXPECT_EQ(Ask("s1", ticket('z'))->outcomes, 0);
  table_.Shutdown(MakeError(absl::StatusCode::kUnavailable, "DRAINING", "x"));
  EXPECT_EQ(first->outcomes, 0);
  EXPECT_EQ(ErrorReason(second->refusal), "DRAINING");
}

TEST_F(OfferTableTest, OffersEndWithTheirSession) {
  ASSERT_TRUE(Offer().ok());
  table_.Leave("s1", &clock_);
  EXPECT_EQ(table_.offers(), 1u);
  table_.Leave("s1", this);
  EXPECT_EQ(table_.offers(), 0u);
}

// Peers that send scripted messages, then a scripted status.
class ScriptedPeers : public PeerConnector {
 public:
  absl::StatusOr<std::unique_ptr<PeerCall>> Open(
      const v1::Peer& peer, const v1::PullRequest& request) override {
    MutexLock lock(&mu_);
    dialled_.push_back(peer.address());
    asked_ = request;
    if (!redirecting_.empty() && peer.address() == redirecting_) {
      return std::make_unique<Redirection>(redirect_);
    }
    return std::make_unique<Call>(this);
  }

  void Say(v1::PullResponse response) {
    MutexLock lock(&mu_);
    script_.push_back(std::move(response));
  }
  void SayChunk(uint64_t offset, const std::string& bytes,
                bool checksum = true) {
    v1::PullResponse response;
    response.mutable_chunk()->set_offset(offset);
    response.mutable_chunk()->set_payload(bytes);
    if (checksum) response.mutable_chunk()->set_crc32c(Crc32c(bytes));
    Say(std::move(response));
  }
  void End(absl::Status status) {
    MutexLock lock(&mu_);
    end_ = std::move(status);
  }
  // Makes calls send nothing more and not end by themselves.
  void Hang() {
    MutexLock lock(&mu_);
    hangs_ = true;
  }
  void Encrypt() { encrypted_ = true; }
  // Answers calls to one address by the other one.
  void Redirect(const std::string& from, const std::string& to) {
    MutexLock lock(&mu_);
    redirecting_ = from;
    redirect_ = to;
  }
  void FindWorkers() { finds_workers_ = true; }
  bool finds_workers() const override { return finds_workers_; }
  std::vector<std::string> dialled() {
    MutexLock lock(&mu_);
    return dialled_;
  }
  v1::PullRequest asked() {
    MutexLock lock(&mu_);
    return asked_;
  }

 private:
  class Redirection : public MessageCall {
   public:
    explicit Redirection(std::string to) : to_(std::move(to)) {}
    bool Read(v1::PullResponse* /*response*/) override { return false; }
    absl::Status Finish() override {
      return MakeError(absl::StatusCode::kFailedPrecondition, kRedirectReason,
                       "elsewhere", {{kRedirectAddress, to_}});
    }
    void Cancel() override {}
    bool encrypted() const override { return true; }

   private:
    const std::string to_;
  };

  class Call : public MessageCall {
   public:
    explicit Call(ScriptedPeers* peers) : peers_(*peers) {}
    bool Read(v1::PullResponse* response) override {
      MutexLock lock(&peers_.mu_);
      if (said_ < peers_.script_.size()) {
        *response = peers_.script_[said_++];
        return true;
      }
      while (peers_.hangs_ && !cancelled_) peers_.changed_.Wait(&peers_.mu_);
      return false;
    }
    absl::Status Finish() override {
      MutexLock lock(&peers_.mu_);
      return cancelled_ ? absl::CancelledError("cancelled") : peers_.end_;
    }
    void Cancel() override {
      MutexLock lock(&peers_.mu_);
      cancelled_ = true;
      peers_.changed_.SignalAll();
    }
    bool encrypted() const override { return peers_.encrypted_; }

   private:
    ScriptedPeers& peers_;
    size_t said_ = 0;
    bool cancelled_ = false;
  };

  Mutex mu_;
  CondVar changed_;
  std::vector<v1::PullResponse> script_ ABSL_GUARDED_BY(mu_);
  absl::Status end_ ABSL_GUARDED_BY(mu_);
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
  bool encrypted_ = false;
  bool finds_workers_ = false;
  std::string redirecting_ ABSL_GUARDED_BY(mu_);
  std::string redirect_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> dialled_ ABSL_GUARDED_BY(mu_);
  v1::PullRequest asked_ ABSL_GUARDED_BY(mu_);
};

class Receiver : public PullReceiver {
 public:
  void OnWaiting() override { Note("waiting"); }
  absl::Status OnBytes(uint64_t offset, absl::string_view bytes) override {
    MutexLock lock(&mu_);
    EXPECT_EQ(offset, bytes_.size());
    bytes_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  void OnComplete() override { Note("complete"); }
  void OnShared(std::shared_ptr<Buffer>) override { Note("shared"); }
  void OnPoisoned(v1::ErrorDetail error) override { Note(error.reason()); }
  void OnFailed(absl::Status why) override {
    const std::string reason = ErrorReason(why);
    Note(reason.empty() ? absl::StatusCodeToString(why.code()) : reason);
  }

  // Returns the next event; empty when none occurs for long.
  std::string Next() {
    MutexLock lock(&mu_);
    for (int i = 0; i < 100 && notes_.size() <= taken_; ++i) {
      changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    }
    return notes_.size() > taken_ ? notes_[taken_++] : "";
  }
  std::string bytes() {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  void Note(absl::string_view what) {
    MutexLock lock(&mu_);
    notes_.emplace_back(what);
    changed_.SignalAll();
  }

  Mutex mu_;
  CondVar changed_;
  std::string bytes_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mu_);
  size_t taken_ = 0;
};

class PeerPullsTest : public testing::Test {
 protected:
  static constexpr uint64_t kIncarnation = 5;

  PeerPullsTest() { pulls_.SetConnector(&peers_); }

  void Name(const std::string& worker, const std::string& address,
            uint64_t incarnation = kIncarnation) {
    v1::DesiredState desired;
    v1::Peer* const peer = desired.add_peers();
    peer->set_worker_id(worker);
    peer->set_incarnation(incarnation);
    peer->set_address(address);
    pulls_.Learn(desired);
  }
  std::shared_ptr<Receiver> Pull(uint64_t size,
                                 const std::string& worker = "w1") {
    v1::PullRequest request;
    request.set_session_id("s1");
    request.set_ticket(kTicket);
    request.set_size_bytes(size);
    request.set_worker_incarnation(kIncarnation);
    auto receiver = std::make_shared<Receiver>();
    pulls_.Start(worker, request, receiver);
    return receiver;
  }

  FakeClock clock_;
  OfferTable offers_{{}, &clock_};
  ScriptedPeers peers_;
  PeerPulls pulls_{"w0", kIncarnation, &offers_};
};

TEST_F(PeerPullsTest, BytesComeFromWhereTheCoordinatorSays) {
  Name("w1", "unix:/w1");
  Name("w2", "unix:/w2");
  v1::PullResponse waiting;
  waiting.mutable_waiting();
  peers_.Say(waiting);
  peers_.SayChunk(0, "hello");
  peers_.SayChunk(5, " you");
  const auto receiver = Pull(9);
  EXPECT_EQ(receiver->Next(), "waiting");
  EXPECT_EQ(receiver->Next(), "complete");
  EXPECT_EQ(receiver->bytes(), "hello you");
  EXPECT_EQ(peers_.dialled(), std::vector<std::string>{"unix:/w1"});
  EXPECT_EQ(peers_.asked().ticket(), kTicket);
}

TEST_F(PeerPullsTest, AWorkerThatIsNotNamedIsNeverDialled) {
  Name("w1", "unix:/old", kIncarnation - 1);
  peers_.SayChunk(0, "x");
  const auto receiver = Pull(1);
  EXPECT_FALSE(pulls_.Knows("w9"));
  Name("w1", "unix:/new");
  EXPECT_EQ(receiver->Next(), "complete");
  EXPECT_EQ(peers_.dialled(), std::vector<std::string>{"unix:/new"});
  // The fetch is given up before the coordinator named the worker.
  const auto abandoned = Pull(1, "w9");
  pulls_.Cancel(abandoned.get());
  EXPECT_EQ(abandoned->Next(), "CANCELLED");
  EXPECT_EQ(peers_.dialled().size(), 1u);
}

TEST_F(PeerPullsTest, AWorkerNamesTheProcessThatHasTheSession) {
  Name("w1", "unix:/w1");
  peers_.Redirect("unix:/w1", "unix:/w1.2");
  peers_.SayChunk(0, "x");
  EXPECT_EQ(Pull(1)->Next(), "complete");
  EXPECT_EQ(peers_.dialled(),
            (std::vector<std::string>{"unix:/w1", "unix:/w1.2"}));
  // A worker sends nobody in circles.
  peers_.Redirect("unix:/w1", "unix:/w1");
  EXPECT_EQ(Pull(1)->Next(), "EXECUTOR_REDIRECT");
  peers_.Redirect("unix:/w1", "");
  EXPECT_EQ(Pull(1)->Next(), "PROTOCOL_VIOLATION");
}

TEST_F(PeerPullsTest, ReceiverIsReleasedAfterTheLastFetch) {
  Name("w1", "unix:/w1");
  peers_.SayChunk(0, "x");
  auto receiver = Pull(1);
  EXPECT_EQ(receiver->Next(), "complete");
  const std::weak_ptr<PullReceiver> kept = receiver;
  receiver.reset();
  for (const Patience patience; !kept.expired();) patience.Yield();
}

TEST_F(PeerPullsTest, AConnectorMayFindWorkersItself) {
  peers_.FindWorkers();
  peers_.SayChunk(0, "x");
  EXPECT_TRUE(pulls_.Knows("w9"));
  EXPECT_EQ(Pull(1, "w9")->Next(), "complete");
  EXPECT_EQ(peers_.dialled(), std::vector<std::string>{""});
}

TEST_F(PeerPullsTest, UnexpectedBytesAreAnError) {
  Name("w1", "unix:/w1");
  const auto outcome = [&](uint64_t size) { return Pull(size)->Next(); };
  peers_.End(MakeError(absl::StatusCode::kNotFound, "OFFER_UNKNOWN", "x"));
  EXPECT_EQ(outcome(4), "OFFER_UNKNOWN");
  peers_.End(absl::OkStatus());
  peers_.SayChunk(0, "hello");
  EXPECT_EQ(outcome(4), "PROTOCOL_VIOLATION");  // too much
  EXPECT_EQ(outcome(6), "PROTOCOL_VIOLATION");  // too little
  peers_.SayChunk(6, "x");
  EXPECT_EQ(outcome(7), "PROTOCOL_VIOLATION");  // a gap
}

TEST_F(PeerPullsTest, BytesThatChangedOnTheWayAreNoticed) {
  Name("w1", "unix:/w1");
  v1::PullResponse response;
  response.mutable_chunk()->set_payload("hello");
  response.mutable_chunk()->set_crc32c(Crc32c("hallo"));
  peers_.Say(response);
  EXPECT_EQ(Pull(5)->Next(), "CHUNK_CORRUPT");
}

TEST_F(PeerPullsTest, OnlyEncryptionReplacesChecksums) {
  Name("w1", "unix:/w1");
  peers_.SayChunk(0, "hello", /*checksum=*/false);
  EXPECT_EQ(Pull(5)->Next(), "PROTOCOL_VIOLATION");
  peers_.Encrypt();
  EXPECT_EQ(Pull(5)->Next(), "complete");
}

TEST_F(PeerPullsTest, ARootErrorComesInPlaceOfBytes) {
  Name("w1", "unix:/w1");
  v1::PullResponse response;
  response.mutable_poisoned()->set_reason("OPERATOR_FAILED");
  peers_.Say(response);
  EXPECT_EQ(Pull(5)->Next(), "OPERATOR_FAILED");
}

TEST_F(PeerPullsTest, ACallThatHangsEndsWhenItIsGivenUp) {
  Name("w1", "unix:/w1");
  peers_.Hang();
  peers_.SayChunk(0, "h");
  const auto receiver = Pull(5);
  for (Patience patience; receiver->bytes().empty();) patience.Yield();
  pulls_.Cancel(receiver.get());
  EXPECT_EQ(receiver->Next(), "CANCELLED");
  // Shutdown() cancels the other fetch.
  const auto other = Pull(5);
  pulls_.Shutdown();
  EXPECT_EQ(other->Next(), "CANCELLED");
}

TEST_F(PeerPullsTest, LocalOfferIsShared) {
  const auto receiver = Pull(4, "w0");
  auto bytes = std::make_shared<OfferedBytes>();
  bytes->size_bytes = 4;
  ASSERT_TRUE(offers_.Add("s1", this, kTicket, std::move(bytes)).ok());
  EXPECT_EQ(receiver->Next(), "shared");
  EXPECT_TRUE(peers_.dialled().empty());
  const auto abandoned = Pull(4, "w0");
  EXPECT_EQ(abandoned->Next(), "OFFER_UNKNOWN");  // the ticket was used
}

}  // namespace
}  // namespace djinn::worker
