// Tests recorded calls, lifetimes, and the errors that the program gets, with
// fake workers.
#include "client_lib/session/remote_session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

TEST(RemoteSessionTest, RunsCarryVersionsHolesAndFinalSlots) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr weight = device->NewStorage(8), kept = device->NewStorage(8);
  ASSERT_TRUE(device->Upload(0, weight.get(), {"weights!", nullptr}).ok());
  {
    const StoragePtr temporary = device->NewStorage(8);
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(1, {{weight, kReads}, {temporary, kCreates}}, {0.5}))
            .ok());
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(2, {{temporary, kReads}, {kept, kCreates}}, {2.5}))
            .ok());
    Drop(temporary);
  }
  ASSERT_TRUE(Record(*device, 0, MakeCall(3, {{kept, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const std::vector<v1::Run> runs = cluster.worker().seen().runs;
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].bindings_size(), 3);
  EXPECT_EQ(runs[0].bindings(0).base_version(), 1u);
  EXPECT_EQ(runs[0].bindings(2).writes(), 2u);
  EXPECT_EQ(runs[0].float_holes(1), 2.5);
  ASSERT_EQ(runs[0].final_slots_size(), 1);
  EXPECT_EQ(runs[0].final_slots(0), 1u);
  EXPECT_EQ(cluster.worker().live_storages().size(), 2u);
  EXPECT_EQ(cluster.coordinator().graphs().size(), 1u);
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster.worker().WaitClosed().ok());
  EXPECT_TRUE(cluster.coordinator().closed());
}

TEST(RemoteSessionTest, ARepeatSaysTheFloatsThatChanged) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(device->Upload(0, value.get(), {"anything", nullptr}).ok());
  const double changing[] = {2.5, 2.5, 2.5, 3.5, -0.0, 0.0};
  for (const double second : changing) {
    ASSERT_TRUE(
        Record(*device, 0, MakeCall(1, {{value, kWrites}}, {0.5, second, 1.5}))
            .ok());
    ASSERT_TRUE(device->Synchronize().ok());
  }
  const std::vector<v1::Run> runs = cluster.worker().seen().runs;
  ASSERT_EQ(runs.size(), std::size(changing));
  int repeats = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    ASSERT_EQ(runs[i].float_holes_size(), 3);
    EXPECT_EQ(runs[i].float_holes(0), 0.5);
    EXPECT_EQ(std::signbit(runs[i].float_holes(1)), std::signbit(changing[i]));
    EXPECT_EQ(runs[i].float_holes(1), changing[i]);
    EXPECT_EQ(runs[i].float_holes(2), 1.5);
    if (!runs[i].has_repeat()) continue;
    ++repeats;
    EXPECT_EQ(runs[i].repeat().float_gaps_size(),
              std::memcmp(&changing[i], &changing[i - 1], 8) == 0 ? 0 : 1);
  }
  EXPECT_GE(repeats, 3);
}

// Runs a program whose `parts` share one graph, each with a dozen weights.
// Returns, by part, how many slots each run of the last round listed.
std::vector<int> ListedByParts(int parts, int rounds) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  EXPECT_TRUE(device->Upload(0, value.get(), {"anything", nullptr}).ok());
  std::vector<std::vector<StoragePtr>> weights(parts);
  for (std::vector<StoragePtr>& of_part : weights) {
    for (int i = 0; i < 12; ++i) {
      of_part.push_back(device->NewStorage(8));
      EXPECT_TRUE(
          device->Upload(0, of_part.back().get(), {"a weight", nullptr}).ok());
    }
  }
  for (int round = 0; round < rounds; ++round) {
    for (const std::vector<StoragePtr>& of_part : weights) {
      std::vector<Use> uses = {{value, kWrites}};
      for (const StoragePtr& weight : of_part) uses.push_back({weight, kReads});
      EXPECT_TRUE(Record(*device, 0, MakeCall(1, uses)).ok());
      EXPECT_TRUE(device->Synchronize().ok());
    }
  }
  const std::vector<v1::Run> runs = cluster.worker().seen().runs;
  EXPECT_EQ(runs.size(), static_cast<size_t>(parts * rounds));
  std::vector<int> listed;
  for (auto run = runs.end() - parts; run != runs.end(); ++run) {
    EXPECT_TRUE(run->has_repeat());
    listed.push_back(run->repeat().slot_gaps_size());
  }
  return listed;
}

