// Recording, lifetimes, failures and the end of a session, through fake
// workers.
#include "client_lib/session/remote_session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "common/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

SessionOptions ShortWaits() {
  SessionOptions options;
  options.operation_timeout = absl::Milliseconds(50);
  options.connect_timeout = absl::Milliseconds(50);
  return options;
}

absl::Status Record(VirtualDevice& device, uint32_t lane, Call call) {
  return device.Record(lane, &call);
}

absl::Status ReadByte(VirtualDevice& device, uint32_t lane,
                      const StoragePtr& storage) {
  std::string value(storage->size_bytes(), '?');
  return device.Read(lane, storage.get(), WholeView(*storage.get()),
                     value.data(), value.size());
}

// As the program's last handle does.
void Drop(StoragePtr storage) { storage->device()->MarkDead(storage.get()); }

void ExpectNoViolations(const FakeWorker& worker) {
  for (const std::string& violation : worker.violations()) {
    ADD_FAILURE() << violation;
  }
}

TEST(RemoteSessionTest, RunsCarryVersionsHolesAndFinalSlots) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr weight = device->NewStorage(8), kept = device->NewStorage(8);
  ASSERT_TRUE(device->Upload(0, weight.get(), {"weights!", nullptr}).ok());
  {
    const StoragePtr temporary = device->NewStorage(8);
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(1, {{weight, kReads}, {temporary, kBirth}}, {0.5}))
            .ok());
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(2, {{temporary, kReads}, {kept, kBirth}}, {2.5}))
            .ok());
    Drop(temporary);
  }
  ASSERT_TRUE(Record(*device, 0, MakeCall(3, {{kept, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const std::vector<v1::Run> runs = cluster.worker().runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].bindings_size(), 3);
  EXPECT_EQ(runs[0].bindings(0).base_version(), 1u);
  EXPECT_EQ(runs[0].bindings(2).writes(), 2u);
  EXPECT_EQ(runs[0].float_holes(1), 2.5);
  ASSERT_EQ(runs[0].final_slots_size(), 1);
  EXPECT_EQ(runs[0].final_slots(0), 1u);
  EXPECT_EQ(cluster.worker().live_storages().size(), 2u);
  EXPECT_EQ(cluster.coordinator().structures().size(), 1u);
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster.worker().WaitClosed().ok());
  EXPECT_TRUE(cluster.coordinator().closed());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, GeneratorsAreSeededThenDrawnFrom) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr generator = device->NewStorage(0),
                   out = device->NewStorage(8);
  ASSERT_TRUE(device->Seed(0, generator.get(), 42).ok());
  ASSERT_TRUE(
      Record(*device, 0, MakeCall(1, {{generator, kDraws}, {out, kBirth}}))
          .ok());
  ASSERT_TRUE(
      Record(*device, 0, MakeCall(1, {{out, kWrites}, {generator, kDraws}}))
          .ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const v1::Run run = cluster.worker().runs().at(0);
  EXPECT_EQ(run.bindings(0).writes(), 2u);
  EXPECT_TRUE(run.bindings(0).reads());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, ALoopDefinesTwoStructuresAndLeaksNothing) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr weight = device->NewStorage(8);
  StoragePtr value = device->NewStorage(8);
  for (int i = 0; i < 175 * 20; ++i) {
    const StoragePtr fresh = device->NewStorage(8);
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(i % 175,
                        {{weight, kReads}, {value, kReads}, {fresh, kBirth}}))
            .ok());
    Drop(value);
    value = fresh;
  }
  ASSERT_TRUE(device->Synchronize().ok());
  const Statistics statistics = session->statistics();
  EXPECT_EQ(statistics.calls, 175u * 20);
  // The first differs in what exists; the last is cut by Synchronize().
  EXPECT_LE(statistics.structures_defined, 3u);
  EXPECT_EQ(cluster.worker().live_storages().size(), 2u);
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, MoreStructuresThanAllowedAreDefinedAgain) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_structures(2);
  FakeCluster cluster(limits);
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  for (const int op : {1, 2, 1, 3, 1, 2}) {
    ASSERT_TRUE(Record(*device, 0, MakeCall(op, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  }
  // The very first one creates the storage.
  EXPECT_EQ(session->statistics().structures_defined, 5u);
  EXPECT_EQ(cluster.coordinator().structures().size(), 4u);
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, AnotherCoordinatorHearsWhatIsUsedThere) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  const auto use = [&](int op) {
    ASSERT_TRUE(Record(*device, 0, MakeCall(op, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  };
  use(1);
  use(2);
  EXPECT_EQ(cluster.coordinator().structures().size(), 2u);
  cluster.coordinator().AttachAgain();
  use(1);
  use(1);
  use(3);
  EXPECT_EQ(cluster.coordinator().structures().size(), 4u);
  EXPECT_EQ(session->statistics().structures_defined, 3u);
}

TEST(RemoteSessionTest, DeadStoragesAreFreedWithTheNextTraffic) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  StoragePtr value = device->NewStorage(8);
  const StoragePtr other = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  Drop(std::move(value));
  EXPECT_EQ(cluster.worker().live_storages().size(), 1u);
  ASSERT_TRUE(ReadByte(*device, 0, other).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_TRUE(ReadByte(*device, 0, other).ok());
  EXPECT_EQ(cluster.worker().live_storages(), std::set<uint64_t>{other->id()});
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, ManyDeadBytesAreFreedAtOnce) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  StoragePtr value = device->NewStorage(2 << 20);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const size_t before = cluster.worker().received().size();
  Drop(std::move(value));
  cluster.worker().WaitReceived(before + 1);
  EXPECT_TRUE(cluster.worker().received().back().has_free());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, StoragesNeverUsedNeedNoMessage) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  for (int i = 0; i < 1000; ++i) Drop(device->NewStorage(1 << 20));
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster.coordinator().lease_requests().empty());
}

TEST(RemoteSessionTest, EachWorkerSeesItsStoragesWithoutHoles) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  std::vector<StoragePtr> storages;
  for (int i = 0; i < 40; ++i) {
    const auto device = *session->Device(i % 2);
    Drop(device->NewStorage(8));  // never used
    storages.push_back(device->NewStorage(8));
  }
  // In another order than they were made.
  std::reverse(storages.begin(), storages.end());
  for (const StoragePtr& storage : storages) {
    EXPECT_EQ(storage->id(), 0u);
    ASSERT_TRUE(ReadByte(*storage->device(), 0, storage).ok());
  }
  std::set<uint64_t> all;
  for (const int i : {0, 1}) {
    const std::set<uint64_t> ids = cluster.worker(i).live_storages();
    ASSERT_EQ(ids.size(), 20u);
    EXPECT_EQ(*ids.rbegin() - *ids.begin(), 19u);
    all.insert(ids.begin(), ids.end());
  }
  EXPECT_EQ(all.size(), 40u);
  EXPECT_NE(*all.begin(), 0u);
}

