// Tests devices that need more room than one worker has.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/testing/multi_worker_fixture.h"
#include "common/base/error.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

// Tests attempts that are repeated after a while.
class PatienceTest : private WithClock, public MultiWorkerDeviceTest {
 protected:
  PatienceTest() : MultiWorkerDeviceTest(OptionsWith(&clock_)) {}
  using WithClock::clock_;
};

TEST_F(MultiWorkerDeviceTest, EveryErrorIsSaid) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  cluster_.worker(1).Set(&FakeScript::fail_next_run, kErrorId + 1);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[2], kWrites}})).ok());
  const auto said = [&] {
    return ErrorMetadataValue(device_->Synchronize(), "error_id");
  };
  const std::vector<std::string> errors = {said(), said()};
  EXPECT_THAT(errors, testing::UnorderedElementsAre("63", "64"));
  EXPECT_EQ(said(), "");
}

TEST_F(MultiWorkerDeviceTest, AnOperandThatDoesNotArriveIsStillThere) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr input = device_->NewStorage(8),
                   result = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  const auto call = [&](uint8_t access) {
    return Record(
        *device_, 0,
        MakeCall(1,
                 {{storages[0], kReads}, {input, kReads}, {result, access}}));
  };
  cluster_.worker(0).Set(&FakeScript::fail_next_pull, kErrorId);
  ASSERT_TRUE(call(kCreates).ok());
  EXPECT_EQ(ErrorMetadataValue(ReadByte(*device_, 0, result), "error_id"),
            kErrorText);
  EXPECT_EQ(ReadByte(*device_, 0, input), absl::OkStatus());
  ASSERT_TRUE(call(kOverwrites).ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 2);
}

TEST_F(MultiWorkerDeviceTest, StorageThatFailedToMoveStaysAtItsWorker) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr result = device_->NewStorage(kSize);
  cluster_.coordinator().LetSpan(3);
  cluster_.worker(2).Set(&FakeScript::fail_next_pull, kErrorId);
  const auto call = [&](uint8_t access) {
    return Record(*device_, 0,
                  MakeCall(1, {{storages[0], kReads}, {result, access}}));
  };
  // The results are poisoned, as after any failure.
  ASSERT_TRUE(call(kCreates).ok());
  EXPECT_EQ(ErrorMetadataValue(ReadByte(*device_, 0, result), "error_id"),
            kErrorText);
  EXPECT_EQ(ReadByte(*device_, 0, storages[0]), absl::OkStatus());
  ASSERT_TRUE(call(kOverwrites).ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
}

TEST_F(MultiWorkerDeviceTest, FailedMoveIsNoticedAfterARefusedCall) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr result = device_->NewStorage(kSize);
  cluster_.coordinator().LetSpan(3);
  cluster_.worker(2).Set(&FakeScript::fail_next_pull, kErrorId);
  Call call = MakeCall(1, {{storages[0], kReads}, {result, kCreates}});
  EXPECT_EQ(ErrorReason(device_->RecordAndWait(0, &call).status()),
            "UNKNOWN_RESULT");
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(1, {{storages[0], kReads}, {result, kCreates}}))
                  .ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(cluster_.worker(2).seen().runs.size(), 1u);
}

TEST_F(MultiWorkerDeviceTest, FailedMoveIsNoticedAfterACallOnAnotherWorker) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.coordinator().LetSpan(3);
  // the last ones that fit there
  const StoragePtr third = Uploaded(), fourth = Uploaded();
  const StoragePtr input = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  const auto use = [&](const StoragePtr& place) {
    const StoragePtr result = device_->NewStorage(8);
    EXPECT_EQ(
        Record(*device_, 0,
               MakeCall(
                   1, {{place, kReads}, {input, kReads}, {result, kCreates}})),
        absl::OkStatus());
    return ReadByte(*device_, 0, result);
  };
  cluster_.worker(0).Set(&FakeScript::fail_next_pull, kErrorId);
  EXPECT_FALSE(use(storages[0]).ok());
  EXPECT_EQ(use(storages[2]), absl::OkStatus());
  EXPECT_EQ(use(fourth), absl::OkStatus());
  EXPECT_EQ(use(storages[0]), absl::OkStatus());
}

TEST_F(MultiWorkerDeviceTest, ARefusedUploadLeavesWhatWasThere) {
  const std::vector<StoragePtr> storages = Span();
  // The second worker has no room for another copy, and the others accept none.
  cluster_.worker(1).Set(&FakeScript::transfers,
                         FakeScript::Transfers::kRefuse);
  EXPECT_EQ(ErrorReason(Upload(storages[0])), "SESSION_MEMORY");
  EXPECT_EQ(ReadByte(*device_, 0, storages[0]), absl::OkStatus());
}