TEST(RemoteSessionTest, PartsThatShareAGraphRepeatTheirOwnRuns) {
  EXPECT_EQ(ListedByParts(1, 4), (std::vector<int>{0}));
  EXPECT_EQ(ListedByParts(3, 4), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(ListedByParts(8, 4), std::vector<int>(8, 0));
}

TEST(RemoteSessionTest, RunOfTooManyPartsListsAllItsSlots) {
  std::vector<int> listed = ListedByParts(9, 6);
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(listed.back(), 12);
}

TEST(RemoteSessionTest, GeneratorsAreSeededThenDrawnFrom) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr generator = device->NewStorage(0),
                   out = device->NewStorage(8);
  ASSERT_TRUE(device->Seed(0, generator.get(), 42).ok());
  ASSERT_TRUE(
      Record(*device, 0, MakeCall(1, {{generator, kDraws}, {out, kCreates}}))
          .ok());
  ASSERT_TRUE(
      Record(*device, 0, MakeCall(1, {{out, kWrites}, {generator, kDraws}}))
          .ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const v1::Run run = cluster.worker().seen().runs.at(0);
  EXPECT_EQ(run.bindings(0).writes(), 2u);
  EXPECT_TRUE(run.bindings(0).reads());
}

TEST(RemoteSessionTest, AReadWaitsForNothingThatItsValueDoesNotNeed) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr loss = device->NewStorage(8), weight = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{loss, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_TRUE(
      Record(*device, 0, MakeCall(2, {{loss, kReads}, {weight, kWrites}}))
          .ok());
  ASSERT_TRUE(ReadByte(*device, 0, loss).ok());
  // The call is sent all the same, behind the read.
  cluster.worker().WaitReceived(5);
  using Ordered = v1::Ordered;
  std::vector<Ordered::ActionCase> actions;
  for (const Ordered& message : cluster.worker().seen().received) {
    actions.push_back(message.action_case());
  }
  EXPECT_EQ(actions, (std::vector<Ordered::ActionCase>{
                         Ordered::kDefineGraph, Ordered::kRun, Ordered::kRead,
                         Ordered::kDefineGraph, Ordered::kRun}));
  // A value that the open segment computes comes after the segment's run.
  ASSERT_TRUE(Record(*device, 0, MakeCall(2, {{loss, kWrites}})).ok());
  ASSERT_TRUE(ReadByte(*device, 0, loss).ok());
  EXPECT_EQ(cluster.worker().seen().received.back().action_case(),
            Ordered::kRead);
}

TEST(RemoteSessionTest, ALoopDefinesFewGraphsAndLeaksNothing) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr weight = device->NewStorage(8);
  StoragePtr value = device->NewStorage(8);
  for (int i = 0; i < 175 * 20; ++i) {
    const StoragePtr fresh = device->NewStorage(8);
    ASSERT_TRUE(
        Record(*device, 0,
               MakeCall(i % 175,
                        {{weight, kReads}, {value, kReads}, {fresh, kCreates}}))
            .ok());
    Drop(value);
    value = fresh;
  }
  ASSERT_TRUE(device->Synchronize().ok());
  const Statistics statistics = session->statistics();
  EXPECT_EQ(statistics.calls, 175u * 20);
  // There are three graphs: a short one at the start, the loop's own, and the
  // last one, which Synchronize() cuts.
  EXPECT_EQ(statistics.graphs_defined, 3u);
  EXPECT_EQ(cluster.worker().live_storages().size(), 2u);
}

TEST(RemoteSessionTest, MoreGraphsThanAllowedAreForgottenAndDefinedAgain) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_graphs(2);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  for (const int op : {1, 2, 1, 3, 1, 2}) {
    ASSERT_TRUE(Record(*device, 0, MakeCall(op, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  }
  // The first run creates the storage.
  EXPECT_EQ(session->statistics().graphs_defined, 5u);
  EXPECT_EQ(cluster.coordinator().graphs().size(), 4u);
}

TEST(RemoteSessionTest, EvictedGraphIsSuppliedAgain) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
    cluster.worker().EvictPlans();
  }
  EXPECT_EQ(session->statistics().graphs_defined, 1u);
  EXPECT_EQ(session->statistics().needs_answered, 2u);
}

