// Tests streams that break: what the program sees and what the worker executes
// are the same as without the break.
#include <climits>
#include <future>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/session/device/replica/replica_state.h"
#include "client_lib/session/multi_worker/device_router.h"
#include "client_lib/session/stream/dead_list.h"
#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "client_lib/session/transfer/read_table.h"
#include "client_lib/session/transfer/work.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "common/transport/stream.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using Cut = FakeScript::Cut;

constexpr size_t kLarge = 2 * kBulkChunkBytes + 12345;
// The size is too large for an eager upload.
constexpr size_t kLarger = (2 << 20) + 1;

// Makes one call of every kind. Returns what the program sees.
std::vector<std::string> RunScript(VirtualDevice& device) {
  std::vector<std::string> seen;
  const auto note = [&](const absl::Status& status) {
    seen.push_back(ErrorReason(status).empty() ? status.ToString()
                                               : ErrorReason(status));
  };
  const auto read = [&](const StoragePtr& storage) {
    std::string value(storage->size_bytes(), '?');
    note(device.Read(1, storage.get(), WholeView(*storage.get()), value.data(),
                     value.size()));
    seen.push_back(std::move(value));
  };
  const auto upload = [&](const StoragePtr& storage, const std::string& bytes) {
    note(device.Upload(1, storage.get(), {bytes, nullptr}));
  };
  const StoragePtr small = device.NewStorage(8),
                   large = device.NewStorage(kLarge),
                   larger = device.NewStorage(kLarger),
                   generator = device.NewStorage(0), bad = device.NewStorage(8);
  upload(small, "8 bytes.");
  note(device.Seed(1, generator.get(), 7));
  upload(large, Pattern(kLarge));
  read(large);
  note(Record(device, 1, MakeCall(1, {{small, kWrites}}, {0.5})));
  read(small);
  // The lanes take turns.
  for (uint32_t i = 0; i < 4; ++i) {
    note(Record(device, i % 2,
                MakeCall(2, {{small, kWrites}, {generator, kDraws}})));
  }
  const StoragePtr unknown = device.NewStorage(0);
  Call call = MakeCall(3, {{small, kReads}});
  call.AddUnknownResult(unknown.get());
  note(device.RecordAndWait(1, &call).status());
  note(device.Resize(1, large.get(), kLarge - 5));
  read(large);
  upload(large, Pattern(kLarge - 5));
  Drop(large);
  upload(larger, Pattern(kLarger));
  read(larger);
  read(small);
  note(device.Synchronize());
  return seen;
}

struct Outcome {
  std::vector<std::string> seen;
  std::vector<std::string> carried;
  std::vector<std::string> violations;
  size_t live = 0;
  int incoming = 0;
  int outgoing = 0;
  int resumes = 0;
  Statistics statistics;
};

// Selects what the worker asks about uploads. With kEager it has room for eager
// ones.
enum class Asks { kNothing, kProofs, kEager };

Outcome RunCutAt(Cut where, bool together, Asks asks, int n) {
  Outcome outcome;
  FakeCluster cluster;
  if (together) cluster.SendTogether();
  FakeWorker& worker = cluster.worker();
  v1::RunMetadata metadata;
  v1::TensorView* const view = metadata.add_results();
  view->set_data_type(v1::DATA_TYPE_INT64);
  view->add_sizes(3);
  view->add_strides(1);
  metadata.add_storage_bytes(24);
  worker.Set(&FakeScript::metadata, metadata);
  if (asks == Asks::kProofs) worker.Set(&FakeScript::ask_for_proofs, true);
  if (asks == Asks::kEager) worker.Set(&FakeScript::content_room, 4 << 20);
  if (n > 0) worker.CutAt(where, n);
  {
    const auto session = cluster.Open();
    outcome.seen = RunScript(**session->Device(0));
    outcome.seen.push_back(session->Close(absl::Seconds(60)).ToString());
    outcome.statistics = session->statistics();
  }
  const std::vector<v1::Run> runs = worker.seen().runs;
  size_t run = 0;
  for (v1::Ordered message : worker.seen().received) {
    // Ignores the time of frees, which is not part of the program, and what a
    // run leaves out.
    if (message.has_free()) continue;
    message.clear_sequence();
    if (message.has_run()) {
      *message.mutable_run() = runs[run++];
      message.mutable_run()->clear_remember();
      message.mutable_run()->clear_repeat();
    }
    outcome.carried.push_back(message.SerializeAsString());
  }
  outcome.violations = worker.seen().violations;
  outcome.live = worker.live_storages().size();
  outcome.incoming = worker.seen().incoming;
  outcome.outgoing = worker.seen().outgoing;
  outcome.resumes = worker.seen().resumes;
  return outcome;
}