TEST_F(MultiWorkerDeviceTest, RoomIsCountedRightWhenASizeChanges) {
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_EQ(Upload(value), absl::OkStatus());
  const std::vector<StoragePtr> storages = Span();
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(1, {{storages[2], kReads}, {value, kReads}}))
          .ok());
  ASSERT_TRUE(device_->Resize(0, value.get(), kSize / 2).ok());
  Uploaded();
  const int before = Count(1, v1::Ordered::kInstall);
  // The second worker is known to be full.
  cluster_.coordinator().LetSpan(3);
  Uploaded();
  EXPECT_EQ(Count(1, v1::Ordered::kInstall), before);
}

TEST_F(MultiWorkerDeviceTest, AnUploadThatDoesNotFitGoesToAnotherWorker) {
  const std::vector<StoragePtr> storages = Span();
  const auto requests = cluster_.coordinator().lease_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].member(), 0u);
  EXPECT_EQ(requests[1].virtual_device(), 0u);
  EXPECT_EQ(requests[1].member(), 1u);
  EXPECT_EQ(requests[1].needed_bytes(), kSize);
  EXPECT_EQ(Count(1, v1::Ordered::kInstall), 1);
  EXPECT_EQ(
      cluster_.worker(1).contents(*cluster_.worker(1).live_storages().begin()),
      Pattern(kSize));
  EXPECT_EQ(device_->Placement()->worker_id, "w0+w1");
  for (const StoragePtr& storage : storages) {
    EXPECT_EQ(ReadByte(*device_, 0, storage), absl::OkStatus());
  }
  EXPECT_TRUE(session_->RootErrors().empty());
}

TEST_F(MultiWorkerDeviceTest, WithoutAnotherWorkerTheRefusalStands) {
  const StoragePtr first = Uploaded(), second = Uploaded(),
                   third = device_->NewStorage(kSize);
  const absl::Status refused = Upload(third);
  EXPECT_EQ(ErrorReason(refused), "SESSION_MEMORY");
  EXPECT_EQ(cluster_.coordinator().lease_requests().size(), 2u);
  // The existing storages stay usable.
  EXPECT_EQ(ReadByte(*device_, 0, first), absl::OkStatus());
  Drop(first);
  EXPECT_EQ(Upload(third), absl::OkStatus());
}

TEST_F(PatienceTest, AWorkerThatIsNotReachedIsAskedForLessAndLess) {
  cluster_.coordinator().LetSpan(2);
  cluster_.worker(1).Set(&FakeScript::wrong_id, true);
  const StoragePtr first = Uploaded(), second = Uploaded(),
                   third = device_->NewStorage(kSize);
  const auto asked = [&](absl::Duration after) {
    clock_.Advance(after);
    EXPECT_EQ(ErrorReason(Upload(third)), "SESSION_MEMORY");
    return cluster_.coordinator().lease_requests().size();
  };
  EXPECT_EQ(asked(absl::ZeroDuration()), 2u);
  EXPECT_EQ(asked(absl::Seconds(1)), 2u);
  EXPECT_EQ(asked(absl::Seconds(1)), 3u);
  EXPECT_EQ(asked(absl::Seconds(3)), 3u);
  EXPECT_EQ(asked(absl::Seconds(1)), 4u);
  EXPECT_THAT(
      cluster_.coordinator().returned_leases(),
      testing::ElementsAre("lease-0.1 unreachable", "lease-0.1 unreachable",
                           "lease-0.1 unreachable"));
  for (size_t i = 5; i < 20; ++i) EXPECT_EQ(asked(absl::Minutes(5)), i);
  EXPECT_EQ(asked(absl::Minutes(4)), 19u);
}

TEST_F(PatienceTest, AWorkerThatHadNoRoomIsTriedAgain) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.coordinator().LetSpan(3);
  cluster_.worker(1).Set(&FakeScript::transfers,
                         FakeScript::Transfers::kRefuse);
  const StoragePtr third = Uploaded(), fourth = Uploaded();
  EXPECT_EQ(device_->Placement()->worker_id, "w0+w1+w2");
  cluster_.worker(1).Set(&FakeScript::transfers, FakeScript::Transfers::kSend);
  const StoragePtr fifth = device_->NewStorage(kSize);
  EXPECT_EQ(ErrorReason(Upload(fifth)), "SESSION_MEMORY");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Upload(fifth), absl::OkStatus());
  EXPECT_EQ(cluster_.worker(1).live_storages().size(), 2u);
}