TEST(RemoteSessionTest, UnknownResultsAreWaitedFor) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  v1::RunMetadata metadata;
  v1::TensorView* const view = metadata.add_results();
  view->set_data_type(v1::DATA_TYPE_INT64);
  view->add_sizes(3);
  view->add_strides(1);
  metadata.add_storage_bytes(24);
  cluster.worker().AnswerMetadata(metadata);
  const StoragePtr in = device->NewStorage(8), out = device->NewStorage(0);
  const auto make = [&](const StoragePtr& result) {
    Call call = MakeCall(1, {{in, kReads}});
    call.AddUnknownResult(result.get());
    return call;
  };
  Call call = make(out);
  const auto results = device->RecordAndWait(0, &call);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 1u);
  EXPECT_EQ((*results)[0].view.sizes[0], 3);
  EXPECT_EQ(out->size_bytes(), 24u);

  cluster.worker().FailNextRun(0xf00);
  const StoragePtr again = device->NewStorage(0);
  call = make(again);
  EXPECT_EQ(
      ErrorMetadataValue(device->RecordAndWait(0, &call).status(), "error_id"),
      "f00");
  EXPECT_EQ(ErrorReason(Record(*device, 0, make(device->NewStorage(0)))),
            "UNKNOWN_RESULT");
  // Already said to the program.
  EXPECT_TRUE(device->Synchronize().ok());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, MetadataThatDoesNotFitTheCallLosesTheWorker) {
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
    cluster.worker().AnswerMetadata(metadata);
    const auto session = cluster.Open();
    const auto device = *session->Device(0);
    const StoragePtr in = device->NewStorage(8), out = device->NewStorage(0);
    Call call = MakeCall(1, {{in, kReads}});
    call.AddUnknownResult(out.get());
    const absl::Status status = device->RecordAndWait(0, &call).status();
    EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
    EXPECT_EQ(ErrorMetadataValue(status, "cause"), "PROTOCOL_VIOLATION")
        << status;
  }
}