// The second parameter says whether messages leave together.
class CutTest : public testing::TestWithParam<std::tuple<Cut, bool, Asks>> {};

TEST_P(CutTest, ACutAnywhereChangesNothing) {
  const auto [where, together, asks] = GetParam();
  const Outcome whole = RunCutAt(where, together, asks, 0);
  ASSERT_EQ(whole.violations, std::vector<std::string>());
  ASSERT_EQ(whole.resumes, 0);
  const bool in = where == Cut::kBeforeIn || where == Cut::kAfterIn;
  const int things = in ? whole.incoming : whole.outgoing;
  ASSERT_GT(things, 20);
  int resumed = 0;
  for (int n = 1; n <= things; ++n) {
    SCOPED_TRACE(absl::StrCat("cut at ", n, " of ", things));
    const Outcome cut = RunCutAt(where, together, asks, n);
    EXPECT_EQ(cut.violations, std::vector<std::string>());
    ASSERT_TRUE(cut.seen == whole.seen);
    ASSERT_TRUE(cut.carried == whole.carried);
    EXPECT_EQ(cut.live, whole.live);
    EXPECT_EQ(cut.statistics.uploads_sent, whole.statistics.uploads_sent);
    EXPECT_LE(cut.statistics.resumes, static_cast<uint64_t>(cut.resumes));
    resumed += static_cast<int>(cut.statistics.resumes);
  }
  // Before the first hello is answered there is nothing to resume, and the last
  // messages may not arrive any more.
  EXPECT_GE(resumed, things - 5);
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, CutTest,
    testing::Combine(testing::Values(Cut::kBeforeIn, Cut::kAfterIn,
                                     Cut::kBeforeOut, Cut::kAfterOut),
                     testing::Bool(),
                     testing::Values(Asks::kNothing, Asks::kProofs,
                                     Asks::kEager)));

class ResumeTest : public DeviceTest {
 protected:
  ResumeTest() : DeviceTest(OptionsWith(nullptr), FakeTime()) {}

  void Connect() {
    value_ = device_->NewStorage(8);
    ASSERT_TRUE(ReadByte(*device_, 0, value_).ok());
  }
  absl::Status ReadWhileTimePasses() {
    absl::Status status;
    WhileTimePasses(&clock_, [&] { status = ReadByte(*device_, 0, value_); });
    return status;
  }

  StoragePtr value_;
};

TEST_F(ResumeTest, AWorkerOutOfReachIsTriedUntilItIsThere) {
  Connect();
  cluster_.worker().Set(&FakeScript::break_streams, 5);
  cluster_.worker().Break(absl::UnavailableError("cut"));
  EXPECT_TRUE(ReadWhileTimePasses().ok());
  EXPECT_EQ(session_->statistics().resumes, 1u);
}

TEST_F(ResumeTest, AWorkerGoneForGoodIsLostAfterTheTimeOut) {
  Connect();
  cluster_.worker().Set(&FakeScript::break_streams, INT_MAX);
  cluster_.worker().Break(absl::UnavailableError("cut"));
  const absl::Duration start = clock_.Monotonic();
  const absl::Status status = ReadWhileTimePasses();
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("tried again for 10s"), std::string::npos)
      << status;
  EXPECT_GE(clock_.Monotonic() - start, absl::Seconds(10));
}

TEST_F(ResumeTest, AnotherIncarnationHasNothingToResume) {
  Connect();
  cluster_.worker().Restart(/*other_incarnation=*/true);
  const absl::Status status = ReadByte(*device_, 0, value_);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "WRONG_INCARNATION");
}