TEST_F(MultiWorkerDeviceTest, ACallGoesWhereMostOfItsOperandsAre) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr input = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  const StoragePtr first = device_->NewStorage(8),
                   second = device_->NewStorage(8);
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(1, {{storages[0], kReads},
                                  {input, kReads},
                                  {first, kCreates}}))
                  .ok());
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(2, {{storages[2], kReads},
                                  {first, kReads},
                                  {second, kCreates}}))
                  .ok());
  EXPECT_EQ(ReadByte(*device_, 0, second), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  // The input went to the worker of the last upload. The input and the first
  // result moved once each.
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 1);
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  // A copy that exists does not cross again.
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(2, {{storages[2], kReads},
                                  {first, kReads},
                                  {second, kOverwrites}}))
                  .ok());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
}

TEST_F(MultiWorkerDeviceTest, AWriteLeavesOneCopy) {
  const std::vector<StoragePtr> storages = Span();
  StoragePtr value = device_->NewStorage(8);
  ASSERT_EQ(Upload(value), absl::OkStatus());
  // The value moves from the second worker to the first, changes there, and
  // moves back.
  for (const int index : {0, 2, 0}) {
    ASSERT_TRUE(
        Record(*device_, 0,
               MakeCall(1, {{storages[index], kReads}, {value, kWrites}}))
            .ok());
  }
  EXPECT_EQ(ReadByte(*device_, 0, value), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 2);
  Drop(std::move(value));
  for (StoragePtr storage : storages) Drop(std::move(storage));
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster_.worker(0).live_storages().empty());
  EXPECT_TRUE(cluster_.worker(1).live_storages().empty());
}

TEST_F(MultiWorkerDeviceTest, ResultsThatWouldNotFitGoToAnotherWorker) {
  cluster_.coordinator().LetSpan(2);
  const StoragePtr small = device_->NewStorage(8);
  ASSERT_EQ(Upload(small), absl::OkStatus());
  ASSERT_TRUE(device_->Placement().ok());
  std::vector<StoragePtr> results;
  for (int i = 0; i < 4; ++i) {
    results.push_back(device_->NewStorage(kSize));
    ASSERT_TRUE(
        Record(*device_, 0,
               MakeCall(1, {{small, kReads}, {results.back(), kCreates}}))
            .ok());
  }
  EXPECT_GT(Count(0, v1::Ordered::kRun), 0);
  EXPECT_GT(Count(1, v1::Ordered::kRun), 0);
  EXPECT_EQ(cluster_.worker(0).live_storages().size(), 3u);
  EXPECT_EQ(cluster_.worker(1).live_storages().size(), 3u);
}

TEST_F(MultiWorkerDeviceTest, WhereResultsDoNotFitTheirOperandsMoveAway) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr first = device_->NewStorage(kSize),
                   second = device_->NewStorage(kSize);
  const auto call = [&](const StoragePtr& operand, const StoragePtr& result) {
    return Record(*device_, 0,
                  MakeCall(1, {{operand, kReads}, {result, kCreates}}));
  };
  // The second worker has room for the result, but not for both.
  cluster_.coordinator().LetSpan(3);
  ASSERT_TRUE(call(storages[0], first).ok());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 1);
  // The moved storage left room for the next.
  ASSERT_TRUE(call(storages[1], second).ok());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  for (const StoragePtr& storage : {storages[0], storages[1], first, second}) {
    EXPECT_EQ(ReadByte(*device_, 0, storage), absl::OkStatus());
  }
}

// Tests devices whose workers may restart with another incarnation.
class RecoveringMultiWorkerDeviceTest : public MultiWorkerDeviceTest {
 protected:
  RecoveringMultiWorkerDeviceTest() : MultiWorkerDeviceTest(Recovering()) {
    for (int worker = 0; worker < 3; ++worker) {
      cluster_.worker(worker).Set(&FakeScript::begins_anew, true);
    }
  }
  void Lose(int worker) {
    cluster_.coordinator().NoteRestart(worker);
    cluster_.worker(worker).Restart(/*other_incarnation=*/true);
  }
};