TEST(RemoteSessionTest, AnswersToWhatWasNotAskedLoseTheWorker) {
  std::vector<v1::ControlResponse> malformed(7);
  malformed[0].mutable_admitted()->set_structure_id(7);
  malformed[1].mutable_read()->set_sequence(1000);
  malformed[2].mutable_read()->set_sequence(2);  // answered before
  malformed[3].mutable_metadata()->set_sequence(2);
  malformed[4].mutable_transfer()->set_transfer_id(1);
  malformed[5].mutable_transfer()->set_send(false);
  malformed[6].mutable_poisoned()->set_message("without a code");
  for (v1::ControlResponse& response : malformed) {
    FakeCluster cluster;
    const auto session = cluster.Open();
    const auto device = *session->Device(0);
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

TEST(RemoteSessionTest, AnAnswerNobodyWaitsForAnyMoreIsNoBreach) {
  FakeCluster cluster;
  SessionOptions options;
  options.operation_timeout = absl::Milliseconds(50);
  const auto session = cluster.Open(options);
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "OPERATION_TIMEOUT");
  cluster.worker().Resume();
  EXPECT_TRUE(device->Synchronize().ok());
}

TEST(RemoteSessionTest, AStructureUnderstoodOtherwiseFailsTheDevice) {
  FakeCluster cluster;
  cluster.worker().SayWrongFingerprints();
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const absl::Status status = device->Synchronize();
  EXPECT_EQ(ErrorReason(status), "FINGERPRINT_MISMATCH");
  EXPECT_NE(status.message().find("787878"), std::string::npos);
}

TEST(RemoteSessionTest, AnotherWorkerThanTheLeasesIsRefused) {
  FakeCluster cluster;
  cluster.worker().SayWrongId();
  const auto session = cluster.Open();
  EXPECT_EQ(ErrorReason((*session->Device(0))->Placement().status()),
            "WRONG_WORKER");
}

TEST(RemoteSessionTest, SynchronizeReportsAnErrorOnce) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  cluster.worker().FailNextRun(0xbad);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  EXPECT_EQ(ErrorReason(device->Synchronize()), "OPERATOR_FAILED");
  EXPECT_TRUE(device->Synchronize().ok());
}

TEST(RemoteSessionTest, CloseReportsAnErrorNobodySaw) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  cluster.worker().FailNextRun(0xbad);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  EXPECT_EQ(ErrorReason(session->Close(absl::Seconds(10))), "OPERATOR_FAILED");
}

TEST(RemoteSessionTest, AFullWindowTimesOutWithoutEffect) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(4);
  FakeCluster cluster(limits);
  const auto session = cluster.Open(ShortWaits());
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  // Defined now: what follows is one message each, so that the recording
  // threads wait for room and the sender never does.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  cluster.worker().Pause();
  absl::Status status;
  int recorded = 1;
  // Two lanes that take turns seal at every call.
  while (status.ok()) {
    status = Record(*device, recorded % 2, MakeCall(1, {{value, kWrites}}));
    if (status.ok()) ++recorded;
  }
  EXPECT_EQ(ErrorReason(status), "WINDOW_FULL");
  cluster.worker().Resume();
  ASSERT_TRUE(device->Synchronize().ok());
  uint64_t writes = 0;
  for (const v1::Run& run : cluster.worker().runs())
    writes += run.bindings(0).writes();
  EXPECT_EQ(writes, static_cast<uint64_t>(recorded));
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, AWorkerThatStandsStillIsGivenUp) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(1);
  FakeCluster cluster(limits);
  const auto session = cluster.Open(ShortWaits());
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  // A structure and its run: the second waits for the first.
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  (void)device->Synchronize();
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("no progress for"), std::string::npos);
}

