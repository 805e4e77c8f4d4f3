// Tests workers that are lost, refused or break the protocol.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/multi_worker/device_router.h"
#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/base/retry_after.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

TEST(WorkerLossTest, MetadataThatDoesNotFitTheCallLosesTheWorker) {
  const auto result = [](int sizes) {
    v1::TensorView view;
    view.set_data_type(v1::DATA_TYPE_INT64);
    view.add_sizes(sizes);
    view.add_strides(1);
    return view;
  };
  std::vector<v1::RunMetadata> malformed(4);
  *malformed[1].add_results() = result(1);
  *malformed[2].add_results() = result(4);
  malformed[2].add_storage_bytes(24);
  malformed[3].mutable_error()->set_message("without a code");
  for (const v1::RunMetadata& metadata : malformed) {
    FakeCluster cluster;
    cluster.worker().Set(&FakeScript::metadata, metadata);
    const auto [session, device] = cluster.OpenDevice();
    const StoragePtr in = device->NewStorage(8), out = device->NewStorage(0);
    Call call = MakeCall(1, {{in, kReads}});
    call.AddUnknownResult(out.get());
    const absl::Status status = device->RecordAndWait(0, &call).status();
    EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
    EXPECT_EQ(ErrorMetadataValue(status, "cause"), "PROTOCOL_VIOLATION")
        << status;
    // Another try would end in the same way.
    EXPECT_EQ(RetryAfter(status), std::nullopt);
  }
}

TEST(WorkerLossTest, AnswersToWhatWasNotAskedLoseTheWorker) {
  std::vector<v1::ControlResponse> malformed(8);
  malformed[0].mutable_admitted()->set_graph_id(7);
  malformed[1].mutable_read()->set_sequence(1000);
  malformed[2].mutable_read()->set_sequence(2);  // answered before
  malformed[3].mutable_metadata()->set_sequence(2);
  malformed[4].mutable_transfer()->set_transfer_id(1);
  malformed[5].mutable_transfer()->set_send(false);
  malformed[6].mutable_poisoned()->set_message("without a code");
  malformed[7].mutable_metered()->set_sequence(2);
  for (v1::ControlResponse& response : malformed) {
    FakeCluster cluster;
    const auto [session, device] = cluster.OpenDevice();
    const StoragePtr value = device->NewStorage(8);
    ASSERT_TRUE(ReadByte(*device, 0, value).ok());
    ASSERT_TRUE(device->Synchronize().ok());
    response.set_completed_sequence(2);
    cluster.worker().Say(response);
    EXPECT_FALSE(cluster.worker().WaitClosed().ok());
    const absl::Status status = ReadByte(*device, 0, value);
    EXPECT_EQ(ErrorMetadataValue(status, "cause"), "PROTOCOL_VIOLATION")
        << status << " after " << response.ShortDebugString();
  }
}

TEST(WorkerLossTest, NeedOfAnUnknownGraphLosesTheWorker) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  v1::ControlResponse response;
  response.mutable_need()->set_graph_id(1000);
  cluster.worker().Say(response);
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "PROTOCOL_VIOLATION");
  EXPECT_EQ(ErrorMetadataValue(status, "worker"), "w0");
}

TEST(WorkerLossTest, ChunkBesideTheValueLosesTheWorker) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr large = device->NewStorage(3 << 20);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{large, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  cluster.worker().Pause();
  std::string value(3 << 20, '?');
  const auto read = *device->StartRead(0, large.get(), WholeView(*large.get()),
                                       value.data(), value.size());
  cluster.worker().WaitForRead();
  replica::State& state =
      dynamic_cast<DeviceRouter&>(*device).Members()[0]->state();
  const absl::string_view piece = "neither a whole chunk nor the last";
  // The session's first transfer.
  state.stream_receiver()->OnBulk(1, 0, {piece});
  const absl::Status status = read->Wait(Patience::kLong);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "PROTOCOL_VIOLATION");
  EXPECT_EQ(ErrorMetadataValue(status, "worker"), "w0");
}