TEST_F(RecoveringMultiWorkerDeviceTest, AReplicaThatLosesItsWorkerGoesOnAlone) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr input = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  for (const int worker : {1, 0}) {
    // The input moves to the worker, unless it is there.
    ASSERT_EQ(UseWith(storages[2 * worker], input), absl::OkStatus());
    const uint64_t before = session_->statistics().recoveries;
    Lose(worker);
    for (const StoragePtr& storage : storages) {
      EXPECT_EQ(ReadByte(*device_, 0, storage), absl::OkStatus());
    }
    EXPECT_EQ(UseWith(storages[2 * worker], input), absl::OkStatus());
    EXPECT_EQ(session_->statistics().recoveries, before + 1);
    const v1::LeaseRequest request =
        cluster_.coordinator().lease_requests().back();
    EXPECT_EQ(request.member(), static_cast<uint32_t>(worker));
    EXPECT_TRUE(request.recovers());
  }
  // Copies of a fake worker have no bytes. A run therefore has another value
  // after the input, which was copied before, is uploaded again.
  for (const absl::Status& error : session_->RootErrors()) {
    EXPECT_EQ(ErrorReason(error), "REPLAY_DIVERGED");
  }
}

TEST_F(MultiWorkerDeviceTest, WithoutRecoveryTheLossOfOneWorkerEndsTheDevice) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.worker(0).Pause();
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  cluster_.coordinator().EndLease("lease-0.1", "WORKER_LOST");
  // Waits for the other worker fail, too.
  EXPECT_EQ(ErrorReason(ReadByte(*device_, 0, storages[0])), "WORKER_LOST");
  EXPECT_EQ(ErrorReason(ReadByte(*device_, 0, storages[2])), "WORKER_LOST");
  EXPECT_EQ(
      ErrorReason(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}}))),
      "WORKER_LOST");
  EXPECT_EQ(session_->RootErrors().size(), 1u);
  cluster_.worker(0).Resume();
}

// Two replicas lose their workers at the same time.
TEST_F(MultiWorkerDeviceTest, ADeviceThatFailedBeginsAnewWithOneWorker) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.coordinator().NoteRestart(1);
  cluster_.worker(1).Restart(/*other_incarnation=*/true);
  const absl::Status lost = ReadByte(*device_, 0, storages[2]);
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");
  cluster_.coordinator().NoteRestart(0);
  cluster_.worker(0).Restart(/*other_incarnation=*/true);
  const auto former = std::exchange(device_, *session_->Device(0));
  ASSERT_NE(device_, former);
  const std::vector<StoragePtr> fresh = Span();
  EXPECT_TRUE(ReadByte(*device_, 0, fresh[2]).ok());
  for (const StoragePtr& storage : storages) {
    EXPECT_EQ(ErrorReason(ReadByte(*former, 0, storage)), "WORKER_LOST");
    EXPECT_EQ(ErrorReason(UseWith(fresh[0], storage)), "WORKER_LOST");
  }
  EXPECT_TRUE(UseWith(fresh[0], fresh[2]).ok());
  EXPECT_THAT(cluster_.coordinator().returned_leases(),
              testing::UnorderedElementsAre("lease-0", "lease-0.1"));
}

TEST_F(MultiWorkerDeviceTest, WorkersThatAreLostAtOnceAreEachReportedOnce) {
  cluster_.coordinator().LetSpan(3);
  std::vector<StoragePtr> storages;
  for (int i = 0; i < 5; ++i) storages.push_back(Uploaded());
  ASSERT_EQ(device_->Placement()->worker_id, "w0+w1+w2");
  for (int worker = 0; worker < 3; ++worker) cluster_.worker(worker).Pause();
  std::string value(kSize, '?');
  std::vector<std::unique_ptr<PendingRead>> reads;
  for (const int on : {0, 2, 4}) {
    auto read = device_->StartRead(0, storages[on].get(),
                                   WholeView(*storages[on].get()), value.data(),
                                   value.size());
    ASSERT_TRUE(read.ok()) << read.status();
    reads.push_back(*std::move(read));
  }
  // The second loss may arrive while the first one spreads, or after it.
  std::thread first(
      [&] { cluster_.coordinator().EndLease("lease-0", "WORKER_LOST"); });
  cluster_.coordinator().EndLease("lease-0.2", "WORKER_LOST");
  first.join();
  for (const auto& read : reads) {
    EXPECT_EQ(ErrorReason(read->Wait(absl::Seconds(30))), "WORKER_LOST");
  }
  std::vector<std::string> lost;
  for (const absl::Status& error : session_->RootErrors()) {
    lost.push_back(ErrorMetadataValue(error, "worker"));
  }
  EXPECT_THAT(lost, testing::AnyOf(testing::ElementsAre("w0"),
                                   testing::ElementsAre("w2"),
                                   testing::UnorderedElementsAre("w0", "w2")));
  for (int worker = 0; worker < 3; ++worker) cluster_.worker(worker).Resume();
}