TEST(RemoteSessionTest, AMessageLargerThanTheWindowIsSaidAndNotSent) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding_bytes(1 << 16);
  FakeCluster cluster(limits);
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(
      Record(*device, 0,
             MakeCall(1, {{value, kWrites}}, std::vector<double>(20000, 0.5)))
          .ok());
  const absl::Status status = device->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), "MESSAGE_TOO_LARGE") << status;
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, AFullWindowOpensWithProgress) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(2);
  FakeCluster cluster(limits);
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Record(*device, i % 2, MakeCall(1, {{value, kWrites}})).ok());
  }
  ASSERT_TRUE(device->Synchronize().ok());
  ExpectNoViolations(cluster.worker());
}

TEST(RemoteSessionTest, ALostWorkerWakesEveryWait) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
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
  // Wherever they are by now, none may hang.
  cluster.worker().Break(absl::UnavailableError("socket closed"));
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

TEST(RemoteSessionTest, AnEndedLeaseNamesItsReason) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().EndLease("lease-7", "OTHER");
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.coordinator().EndLease("lease-0", "WORKER_RESTARTED");
  const absl::Status status = ReadByte(*device, 0, value);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("WORKER_RESTARTED"), std::string::npos);
  EXPECT_FALSE(cluster.worker().WaitClosed().ok());
}

TEST(RemoteSessionTest, ARefusedLeaseIsTheDevicesFailure) {
  FakeCluster cluster;
  cluster.coordinator().RefuseLeases(MakeError(
      absl::StatusCode::kUnavailable, "NO_WORKER", "no worker has joined"));
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "NO_WORKER");
  EXPECT_EQ(ErrorReason(Record(*device, 0, MakeCall(1, {{value, kWrites}}))),
            "NO_WORKER");
}

TEST(RemoteSessionTest, ASilentWorkerIsGivenUp) {
  FakeCluster cluster;
  cluster.worker().BeSilent();
  SessionOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  const auto session = cluster.Open(options);
  const auto device = *session->Device(0);
  EXPECT_EQ(ErrorReason(device->Placement().status()), "WORKER_LOST");
}

TEST(RemoteSessionTest, LimitsTooLowToWorkWithAreRefused) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_inline_bytes(16);
  FakeCluster cluster(limits);
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  EXPECT_EQ(ErrorReason(device->Placement().status()), "LIMITS_TOO_LOW");
}

TEST(RemoteSessionTest, PlacementSaysWhereAndWhy) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto placement = (*session->Device(1))->Placement();
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(placement->worker_id, "w1");
  EXPECT_EQ(placement->reason, "the only one");
  EXPECT_EQ(ErrorReason(session->Device(16).status()), "NO_SUCH_DEVICE");
}

TEST(RemoteSessionTest, CloseNamesUnfinishedWork) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  cluster.worker().Pause();
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  const absl::Status status = session->Close(absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ErrorReason(status), "UNFINISHED_WORK");
  EXPECT_EQ(ErrorReason(ReadByte(*device, 0, value)), "SESSION_CLOSED");
  EXPECT_EQ(ErrorReason(session->Device(0).status()), "SESSION_CLOSED");
  Drop(value);
}

