// Tests sessions that leave one worker for another: two cores in one process.
#include <memory>
#include <string>
#include <utility>

#include "common/hash/crc32c.h"
#include "djinn/v1/session_state.pb.h"
#include "gpu_worker/testing/core_fixture.h"
#include "gpu_worker/testing/core_peers.h"

namespace djinn::worker {
namespace {

class MigrationTest : public TwoCoresTest {
 protected:
  ~MigrationTest() override { other_->Shutdown(); }

  // Has the client's session leave w0; returns the answer.
  static v1::Left LeaveFrom(TestClient* client, char ticket = 'm') {
    const uint64_t sequence = client->Leave(Ticket(ticket));
    return client
        ->WaitFor([&](const v1::ControlResponse& r) {
          return r.has_left() && r.left().sequence() == sequence;
        })
        .left();
  }
  v1::Pull StateOf(const v1::Left& left, char ticket = 'm') {
    v1::Pull pull;
    pull.set_worker_id("w0");
    pull.set_worker_incarnation(core_->incarnation());
    pull.set_ticket(Ticket(ticket));
    pull.set_size_bytes(left.state_bytes());
    return pull;
  }
  static v1::Entered EnterAs(TestClient* client, const TestClient& other,
                             const v1::Pull& state) {
    client->Enter(other, state);
    return client
        ->WaitFor([](const v1::ControlResponse& r) { return r.has_entered(); })
        .entered();
  }
  // Moves the session from w0 to w1.
  std::unique_ptr<TestClient> Move(std::unique_ptr<TestClient> client,
                                   v1::Entered* entered) {
    const v1::Left left = LeaveFrom(client.get());
    EXPECT_FALSE(left.has_refused()) << left.refused().message();
    std::unique_ptr<TestClient> there = OpenThere();
    *entered = EnterAs(there.get(), *client, StateOf(left));
    EXPECT_FALSE(entered->has_refused()) << entered->refused().message();
    return there;
  }

  // Enters w1 with this list from w0; the client knows storages 1 and 2.
  v1::Entered EnterForged(TestClient* there, const v1::SessionState& state) {
    // The worker may not have noticed yet that the previous session is gone.
    const std::unique_ptr<TestClient> here =
        Open("forged" + std::to_string(forged_++));
    here->Create(1, 1);
    here->Create(2, 1);
    forged_peers_ = std::make_unique<ForgedPeers>(state.SerializeAsString());
    other_->SetPeers(forged_peers_.get());
    v1::Left left;
    left.set_state_bytes(state.ByteSizeLong());
    return EnterAs(there, *here, StateOf(left));
  }
  static v1::StorageState* AddStorage(v1::SessionState* state, uint64_t id) {
    v1::StorageState* const storage = state->add_storages();
    storage->set_storage(id);
    storage->set_version(1);
    return storage;
  }

  static std::string Bytes(size_t count, float value) {
    return FloatBytes(Floats(count, value));
  }

 private:
  // A worker that sends forged bytes.
  class ForgedPeers : public PeerConnector {
   public:
    explicit ForgedPeers(std::string bytes) : bytes_(std::move(bytes)) {}
    absl::StatusOr<std::unique_ptr<PeerCall>> Open(
        const v1::Peer&, const v1::PullRequest&) override {
      return std::make_unique<Call>(bytes_);
    }

   private:
    class Call : public MessageCall {
     public:
      explicit Call(std::string bytes) : bytes_(std::move(bytes)) {}
      bool Read(v1::PullResponse* response) override {
        if (bytes_.empty()) return false;
        response->mutable_chunk()->set_crc32c(Crc32c(bytes_));
        response->mutable_chunk()->set_payload(std::exchange(bytes_, {}));
        return true;
      }
      absl::Status Finish() override { return absl::OkStatus(); }
      void Cancel() override {}
      bool encrypted() const override { return false; }

     private:
      std::string bytes_;
    };