TEST(WorkerLossTest, ADeviceThatFailedGivesItsLeaseBack) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0), other = *session->Device(1);
  const StoragePtr value = device->NewStorage(8), sound = other->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  ASSERT_TRUE(ReadByte(*other, 0, sound).ok());
  EXPECT_TRUE(cluster.coordinator().returned_leases().empty());
  v1::ControlResponse response;
  response.mutable_metered()->set_sequence(1000);
  cluster.worker(0).Say(response);
  EXPECT_FALSE(cluster.worker(0).WaitClosed().ok());
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "WORKER_LOST");
  ASSERT_TRUE(session->Close(absl::Seconds(5)).ok());
  // The other lease ends with the session.
  EXPECT_THAT(cluster.coordinator().returned_leases(),
              testing::ElementsAre("lease-0"));
}

TEST(WorkerLossTest, AWorkerThatCannotBeWorkedWithIsGivenBackAsSuch) {
  FakeCluster cluster;
  cluster.worker().Set(&FakeScript::wrong_id, true);
  const auto [session, device] = cluster.OpenDevice();
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, device->NewStorage(8))),
            "WRONG_WORKER");
  (void)session->Close(absl::Seconds(5));
  // The coordinator has no other worker.
  EXPECT_THAT(
      cluster.coordinator().returned_leases(),
      testing::ElementsAre("lease-0 unreachable", "lease-0 unreachable"));
}

TEST(WorkerLossTest, AnswerAfterItsTimeoutIsNoViolation) {
  FakeClock clock;
  FakeCluster cluster;
  const auto [session, device] =
      cluster.OpenDevice(OptionsWith(&clock, absl::Seconds(5)));
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  WhileTimePasses(&clock, [&] {
    EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "OPERATION_TIMEOUT");
  });
  cluster.worker().Resume();
  EXPECT_TRUE(device->Synchronize().ok());
}

TEST(WorkerLossTest, FingerprintMismatchFailsTheDevice) {
  FakeCluster cluster;
  cluster.worker().Set(&FakeScript::wrong_fingerprints, true);
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const absl::Status status = device->Synchronize();
  EXPECT_EQ(ErrorReason(status), "FINGERPRINT_MISMATCH");
  EXPECT_NE(status.message().find("787878"), std::string::npos);
}

TEST(WorkerLossTest, AnotherWorkerThanTheLeasesIsRefused) {
  FakeCluster cluster;
  cluster.worker().Set(&FakeScript::wrong_id, true);
  const auto session = cluster.Open();
  EXPECT_EQ(ErrorReason((*session->Device(0))->Placement().status()),
            "WRONG_WORKER");
}

TEST(WorkerLossTest, ALostWorkerWakesEveryWait) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8),
                   large = device->NewStorage(1 << 20);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kReads}})).ok());
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  const auto count = [&](const absl::Status& status) {
    EXPECT_EQ(ErrorReason(status), "WORKER_LOST") << status;
    EXPECT_NE(status.message().find("w0"), std::string::npos);
    if (!status.ok()) ++lost;
  };
  threads.emplace_back([&] { count(ReadByte(*device, 1, value)); });
  threads.emplace_back([&] { count(device->Synchronize()); });
  threads.emplace_back([&] {
    const std::string bytes(1 << 20, 'x');
    count(device->Upload(2, large.get(), {bytes, nullptr}));
  });
  threads.emplace_back([&] {
    Call call = MakeCall(1, {{value, kReads}});
    const StoragePtr out = device->NewStorage(0);
    call.AddUnknownResult(out.get());
    count(device->RecordAndWait(3, &call).status());
  });
  // No thread may hang, however far it got.
  cluster.worker().Break(MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                                   "the worker stops"));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 4);
  count(Record(*device, 0, MakeCall(1, {{value, kWrites}})));
  count(device->Placement().status());
  EXPECT_EQ(session->RootErrors().size(), 1u);
  Drop(value);
  // The other device has its own worker.
  const auto other = *session->Device(1);
  EXPECT_TRUE(ReadByte(*other, 0, other->NewStorage(8)).ok());
  EXPECT_EQ(ErrorReason(session->Close(absl::Seconds(10))), "WORKER_LOST");
}