TEST(RemoteSessionTest, CloseCarriesOutWhatItSealsWhileTheSenderIsAwake) {
  for (int i = 0; i < 200; ++i) {
    FakeCluster cluster;
    const auto session = cluster.Open();
    const auto device = *session->Device(0);
    const StoragePtr value = device->NewStorage(8);
    StoragePtr large = device->NewStorage(2 << 20);
    ASSERT_TRUE(ReadByte(*device, 0, value).ok());
    ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
    // Wakes the sender, which then looks for work while the session closes.
    Drop(std::move(large));
    ASSERT_TRUE(session->Close(absl::Seconds(10)).ok());
    ASSERT_EQ(cluster.worker().runs().size(), 1u);
  }
}

TEST(RemoteSessionTest, CloseDoesNotWaitForALeaseThatDoesNotCome) {
  FakeCluster cluster;
  cluster.coordinator().HoldLeases();
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  const StoragePtr value = device->NewStorage(8);
  absl::Status read;
  std::thread reader([&] { read = ReadByte(*device, 0, value); });
  cluster.coordinator().WaitForLeaseRequest();
  EXPECT_EQ(ErrorReason(session->Close(absl::Milliseconds(20))),
            "UNFINISHED_WORK");
  reader.join();
  EXPECT_EQ(ErrorReason(read), "SESSION_CLOSED");
}

TEST(RemoteSessionTest, StoragesOutliveTheirSession) {
  FakeCluster cluster;
  StoragePtr value;
  {
    const auto session = cluster.Open();
    value = (*session->Device(0))->NewStorage(8);
    ASSERT_TRUE(
        Record(*value->device(), 0, MakeCall(1, {{value, kWrites}})).ok());
  }
  EXPECT_EQ(ErrorReason(ReadByte(*value->device(), 0, value)),
            "SESSION_CLOSED");
  EXPECT_FALSE(value->dead());
  Drop(std::move(value));
}

TEST(RemoteSessionTest, RandomSchedulesOfSeveralThreadsKeepTheOrder) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_outstanding(8);
  FakeCluster cluster(limits);
  const auto session = cluster.Open();
  const auto device = *session->Device(0);
  std::vector<StoragePtr> shared;
  for (int i = 0; i < 4; ++i) shared.push_back(device->NewStorage(8));
  std::vector<std::thread> threads;
  for (uint32_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      std::minstd_rand random(lane + 1);
      for (int i = 0; i < 400; ++i) {
        const StoragePtr& a = shared[random() % 4];
        const StoragePtr& b = shared[random() % 4];
        switch (random() % 16) {
          case 0:
            ASSERT_TRUE(ReadByte(*device, lane, a).ok());
            break;
          case 1:
            ASSERT_TRUE(
                device->Upload(lane, a.get(), {"uploaded", nullptr}).ok());
            break;
          case 2:
            ASSERT_TRUE(device->Resize(lane, b.get(), 8).ok());
            break;
          default: {
            const StoragePtr fresh = device->NewStorage(8);
            ASSERT_TRUE(Record(*device, lane,
                               MakeCall(1, {{a, kReads}, {fresh, kBirth}}))
                            .ok());
            const uint8_t access = random() % 2 == 0 ? kWrites : kOverwrites;
            ASSERT_TRUE(Record(*device, lane,
                               MakeCall(2, {{fresh, kReads}, {b, access}}))
                            .ok());
            Drop(fresh);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(cluster.worker().live_storages().size(), 4u);
  ExpectNoViolations(cluster.worker());
}

// Last: from here on nothing else may open a session in a child.
TEST(RemoteSessionTest, AForkedChildRefusesAndCleansUpNothing) {
  FakeCluster cluster;
  auto session = cluster.Open();
  auto device = *session->Device(0);
  StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    device->MarkDead(value.get());
    const bool refused =
        ErrorReason(ReadByte(*device, 0, value)) == "AFTER_FORK" &&
        ErrorReason(Record(*device, 0, MakeCall(1, {{value, kReads}}))) ==
            "AFTER_FORK" &&
        ErrorReason(session->Close(absl::Seconds(1))) == "AFTER_FORK";
    // Whatever is destroyed last waits for no thread that stayed behind.
    value = StoragePtr();
    device.reset();
    session.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ReadByte(*device, 0, value).ok());
}

}  // namespace
}  // namespace djinn