    const std::string bytes_;
  };

  int forged_ = 0;
  std::unique_ptr<ForgedPeers> forged_peers_;
};

TEST_F(MigrationTest, ValuesVersionsAndGeneratorsGoAlong) {
  std::unique_ptr<TestClient> here = Open();
  here->Define(1, AddTo());
  FakeGraph draws;
  draws.Draw(draws.Generator(), 2);
  here->Define(2, draws.get());
  here->InstallInline(1, FloatBytes({1, 2}));
  here->InstallInline(2, FloatBytes({10, 20}));
  here->Run(1, {1, 2});
  // The value is too large for the list of storages.
  here->Create(3, 1 << 20);
  here->InstallSeed(4, 100);
  here->Run(2, {4, 5});
  v1::Entered entered;
  const std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  EXPECT_EQ(entered.storage_count(), 5u);
  EXPECT_GE(entered.moved_bytes(), 1u << 20);
  EXPECT_EQ(entered.held_bytes(), 0u);
  // TestClient names the versions that the storages had on w0.
  EXPECT_EQ(there->Read(1, 2), (Floats{11, 22}));
  EXPECT_EQ(there->Read(3, 2), (Floats{0, 0}));
  there->Define(1, AddTo());
  there->Run(1, {1, 2});
  EXPECT_EQ(there->Read(1, 2), (Floats{21, 42}));
  there->Define(2, draws.get());
  there->Run(2, {4, 6});
  EXPECT_EQ(there->Read(5, 2), (Floats{100, 101}));
  EXPECT_EQ(there->Read(6, 2), (Floats{102, 103}));
  // Everything that it left is gone with the client's stream.
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_EQ(core_->offers().offers(), 0u);
  EXPECT_EQ(other_->Snapshot().sessions(0).use().generators().count(), 1u);
}

TEST_F(MigrationTest, ModelsGoAlongWhateverTheOtherWorkersBudget) {
  std::unique_ptr<TestClient> here = Open();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Create(2, 1000);
  here->RegisterModel(3, {1, 2}, "net");
  here->RegisterModel(4, {1}, "head");
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_tenant_limits()->set_memory_bytes(8 << 20);
  lease.mutable_tenant_limits()->set_max_outstanding(64);
  lease.mutable_tenant_limits()->set_max_outstanding_bytes(1 << 20);
  lease.mutable_tenant_limits()->set_max_models(1);
  lease.mutable_tenant_limits()->set_model_bytes(100);
  const v1::Left left = LeaveFrom(here.get());
  std::unique_ptr<TestClient> there = OpenThere(lease);
  EXPECT_FALSE(EnterAs(there.get(), *here, StateOf(left)).has_refused());
  const v1::SessionUse use = other_->Snapshot().sessions(0).use();
  EXPECT_EQ(use.model_count(), 2u);
  EXPECT_EQ(use.model_bytes(), 1016u);
  EXPECT_EQ(use.models(0).name(), "net");
  EXPECT_EQ(use.models(0).size_bytes(), 1008u);
  // The budget applies to models registered from here on.
  EXPECT_EQ(there->RegisterModel(3, {1, 2}).refused().reason(), "MODEL_BYTES");
  EXPECT_FALSE(there->RegisterModel(4, {1}).has_refused());
  EXPECT_EQ(there->RegisterModel(5, {1}).refused().reason(), "MAX_MODELS");
}

TEST_F(MigrationTest, ModelsThatNoneCanBeAreNotTaken) {
  std::vector<std::unique_ptr<TestClient>> there;
  const auto enter = [&](const std::string& session, uint64_t first,
                         uint64_t second) {
    there.push_back(OpenThere(session));
    v1::SessionState state;
    AddStorage(&state, 1)->set_inline_value("12345678");
    state.add_models()->set_model_id(first);
    state.add_models()->set_model_id(second);
    return EnterForged(there.back().get(), state).refused().message();
  };
  EXPECT_EQ(enter("s1", 0, 1),
            "the other worker broke the protocol: model 0 of 2");
  EXPECT_EQ(enter("s2", 1, 1),
            "the other worker broke the protocol: model 1 of 2");
  const auto models = [this] {
    uint32_t count = 0;
    const v1::WorkerState state = other_->Snapshot();
    for (const v1::HeldSession& held : state.sessions()) {
      count += held.use().model_count();
    }
    return count;
  };
  // The models before the invalid one are dropped, too.
  EXPECT_EQ(models(), 0u);
  EXPECT_EQ(enter("s3", 1, 2), "");
  EXPECT_EQ(models(), 2u);
}

TEST_F(MigrationTest, ContentsThatAreThereDoNotMove) {
  const std::string shared = Bytes(1 << 16, 3), own = Bytes(1 << 16, 4);
  {
    std::unique_ptr<TestClient> before = OpenThere("s2");
    before->InstallTransfer(1, 1, shared);
    EXPECT_TRUE(before->WaitDecision(1).send());
    before->SendBytes(1, shared);
    EXPECT_EQ(before->Read(1, 1), (Floats{3}));
  }
  std::unique_ptr<TestClient> here = Open();
  uint64_t transfer = 0;
  for (const std::string& bytes : {shared, own}) {
    ++transfer;
    here->InstallTransfer(transfer, transfer, bytes);
    EXPECT_TRUE(here->WaitDecision(transfer).send());
    here->SendBytes(transfer, bytes);
  }
  // Storage 3 shares the bytes of storage 2.
  here->InstallTransfer(3, 3, own);
  EXPECT_TRUE(here->WaitDecision(3).already_held());
  v1::Entered entered;
  std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  EXPECT_EQ(entered.held_bytes(), shared.size());
  EXPECT_GE(entered.moved_bytes(), own.size());
  EXPECT_LT(entered.moved_bytes(), own.size() + 1000);
  EXPECT_EQ(other_->ledger().usage().used, shared.size() + own.size());
  EXPECT_EQ(other_->Snapshot().sessions(0).use().contents().count(), 3u);
  // The moved value is a content on w1, too; a writer has bytes of its own.
  EXPECT_EQ(other_->contents().stats().entries, 2u);
  there->Define(1, Fill());
  there->Run(1, {3}, {9});
  EXPECT_EQ(there->Read(3, 3), (Floats{9, 9, 4}));
  EXPECT_EQ(there->Read(2, 3), (Floats{4, 4, 4}));
}

TEST_F(MigrationTest, PoisonKeepsItsRootError) {
  std::unique_ptr<TestClient> here = Open();
  here->Define(1, Fill());
  here->InstallInline(1, FloatBytes({1, 2}));
  here->InstallInline(2, FloatBytes({1, 2}));
  device_.SetExecuteHook([](const std::string&) {
    return absl::InternalError("the kernel threw");
  });
  here->Run(1, {1}, {9});
  const v1::ErrorDetail root = here->ReadError(1);
  v1::Entered entered;
  std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  const v1::ErrorDetail moved = there->ReadError(1);
  EXPECT_EQ(moved.error_id(), root.error_id());
  EXPECT_EQ(moved.worker_id(), "w0");
  EXPECT_EQ(there->Read(2, 2), (Floats{1, 2}));
  // Overwriting the whole storage clears the error.
  there->InstallInline(1, FloatBytes({5}));
  EXPECT_EQ(there->Read(1, 1), (Floats{5}));
}

TEST_F(MigrationTest, ASessionThatStaysGoesOnAsBefore) {
  std::unique_ptr<TestClient> here = Open();
  here->Define(1, AddTo());
  here->InstallInline(1, FloatBytes({1}));
  here->Create(2, 1 << 20);
  EXPECT_FALSE(LeaveFrom(here.get()).has_refused());
  EXPECT_EQ(core_->offers().offers(), 2u);
  here->Stay();
  FakeGraph s;
  s.FillInPlace(s.Bound(), 1);
  here->Define(2, s.get());
  here->Run(2, {2}, {7});
  EXPECT_EQ(here->Read(2, 2), (Floats{7, 0}));
  EXPECT_EQ(core_->offers().offers(), 0u);
  // The offer's reference to storage 2's bytes from before the fill is gone:
  // only the two storages count.
  EXPECT_EQ(core_->ledger().usage().used, (1u << 20) + 4);
  // The second attempt succeeds.
  v1::Entered entered;
  std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  EXPECT_EQ(there->Read(2, 2), (Floats{7, 0}));
}

TEST_F(MigrationTest, WithoutRoomNothingIsThereAndAllIsHere) {
  std::unique_ptr<TestClient> here = Open();
  here->InstallInline(1, FloatBytes({1}));
  here->Create(2, 5 << 20);
  here->Create(3, 3 << 19);
  const v1::Left left = LeaveFrom(here.get());
  v1::LeaseClaims lease = Lease("s1", "t1");
  lease.mutable_limits()->set_memory_bytes(6 << 20);
  lease.set_lease_id("small");
  Grant(lease, "w1", absl::Seconds(1000000), other_.get());
  InProcessPair pair = MakeInProcessPair();
  other_->Attach(std::move(pair.worker));
  const auto there = std::make_unique<TestClient>(std::move(pair.client));
  v1::ClientHello hello = HelloFor("s1");
  hello.set_worker_incarnation(other_->incarnation());
  there->Hello(hello);
  const v1::Entered entered = EnterAs(there.get(), *here, StateOf(left));
  EXPECT_EQ(entered.refused().reason(), "SESSION_MEMORY");
  EXPECT_TRUE(WaitUntil([&] { return other_->ledger().usage().used == 0; }));
  here->Stay();
  EXPECT_EQ(here->Read(1, 1), (Floats{1}));
  EXPECT_EQ(here->Read(2, 1), (Floats{0}));
}

TEST_F(MigrationTest, AWorkerThatEndsInTheMiddleRefusesTheSession) {
  std::unique_ptr<TestClient> here = Open();
  here->Create(1, 1 << 20);
  here->Create(2, 1 << 20);
  const v1::Left left = LeaveFrom(here.get());
  // The worker stops after the list and one value have arrived.
  peers_->SetHook([&](int asked) {
    if (asked == 3) core_->Shutdown();
  });
  std::unique_ptr<TestClient> there = OpenThere();
  const v1::Entered entered = EnterAs(there.get(), *here, StateOf(left));
  EXPECT_EQ(entered.refused().reason(), "PULL_FAILED");
  EXPECT_TRUE(WaitUntil([&] { return other_->ledger().usage().used == 0; }));
}

TEST_F(MigrationTest, OffersToOthersAreFetchedFirst) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> other = OpenThere();
  here->InstallInline(1, FloatBytes({1, 2}));
  here->Offer(1, Ticket('a'));
  EXPECT_EQ(LeaveFrom(here.get(), 'm').refused().reason(), "OFFERS_PENDING");
  v1::Pull pull = StateOf({}, 'a');
  pull.set_size_bytes(8);
  other->InstallPull(5, pull);
  EXPECT_EQ(other->Read(5, 2), (Floats{1, 2}));
  // The session has not left, so it may execute messages, and try again.
  EXPECT_EQ(here->Read(1, 2), (Floats{1, 2}));
  EXPECT_FALSE(LeaveFrom(here.get(), 'n').has_refused());
}

TEST_F(MigrationTest, AnEmptySessionMovesToo) {
  std::unique_ptr<TestClient> here = Open();
  v1::Entered entered;
  std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  EXPECT_EQ(entered.storage_count(), 0u);
  EXPECT_EQ(entered.moved_bytes(), 0u);
  there->InstallInline(1, FloatBytes({1}));
  EXPECT_EQ(there->Read(1, 1), (Floats{1}));
}

TEST_F(MigrationTest, AClientThatGoesLeavesNothingBehind) {
  std::unique_ptr<TestClient> here = Open();
  here->Create(1, 1 << 20);
  const v1::Left left = LeaveFrom(here.get());
  {
    std::unique_ptr<TestClient> there = OpenThere();
    EXPECT_FALSE(EnterAs(there.get(), *here, StateOf(left)).has_refused());
  }
  here.reset();
  EXPECT_TRUE(WaitMemory(0));
  EXPECT_EQ(core_->offers().offers(), 0u);
  EXPECT_TRUE(WaitUntil([&] { return other_->ledger().usage().used == 0; }));
}

TEST_F(MigrationTest, ATicketOfAnotherSessionOpensNothing) {
  std::unique_ptr<TestClient> here = Open();
  here->InstallInline(1, FloatBytes({1}));
  const v1::Left left = LeaveFrom(here.get());
  std::unique_ptr<TestClient> thief = OpenThere("s2", "t2");
  thief->Enter(*here, StateOf(left));
  v1::Entered entered;
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Seconds(10));
    return thief->completed() >= 1;
  }));
  entered = thief
                ->WaitFor([](const v1::ControlResponse& r) {
                  return r.has_entered();
                })
                .entered();
  EXPECT_EQ(entered.refused().reason(), "PULL_FAILED");
  EXPECT_EQ(entered.storage_count(), 0u);
}