TEST_F(ResumeTest, ASessionTheWorkerDroppedIsLost) {
  Connect();
  cluster_.worker().Restart(/*other_incarnation=*/false);
  const absl::Status status = ReadByte(*device_, 0, value_);
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "SESSION_LOST");
}

TEST_F(ResumeTest, AReasonOfTheWorkersIsFinal) {
  Connect();
  cluster_.worker().Break(
      MakeError(absl::StatusCode::kUnavailable, "DRAINING", "it stops"));
  const absl::Status status = ReadByte(*device_, 0, value_);
  EXPECT_EQ(ErrorMetadataValue(status, "cause"), "DRAINING");
  EXPECT_EQ(session_->statistics().resumes, 0u);
}

TEST_F(ResumeTest, AnEndedLeaseEndsTheAttempts) {
  Connect();
  cluster_.worker().Set(&FakeScript::break_streams, INT_MAX);
  cluster_.worker().Break(absl::UnavailableError("cut"));
  absl::Status status;
  std::thread reader([&] { status = ReadByte(*device_, 0, value_); });
  cluster_.coordinator().EndLease("lease-0", "EXPIRED");
  reader.join();
  EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
  EXPECT_NE(status.message().find("EXPIRED"), std::string::npos) << status;
}

TEST_F(ResumeTest, TheFirstConnectionIsTriedAgainUnderAnotherLease) {
  cluster_.worker().Set(&FakeScript::break_streams, 5);
  WhileTimePasses(&clock_, [&] { EXPECT_TRUE(device_->Placement().ok()); });
  EXPECT_EQ(cluster_.coordinator().lease_requests().size(), 6u);
}

TEST_F(ResumeTest, TheFirstConnectionIsGivenUpAfterItsTimeOut) {
  cluster_.worker().Set(&FakeScript::break_streams, INT_MAX);
  WhileTimePasses(&clock_, [&] {
    const absl::Status status = device_->Placement().status();
    EXPECT_EQ(ErrorReason(status), "WORKER_LOST");
    EXPECT_NE(status.message().find("tried again for 30s"), std::string::npos)
        << status;
  });
}

// A thread of the program that is the sender when the connection ends leaves
// its orders to the device's own thread.
TEST(BorrowedTurnTest, BreakUnderABorrowedTurnDoesNotForgetReleasedStorages) {
  FakeCluster cluster;
  StreamHooks& hooks = cluster.HookStreams();
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  std::vector<StoragePtr> many;
  for (uint64_t i = 0; i <= DeadList::kManyStorages; ++i) {
    many.push_back(device->NewStorage(8));
    ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{many.back(), kWrites}})).ok());
  }
  ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  replica::State& state =
      dynamic_cast<DeviceRouter&>(*device).Members()[0]->state();
  // The device's own thread is busy with a callback.
  std::promise<void> busy, go_on;
  ReadWait wait(nullptr, 0);
  {
    MutexLock lock(&state.answers.mu);
    ReadTable& reads = state.answers.table.reads();
    reads.Watch(&wait, [&] {
      busy.set_value();
      go_on.get_future().wait();
    });
    reads.Finish(&wait);
  }
  state.sender.wakeup.Set();
  busy.get_future().wait();
  for (const StoragePtr& storage : many) Drop(storage);
  std::promise<void> broke;
  hooks.BeforeSend([&](ClientStream& stream) {
    stream.Close(absl::UnavailableError("cut"));
    for (Patience patience; state.receiver.connected();) patience.Yield();
    broke.set_value();
  });
  std::thread reader([&] { EXPECT_TRUE(ReadByte(*device, 0, value).ok()); });
  broke.get_future().wait();
  go_on.set_value();
  reader.join();
  for (Patience patience; cluster.worker().live_storages().size() > 1;) {
    patience.Yield();
  }
  EXPECT_EQ(cluster.worker().seen().resumes, 1);
  EXPECT_TRUE(session->Close(absl::Seconds(10)).ok());
}

}  // namespace
}  // namespace djinn