TEST(RemoteSessionTest, AForgottenGraphIsSuppliedUntilTheWorkerForgetsIt) {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_max_graphs(1);
  FakeCluster cluster(limits);
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  cluster.worker().EvictPlans();
  cluster.worker().Pause();
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(Record(*device, 1, MakeCall(2, {{value, kWrites}})).ok());
  std::thread waits([&] { EXPECT_TRUE(device->Synchronize().ok()); });
  // Three messages wait: the run that needs the graph, the definition that
  // forgets it, and another run.
  cluster.worker().WaitWaiting(3);
  cluster.worker().Resume();
  waits.join();
  EXPECT_EQ(session->statistics().needs_answered, 1u);
}

TEST(RemoteSessionTest, AnotherCoordinatorHearsWhatIsUsedThere) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  const auto use = [&](int op) {
    ASSERT_TRUE(Record(*device, 0, MakeCall(op, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  };
  use(1);
  use(2);
  EXPECT_EQ(cluster.coordinator().graphs().size(), 2u);
  cluster.coordinator().AttachAgain();
  use(1);
  use(1);
  use(3);
  EXPECT_EQ(cluster.coordinator().graphs().size(), 4u);
  EXPECT_EQ(session->statistics().graphs_defined, 3u);
}

TEST(RemoteSessionTest, DeadStoragesAreFreedWithTheNextTraffic) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  StoragePtr value = device->NewStorage(8);
  const StoragePtr other = device->NewStorage(8);
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  Drop(std::move(value));
  EXPECT_EQ(cluster.worker().live_storages().size(), 1u);
  ASSERT_TRUE(ReadByte(*device, 0, other).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_TRUE(ReadByte(*device, 0, other).ok());
  EXPECT_EQ(cluster.worker().live_storages(), std::set<uint64_t>{other->id()});
}

TEST(RemoteSessionTest, ManyDeadBytesAreFreedAtOnce) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  StoragePtr value = device->NewStorage(2 << 20);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const size_t before = cluster.worker().seen().received.size();
  Drop(std::move(value));
  cluster.worker().WaitReceived(before + 1);
  EXPECT_TRUE(cluster.worker().seen().received.back().has_free());
}

TEST(RemoteSessionTest, StoragesNeverUsedNeedNoMessage) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
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
  // The order differs from that of creation.
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
  const auto [session, device] = cluster.OpenDevice();
  v1::RunMetadata metadata;
  v1::TensorView* const view = metadata.add_results();
  view->set_data_type(v1::DATA_TYPE_INT64);
  view->add_sizes(3);
  view->add_strides(1);
  metadata.add_storage_bytes(24);
  cluster.worker().Set(&FakeScript::metadata, metadata);
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

  cluster.worker().Set(&FakeScript::fail_next_run, 0xf00);
  const StoragePtr again = device->NewStorage(0);
  call = make(again);
  EXPECT_EQ(
      ErrorMetadataValue(device->RecordAndWait(0, &call).status(), "error_id"),
      "f00");
  EXPECT_EQ(ErrorReason(Record(*device, 0, make(device->NewStorage(0)))),
            "UNKNOWN_RESULT");
  // The program already got the error.
  EXPECT_TRUE(device->Synchronize().ok());
}

TEST(RemoteSessionTest, SynchronizeReportsAnErrorOnce) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  cluster.worker().Set(&FakeScript::fail_next_run, 0xbad);
  const StoragePtr value = device->NewStorage(8);
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  EXPECT_EQ(ErrorReason(device->Synchronize()), "OPERATOR_FAILED");
  EXPECT_TRUE(device->Synchronize().ok());
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

TEST(RemoteSessionTest, ADeviceMayBePlacedByAPolicyOfItsOwn) {
  FakeCluster cluster;
  SessionOptions options;
  options.device_placement_policies = {{1, "minimize_cost"}};
  const auto session = cluster.Open(options);
  ASSERT_TRUE((*session->Device(0))->Placement().ok());
  ASSERT_TRUE((*session->Device(1))->Placement().ok());
  const auto requests = cluster.coordinator().lease_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].placement_policy(), "");
  EXPECT_EQ(requests[1].placement_policy(), "minimize_cost");
}

}  // namespace
}  // namespace djinn