TEST(WorkerLossTest, AnEndedLeaseNamesItsReason) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().EndLease("lease-7", "OTHER");
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().EndLease("lease-0", "WORKER_RESTARTED");
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("WORKER_RESTARTED"), std::string::npos);
  EXPECT_EQ(RetryAfter(status), absl::Seconds(1));
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
}

// Ends the stream as a worker does that drops the session on the coordinator's
// order.
void DropSession(FakeWorker* worker) {
  worker->Break(MakeError(absl::StatusCode::kAborted, "SESSION_DROPPED",
                          "the coordinator ended the session"));
}

TEST(WorkerLossTest, WhyASessionEndsMayComeAfterItsEnd) {
  FakeClock clock;
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  absl::Status status;
  std::thread reader([&] { status = ReadByte(*device, 0, value); });
  DropSession(&cluster.worker());
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
  cluster.coordinator().EndLease("lease-0", "QUOTA_RECLAIMED");
  reader.join();
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("QUOTA_RECLAIMED"), std::string::npos)
      << status;
  EXPECT_EQ(session->RootErrors().size(), 1u);
  EXPECT_EQ(cluster.worker().seen().resumes, 0);
}

TEST(WorkerLossTest, LossWithoutAReasonNamesTheWorkersError) {
  FakeClock clock;
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  DropSession(&cluster.worker());
  WhileTimePasses(&clock, [&] {
    const absl::Status status = ReadByte(*device, 0, value);
    EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
    EXPECT_EQ(ErrorMetadataValue(status, "cause"), "SESSION_DROPPED");
  });
  // The device does not ask the worker to resume a session that it dropped.
  EXPECT_EQ(cluster.worker().seen().resumes, 0);
}

TEST(WorkerLossTest, ARefusedLeaseIsTheDevicesFailure) {
  FakeCluster cluster;
  cluster.coordinator().RefuseLeases(MakeError(
      absl::StatusCode::kUnavailable, "NO_WORKER", "no worker has joined"));
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "NO_WORKER");
  EXPECT_EQ(ErrorReason(Record(*device, 0, MakeCall(1, {{value, kWrites}}))),
            "NO_WORKER");
}

TEST(WorkerLossTest, AfterItsFailureIsKnownADeviceBeginsAnew) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr old = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{old, kWrites}})).ok());
  ASSERT_TRUE(ReadByte(*device, 0, old).ok());
  DeviceGraphs& graphs = device->graphs();
  ASSERT_TRUE(graphs.Start(0).ok());
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{old, kWrites}})).ok());
  const auto graph = *graphs.Finish(0, {}, {}, 0);
  ASSERT_TRUE(device->Synchronize().ok());
  const auto calls = session->statistics().calls;
  cluster.coordinator().NoteRestart();
  cluster.worker().Restart(/*other_incarnation=*/true);
  const absl::Status lost = ReadByte(*device, 0, old);
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST");

  const auto again = *session->Device(0);
  EXPECT_NE(again, device);
  EXPECT_EQ(*session->Device(0), again);
  const StoragePtr fresh = again->NewStorage(8);
  ASSERT_TRUE(Record(*again, 0, MakeCall(1, {{fresh, kWrites}})).ok());
  EXPECT_TRUE(ReadByte(*again, 0, fresh).ok());
  EXPECT_EQ(session->statistics().calls, calls + 1);
  // Ids are unique in a session.
  EXPECT_NE(fresh->id(), old->id());

  // The tensors of the former device stay lost.
  EXPECT_EQ(ReadByte(*device, 0, old), lost);
  EXPECT_EQ(Record(*again, 0, MakeCall(1, {{fresh, kWrites}, {old, kReads}})),
            lost);
  Call call = MakeCall(1, {{old, kReads}});
  const StoragePtr unknown = again->NewStorage(0);
  call.AddUnknownResult(unknown.get());
  EXPECT_EQ(again->RecordAndWait(0, &call).status(), lost);
  EXPECT_EQ(again->CopyFrom(0, fresh.get(), old.get()), lost);
  EXPECT_EQ(device->CopyFrom(0, old.get(), fresh.get()), lost);
  EXPECT_EQ(device->Placement().status(), lost);
  EXPECT_EQ(graphs.Replay(0, graph, {}, nullptr).status(), lost);
  EXPECT_EQ(ErrorReason(again->graphs().Replay(0, graph, {}, nullptr).status()),
            "STALE_RECORDING");
  EXPECT_EQ(*session->Device(0), again);
  EXPECT_TRUE(ReadByte(*again, 0, fresh).ok());
  Drop(old);
  EXPECT_THAT(cluster.coordinator().returned_leases(),
              testing::ElementsAre("lease-0"));
  EXPECT_EQ(session->RootErrors().size(), 1u);
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
}

