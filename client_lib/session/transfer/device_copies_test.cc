// Tests copies between two devices of a session: the messages that both workers
// get.
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/base/error.h"

namespace djinn {
namespace {

using Ordered = v1::Ordered;

class DeviceCopiesTest : public testing::Test {
 protected:
  DeviceCopiesTest() : session_(cluster_.Open()) {
    here_ = *session_->Device(0);
    there_ = *session_->Device(1);
  }

  static std::vector<Ordered::ActionCase> Actions(FakeWorker& worker) {
    std::vector<Ordered::ActionCase> actions;
    for (const Ordered& message : worker.seen().received) {
      actions.push_back(message.action_case());
    }
    return actions;
  }

  FakeCluster cluster_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> here_, there_;
};

TEST_F(DeviceCopiesTest, TheSourceOffersAndTheDestinationPulls) {
  const StoragePtr source = here_->NewStorage(8), copy = there_->NewStorage(8);
  ASSERT_TRUE(Record(*here_, 0, MakeCall(1, {{source, kWrites}})).ok());
  ASSERT_TRUE(here_->Synchronize().ok());
  // The program continues although neither worker answers.
  cluster_.worker(0).Pause();
  cluster_.worker(1).Pause();
  ASSERT_TRUE(Record(*here_, 0, MakeCall(2, {{source, kWrites}})).ok());
  ASSERT_TRUE(there_->CopyFrom(0, copy.get(), source.get()).ok());
  ASSERT_TRUE(Record(*here_, 0, MakeCall(3, {{source, kWrites}})).ok());
  cluster_.worker(0).Resume();
  cluster_.worker(1).Resume();
  ASSERT_TRUE(here_->Synchronize().ok());
  ASSERT_TRUE(there_->Synchronize().ok());
  // The offer stands between the writes before and after the copy.
  EXPECT_EQ(Actions(cluster_.worker(0)),
            (std::vector<Ordered::ActionCase>{
                Ordered::kDefineGraph, Ordered::kRun, Ordered::kDefineGraph,
                Ordered::kRun, Ordered::kOffer, Ordered::kDefineGraph,
                Ordered::kRun}));
  const v1::Offer offer = cluster_.worker(0).seen().received[4].offer();
  EXPECT_EQ(offer.storage(), source->id());
  EXPECT_EQ(offer.version(), 3u);  // created, written, written
  ASSERT_EQ(Actions(cluster_.worker(1)),
            std::vector<Ordered::ActionCase>{Ordered::kInstall});
  const v1::Install install = cluster_.worker(1).seen().received[0].install();
  EXPECT_EQ(install.base_version(), 0u);
  EXPECT_EQ(install.pull().ticket(), offer.ticket());
  EXPECT_EQ(install.pull().worker_id(), here_->Placement()->worker_id);
  EXPECT_EQ(install.pull().worker_incarnation(), FakeWorker::kIncarnation);
  EXPECT_EQ(install.pull().size_bytes(), 8u);
  EXPECT_EQ(session_->statistics().device_copies, 1u);
  EXPECT_EQ(session_->statistics().reads, 0u);
}

TEST_F(DeviceCopiesTest, EveryCopyHasATicketOfItsOwn) {
  const StoragePtr source = here_->NewStorage(8), copy = there_->NewStorage(8);
  ASSERT_TRUE(there_->CopyFrom(0, copy.get(), source.get()).ok());
  ASSERT_TRUE(there_->CopyFrom(0, copy.get(), source.get()).ok());
  ASSERT_TRUE(here_->Synchronize().ok());
  ASSERT_TRUE(there_->Synchronize().ok());
  // No earlier message had named the source, so it is first created. Then it is
  // offered twice.
  ASSERT_EQ(Actions(cluster_.worker(0)),
            (std::vector<Ordered::ActionCase>{
                Ordered::kCreateStorage, Ordered::kOffer, Ordered::kOffer}));
  const std::vector<Ordered> said = cluster_.worker(0).seen().received;
  EXPECT_NE(said[1].offer().ticket(), said[2].offer().ticket());
}

TEST_F(DeviceCopiesTest, ASourceThatDiesIsFreedBehindItsOffer) {
  StoragePtr source = here_->NewStorage(8);
  const StoragePtr copy = there_->NewStorage(8);
  ASSERT_TRUE(Record(*here_, 0, MakeCall(1, {{source, kWrites}})).ok());
  ASSERT_TRUE(there_->CopyFrom(0, copy.get(), source.get()).ok());
  Drop(std::move(source));
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(
      Actions(cluster_.worker(0)),
      (std::vector<Ordered::ActionCase>{Ordered::kDefineGraph, Ordered::kRun,
                                        Ordered::kOffer, Ordered::kFree}));
}

TEST_F(DeviceCopiesTest, ImpossibleCopyIsRefusedWithoutALease) {
  const StoragePtr source = here_->NewStorage(8), other = there_->NewStorage(4),
                   empty = there_->NewStorage(0);
  EXPECT_EQ(ErrorReason(there_->CopyFrom(0, other.get(), source.get())),
            "SIZE_MISMATCH");
  EXPECT_EQ(ErrorReason(there_->CopyFrom(0, empty.get(), empty.get())),
            "SIZE_MISMATCH");
  FakeCluster elsewhere;
  const auto session = elsewhere.Open();
  const StoragePtr foreign = (*session->Device(0))->NewStorage(4);
  EXPECT_EQ(ErrorReason(there_->CopyFrom(0, other.get(), foreign.get())),
            "OTHER_SESSION");
  EXPECT_TRUE(cluster_.coordinator().lease_requests().empty());
}

TEST_F(DeviceCopiesTest, ALostSourceSaysSoAtTheCopy) {
  const StoragePtr source = here_->NewStorage(8), copy = there_->NewStorage(8);
  ASSERT_TRUE(Record(*here_, 0, MakeCall(1, {{source, kWrites}})).ok());
  ASSERT_TRUE(here_->Synchronize().ok());
  cluster_.coordinator().EndLease("lease-0", "WORKER_LOST");
  EXPECT_EQ(ErrorReason(there_->CopyFrom(0, copy.get(), source.get())),
            "WORKER_LOST");
  // The failed copy sent nothing to the other device.
  ASSERT_TRUE(Record(*there_, 0, MakeCall(1, {{copy, kWrites}})).ok());
  EXPECT_TRUE(there_->Synchronize().ok());
}

}  // namespace
}  // namespace djinn