TEST_F(MultiWorkerDeviceTest, ItIsNotRecorded) {
  ASSERT_TRUE(device_->graphs().Start(0).ok());
  const std::vector<StoragePtr> storages = Span();
  auto captured_graph = device_->graphs().Finish(0, {}, {}, 0);
  EXPECT_EQ(ErrorReason(captured_graph.status()), "UPLOADS");
  ASSERT_TRUE(device_->graphs().Start(0).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  captured_graph = device_->graphs().Finish(0, {}, {}, 0);
  EXPECT_EQ(ErrorReason(captured_graph.status()), "SPANS_WORKERS");
}

TEST_F(MultiWorkerDeviceTest, GraphCapturedOnOneWorkerIsStaleOnSeveral) {
  const StoragePtr weight = Uploaded();
  ASSERT_TRUE(device_->graphs().Start(0).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{weight, kWrites}})).ok());
  const auto captured_graph = device_->graphs().Finish(0, {}, {}, 0);
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  EXPECT_TRUE(device_->graphs().Replay(0, *captured_graph, {}, nullptr).ok());
  const std::vector<StoragePtr> storages = Span();
  EXPECT_EQ(
      ErrorReason(
          device_->graphs().Replay(0, *captured_graph, {}, nullptr).status()),
      "STALE_RECORDING");
}

TEST_F(MultiWorkerDeviceTest, ItStaysWhereItIs) {
  const std::vector<StoragePtr> storages = Span();
  const v1::MigrationOutcome outcome =
      cluster_.coordinator().Migrate("lease-0.1", 2, 7);
  EXPECT_EQ(outcome.failure().reason(), "SPANS_WORKERS");
  EXPECT_EQ(ReadByte(*device_, 0, storages[2]), absl::OkStatus());
}

TEST_F(MultiWorkerDeviceTest, ItCopiesFromAndToOtherDevices) {
  const std::vector<StoragePtr> storages = Span();
  const auto other = *session_->Device(2);
  const StoragePtr there = other->NewStorage(kSize);
  ASSERT_TRUE(other->CopyFrom(0, there.get(), storages[2].get()).ok());
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 1);
  ASSERT_TRUE(device_->CopyFrom(0, storages[0].get(), there.get()).ok());
  ASSERT_EQ(other->Synchronize(), absl::OkStatus());
  // Two uploads, one that was refused twice, and the copy.
  EXPECT_EQ(Count(0, v1::Ordered::kInstall), 5);
  FakeCluster elsewhere;
  const auto session = elsewhere.Open();
  const StoragePtr foreign = (*session->Device(0))->NewStorage(kSize);
  EXPECT_EQ(ErrorReason(device_->CopyFrom(0, storages[0].get(), foreign.get())),
            "OTHER_SESSION");
}

TEST_F(MultiWorkerDeviceTest, ResizedValueIsFetchedWhole) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_EQ(Upload(value), absl::OkStatus());
  const auto use = [&](int index, uint8_t access) {
    return Record(*device_, 0,
                  MakeCall(1, {{storages[index], kReads}, {value, access}}));
  };
  ASSERT_TRUE(use(0, kReads).ok());
  ASSERT_TRUE(device_->Resize(0, value.get(), 16).ok());
  EXPECT_EQ(value->size_bytes(), 16u);
  ASSERT_TRUE(use(0, kReads).ok());
  EXPECT_EQ(ReadByte(*device_, 0, value), absl::OkStatus());
  ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
  uint64_t pulled = 0;
  for (const v1::Ordered& message : cluster_.worker(0).seen().received) {
    if (message.install().has_pull()) {
      pulled = message.install().pull().size_bytes();
    }
  }
  EXPECT_EQ(pulled, 16u);
}

TEST_F(MultiWorkerDeviceTest, CallsOfOtherDevicesAreRefused) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr foreign = (*session_->Device(2))->NewStorage(8);
  EXPECT_EQ(ErrorReason(Record(
                *device_, 0,
                MakeCall(1, {{storages[0], kReads}, {foreign, kReads}}))),
            "MIXED_DEVICES");
}

TEST_F(MultiWorkerDeviceTest, ClosingWaitsForAllWorkers) {
  const std::vector<StoragePtr> storages = Span();
  for (const StoragePtr& storage : storages) {
    ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storage, kWrites}})).ok());
  }
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(cluster_.worker(0).seen().runs.size(), 1u);
  EXPECT_EQ(cluster_.worker(1).seen().runs.size(), 1u);
  EXPECT_EQ(
      ErrorReason(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}}))),
      "SESSION_CLOSED");
}

}  // namespace
}  // namespace djinn