TEST_F(MigrationTest, AClientsOwnBytesAreNoState) {
  v1::SessionState state;
  AddStorage(&state, 5)->set_size_bytes(4);
  std::unique_ptr<TestClient> here = Open();
  const std::string bytes = state.SerializeAsString();
  here->InstallInline(1, bytes);
  here->Offer(1, Ticket('m'));
  std::unique_ptr<TestClient> there = OpenThere();
  v1::Left left;
  left.set_state_bytes(bytes.size());
  there->Enter(*here, StateOf(left));
  // The value that it claims is never offered.
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Seconds(10));
    return there->completed() >= 1;
  }));
  const v1::ErrorDetail refused =
      there
          ->WaitFor(
              [](const v1::ControlResponse& r) { return r.has_entered(); })
          .entered()
          .refused();
  EXPECT_EQ(refused.reason(), "PULL_FAILED");
  EXPECT_NE(refused.message().find("nothing is offered under this ticket"),
            std::string::npos);
}

TEST_F(MigrationTest, AStateIsNoValue) {
  std::unique_ptr<TestClient> here = Open();
  here->InstallInline(1, FloatBytes({1}));
  const v1::Left left = LeaveFrom(here.get());
  std::unique_ptr<TestClient> there = OpenThere();
  v1::Pull pull = StateOf(left);
  pull.mutable_ticket()->push_back('s');
  there->InstallPull(1, pull);
  EXPECT_EQ(ErrorReason(there->WaitClosed()), "PROTOCOL_VIOLATION");
}