TEST(WorkerLossTest, ADeviceWhoseFailureIsUnknownStays) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().EndLease("lease-0", "QUOTA_RECLAIMED");
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
  EXPECT_EQ(*session->Device(0), device);
  Call call = MakeCall(1, {{value, kWrites}});
  EXPECT_EQ(ErrorReason(device->Record(0, &call)), "WORKER_LOST");
  EXPECT_NE(*session->Device(0), device);
}

TEST(WorkerLossTest, ADeviceWithoutAWorkerAsksAgain) {
  FakeCluster cluster;
  cluster.coordinator().RefuseLeases(MakeError(
      absl::StatusCode::kUnavailable, "NO_WORKER", "no worker has joined"));
  const auto session = cluster.Open();
  for (int i = 0; i < 3; ++i) {
    const auto device = *session->Device(0);
    EXPECT_EQ(ErrorReason(ReadByte(*device, 0, device->NewStorage(8))),
              "NO_WORKER");
  }
  cluster.coordinator().RefuseLeases(absl::OkStatus());
  const auto device = *session->Device(0);
  EXPECT_TRUE(ReadByte(*device, 0, device->NewStorage(8)).ok());
  EXPECT_EQ(cluster.coordinator().lease_requests().size(), 4u);
}

TEST(WorkerLossTest, CloseDoesNotWaitForTheEndOfAFailedDevice) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice(Recovering());
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().HoldLeases();
  cluster.coordinator().NoteRestart();
  cluster.worker().Restart(/*other_incarnation=*/true);
  for (Patience patience; cluster.coordinator().lease_requests().size() < 2;) {
    patience.Yield();
  }
  // The device fails while its own thread waits for a lease.
  cluster.coordinator().EndLease("lease-0", "QUOTA_RECLAIMED");
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "WORKER_LOST");
  std::thread user([&, &session = session, &device = device] {
    const auto again = session->Device(0);
    EXPECT_TRUE(!again.ok() || *again == device);
  });
  (void)session->Close(absl::Seconds(10));
  user.join();
}

TEST(WorkerLossTest, ASilentWorkerIsGivenUp) {
  FakeClock clock;
  FakeCluster cluster;
  cluster.worker().Set(&FakeScript::silent, true);
  const auto [session, device] = cluster.OpenDevice(OptionsWith(&clock));
  WhileTimePasses(&clock, [&] {
    EXPECT_EQ(ErrorReason(device->Placement().status()), "WORKER_LOST");
  });
}

TEST(WorkerLossTest, LimitsTooLowToWorkWithAreRefused) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_inline_bytes(16);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  EXPECT_EQ(ErrorReason(device->Placement().status()), "LIMITS_TOO_LOW");
}

}  // namespace
}  // namespace djinn