TEST_F(MigrationTest, StateInMigrationCountsForTheSession) {
  std::unique_ptr<TestClient> here = Open();
  std::unique_ptr<TestClient> there = OpenThere();
  v1::Left left;
  left.set_state_bytes(9 << 20);
  const v1::Entered entered = EnterAs(there.get(), *here, StateOf(left));
  EXPECT_EQ(entered.refused().reason(), "SESSION_MEMORY");
  EXPECT_EQ(other_->ledger().usage().used, 0u);
}

TEST_F(MigrationTest, AListIsPaidForOnlyWhileItIsThere) {
  std::unique_ptr<TestClient> here = Open();
  // The session takes all that it may have, a part of it in the list.
  for (uint64_t id = 1; id <= 20; ++id) {
    EXPECT_TRUE(here->WaitCompleted(here->InstallInline(id, Bytes(256, 1))));
  }
  here->Create(21, (8 << 20) - 20 * 1024);
  v1::Entered entered;
  const std::unique_ptr<TestClient> there = Move(std::move(here), &entered);
  EXPECT_EQ(there->Read(20, 1), (Floats{1}));
  EXPECT_EQ(other_->ledger().usage().used, 8u << 20);
}

TEST_F(MigrationTest, AStorageWithoutBytesIsZeroFilled) {
  v1::SessionState state;
  AddStorage(&state, 1)->set_size_bytes(8);
  std::unique_ptr<TestClient> there = OpenThere();
  EXPECT_FALSE(EnterForged(there.get(), state).has_refused());
  EXPECT_EQ(there->Read(1, 2), (Floats{0, 0}));
  EXPECT_EQ(other_->Snapshot().sessions(0).use().storages().size_bytes(), 8u);
}

TEST_F(MigrationTest, AGeneratorsStateIsCheckedHoweverItComes) {
  for (const bool shared : {false, true}) {
    v1::SessionState state;
    AddStorage(&state, 1)->set_inline_value("not a state");
    v1::StorageState* const generator = AddStorage(&state, 2);
    generator->set_generator(true);
    generator->set_size_bytes(11);
    if (shared) {
      generator->set_same_as(1);
    } else {
      generator->set_ticket(Ticket('g'));
    }
    std::unique_ptr<TestClient> there = OpenThere(shared ? "s1" : "s2");
    EXPECT_EQ(EnterForged(there.get(), state).refused().reason(),
              "PROTOCOL_VIOLATION");
  }
  EXPECT_TRUE(WaitUntil([&] { return other_->ledger().usage().used == 0; }));
}

TEST_F(MigrationTest, AStorageIsAsLargeAsTheBytesItShares) {
  v1::SessionState state;
  AddStorage(&state, 1)->set_inline_value(FloatBytes({1}));
  v1::StorageState* const sharer = AddStorage(&state, 2);
  sharer->set_same_as(1);
  sharer->set_size_bytes(1 << 20);
  std::unique_ptr<TestClient> there = OpenThere();
  EXPECT_FALSE(EnterForged(there.get(), state).has_refused());
  EXPECT_EQ(there->Read(2, 1), (Floats{1}));
  srg::TensorView beyond;
  beyond.data_type = srg::DataType::kFloat32;
  beyond.sizes = {1000};
  beyond.strides = {1};
  EXPECT_EQ(there->WaitRead(there->SendRead(2, beyond)).error().reason(),
            "INVALID_VIEW");
}

TEST_F(MigrationTest, StepsOutOfPlaceEndTheStream) {
  const auto reason = [](TestClient* client) {
    return ErrorReason(client->WaitClosed());
  };
  std::unique_ptr<TestClient> a = Open("s1");
  a->Leave("short");
  EXPECT_EQ(reason(a.get()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> b = Open("s2");
  b->Stay();
  EXPECT_EQ(reason(b.get()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> c = Open("s3");
  c->InstallInline(1, FloatBytes({1}));
  c->Enter(*b, StateOf({}));
  EXPECT_EQ(reason(c.get()), "PROTOCOL_VIOLATION");
  // A session that left executes nothing.
  std::unique_ptr<TestClient> d = Open("s4");
  EXPECT_FALSE(LeaveFrom(d.get()).has_refused());
  d->InstallInline(1, FloatBytes({1}));
  EXPECT_EQ(reason(d.get()), "PROTOCOL_VIOLATION");
  std::unique_ptr<TestClient> e = Open("s5");
  v1::Ordered empty;
  empty.mutable_migrate();
  e->Send(std::move(empty));
  EXPECT_EQ(reason(e.get()), "PROTOCOL_VIOLATION");
}

}  // namespace
}  // namespace djinn::worker
