// Tests devices that read values back, and go on from these when they lose
// their worker.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/model/links.h"
#include "client_lib/session/testing/calls.h"
#include "client_lib/session/testing/fake_cluster.h"
#include "client_lib/session/testing/program.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class CheckpointTest : public DeviceTest {
 protected:
  explicit CheckpointTest(SessionOptions options = {}, bool checkpoints = true)
      : DeviceTest(Complete(std::move(options), checkpoints), FakeTime()) {}
  static SessionOptions Complete(SessionOptions options, bool checkpoints) {
    options.recovers = true;
    options.checkpoints = checkpoints;
    return options;
  }

  // Updates the parameters from each other and from the data.
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      ASSERT_TRUE(
          Record(*device_, 0, MakeCall(1, {{small_, kWrites}, {data_, kReads}}))
              .ok());
      ASSERT_TRUE(Record(*device_, 0,
                         MakeCall(2, {{large_, kWrites}, {small_, kReads}}))
                      .ok());
      ASSERT_TRUE(Record(*device_, 0,
                         MakeCall(3, {{small_, kWrites}, {large_, kReads}}))
                      .ok());
      if (i % 8 == 7) {
        ASSERT_TRUE(device_->Synchronize().ok());
      }
    }
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  // Waits until the device has made so many checkpoints.
  void AwaitCheckpoints(uint64_t count) {
    while (session_->statistics().checkpoints < count) {
      std::this_thread::yield();
    }
  }
  Statistics statistics() const { return session_->statistics(); }

  const StoragePtr data_ = Uploaded("12345678");
  const StoragePtr small_ = Uploaded("parameter");
  const StoragePtr large_ = Uploaded(Pattern(3 << 20));
};

TEST_F(CheckpointTest, ATrainingLoopGoesOnFromTheLastCheckpoint) {
  for (uint64_t i = 0; i < 10; ++i) {
    Train(100);
    clock_.Advance(absl::Seconds(11));
    Train(1);
    AwaitCheckpoints(i + 1);
  }
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  // The fake worker's values depend on the numbers of messages, so that a
  // message that is sent again would have another result.
  const std::string small = *ReadAll(small_);
  const std::string large = *ReadAll(large_);
  Lose();
  EXPECT_EQ(*ReadAll(data_), "12345678");
  EXPECT_EQ(*ReadAll(small_), small);
  EXPECT_EQ(*ReadAll(large_), large);
  EXPECT_EQ(statistics().recoveries, 1);
  // The upload of the data, and two anchors.
  EXPECT_EQ(statistics().messages_replayed, 3);
  EXPECT_GE(statistics().checkpoint_bytes, 10 * (3 << 20));
  // Anchors serve a second loss, too.
  Train(1);
  Lose();
  EXPECT_EQ(ReadAll(small_).status(), absl::OkStatus());
  EXPECT_LE(statistics().messages_replayed, 3 + 3 + 3);
}

TEST_F(CheckpointTest, StepsAfterTheCheckpointAreComputedAgain) {
  Train(100);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  Train(2);
  Lose();
  EXPECT_TRUE(ReadAll(large_).ok());
  // The data, two anchors, and six runs, some of which travel together.
  EXPECT_LE(statistics().messages_replayed, 3 + 6);
  EXPECT_GT(statistics().messages_replayed, 3);
}

TEST_F(CheckpointTest, ThereIsNoneBeforeItsTimeNorWithoutAnythingNew) {
  Train(1);
  clock_.Advance(absl::Seconds(9));
  Train(1);
  EXPECT_EQ(statistics().checkpoints, 0);
  clock_.Advance(absl::Seconds(2));
  // The device's own thread notices.
  AwaitCheckpoints(1);
  clock_.Advance(absl::Hours(1));
  ASSERT_TRUE(ReadAll(small_).ok());
  EXPECT_EQ(statistics().checkpoints, 1);
  Train(1);
  AwaitCheckpoints(2);
}

TEST_F(CheckpointTest, TheTimeThatACheckpointTakesStretchesTheInterval) {
  Train(1);
  cluster_.worker().Pause();
  absl::Status made;
  std::thread maker([&] { made = session_->Checkpoint(absl::Hours(1)); });
  cluster_.worker().WaitForRead();
  clock_.Advance(absl::Seconds(10));  // 2 % of 500 s
  cluster_.worker().Resume();
  maker.join();
  ASSERT_TRUE(made.ok()) << made;
  EXPECT_EQ(statistics().checkpoints, 1);
  clock_.Advance(absl::Seconds(490));
  Train(1);
  EXPECT_EQ(statistics().checkpoints, 1);
  clock_.Advance(absl::Seconds(11));
  AwaitCheckpoints(2);
}

TEST_F(CheckpointTest, ALossInTheMidstOfACheckpointForgetsIt) {
  Train(20);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  Train(2);
  cluster_.worker().Pause();
  absl::Status made;
  std::thread maker([&] { made = session_->Checkpoint(kPatience); });
  cluster_.worker().WaitForRead();
  Lose();
  cluster_.worker().Resume();
  // The next worker makes it.
  maker.join();
  EXPECT_TRUE(made.ok()) << made;
  EXPECT_EQ(statistics().recoveries, 1);
  EXPECT_EQ(statistics().checkpoints, 2);
  const std::string large = *ReadAll(large_);
  Lose();
  EXPECT_EQ(*ReadAll(large_), large);
}

TEST_F(CheckpointTest, AValueThatFailedHasNoAnchorAndTheOthersDo) {
  Train(1);
  cluster_.worker().Set(&FakeScript::fail_next_run, 99);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(1, {{small_, kWrites}, {data_, kReads}}))
          .ok());
  EXPECT_FALSE(ReadAll(small_).ok());
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  EXPECT_EQ(statistics().checkpoints, 1);
  EXPECT_EQ(statistics().checkpoint_bytes, 3 << 20);
}

TEST_F(CheckpointTest, AReadValueOutlivesTheRunThatIsGivenUp) {
  v1::RunMetadata metadata;
  v1::TensorView* const view = metadata.add_results();
  view->set_data_type(v1::DATA_TYPE_INT64);
  view->add_sizes(1);
  view->add_strides(1);
  metadata.add_storage_bytes(8);
  cluster_.worker().Set(&FakeScript::metadata, metadata);
  // The device does not know the size of `unknown`. So it keeps the run beside
  // the value of `known`.
  const StoragePtr known = device_->NewStorage(8);
  const StoragePtr unknown = device_->NewStorage(0);
  Call call = MakeCall(7, {{data_, kReads}, {known, kCreates}});
  call.AddUnknownResult(unknown.get());
  ASSERT_TRUE(device_->RecordAndWait(0, &call).ok());
  const std::string value = *ReadAll(known);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  ASSERT_EQ(statistics().checkpoints, 1);
  cluster_.worker().Set(&FakeScript::hold_runs, true);
  Lose();
  std::thread reader([&] { EXPECT_EQ(*ReadAll(known), value); });
  for (int death = 0; death < 2; ++death) {
    for (Patience patience; !cluster_.worker().HoldsRun(); patience.Yield()) {
    }
    Lose();
  }
  // The worker still executes no run, so that this one is left out.
  reader.join();
  EXPECT_EQ(cluster_.worker().seen().runs.size(), 1);
}

TEST_F(CheckpointTest, AGeneratorGoesOnWithItsState) {
  const StoragePtr generator = device_->NewStorage(16);
  ASSERT_TRUE(device_->Seed(0, generator.get(), 7).ok());
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(1, {{small_, kWrites}, {generator, kDraws}}))
          .ok());
  // This worker does not say how large a generator is, so that its draws stay.
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  Lose();
  EXPECT_TRUE(ReadAll(small_).ok());
  // The seed, the draw and what it needs.
  EXPECT_GE(statistics().messages_replayed, 3);
}

class SmallCheckpointTest : public CheckpointTest {
 protected:
  SmallCheckpointTest() : CheckpointTest(Small()) {}

  static SessionOptions Small() {
    SessionOptions options;
    options.checkpoint_memory = 1 << 20;
    options.replay_disk = 0;
    return options;
  }
};

TEST_F(SmallCheckpointTest, WithoutRoomThereIsNoneAndEverythingIsComputed) {
  Train(3);
  const absl::Status made = session_->Checkpoint(kPatience);
  EXPECT_EQ(ErrorReason(made), "CHECKPOINT_MEMORY") << made;
  EXPECT_THAT(std::string(made.message()), HasSubstr("checkpoint_memory"));
  EXPECT_EQ(statistics().checkpoints, 0);
  EXPECT_EQ(statistics().checkpoint_bytes, 0);
  Lose();
  EXPECT_TRUE(ReadAll(large_).ok());
  EXPECT_GT(statistics().messages_replayed, 3);
}

class SlicedCheckpointTest : public CheckpointTest {
 protected:
  SlicedCheckpointTest() : CheckpointTest(Sliced()) {}

  static SessionOptions Sliced() {
    SessionOptions options;
    // A sixteenth is less than the large parameter, which travels alone.
    options.checkpoint_memory = 16 << 20;
    return options;
  }
};

TEST_F(SlicedCheckpointTest, AllValuesAreThoseOfOneMoment) {
  Train(100);
  cluster_.worker().Pause();
  absl::Status made;
  std::thread maker([&] { made = session_->Checkpoint(kPatience); });
  // The first parameter is asked for, and the second one is not.
  cluster_.worker().WaitForRead();
  // If this step came between them, neither anchor would cut the other's chain.
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(2, {{large_, kWrites}, {small_, kReads}}))
          .ok());
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(3, {{small_, kWrites}, {large_, kReads}}))
          .ok());
  std::thread reader([&] { EXPECT_TRUE(ReadAll(small_).ok()); });
  cluster_.worker().Resume();
  maker.join();
  reader.join();
  ASSERT_TRUE(made.ok()) << made;
  Lose();
  EXPECT_TRUE(ReadAll(data_).ok());
  // The data, two anchors, and the run of the two calls.
  EXPECT_LE(statistics().messages_replayed, 4);
}

class ForgetfulCheckpointTest : public CheckpointTest {
 protected:
  ForgetfulCheckpointTest() : CheckpointTest(Forgetful()) {}

  static SessionOptions Forgetful() {
    SessionOptions options;
    // Without checkpoints, it would not suffice for 1,000 steps, nor does it
    // have room for the large upload.
    options.replay_memory = 30'000;
    return options;
  }
};

TEST_F(ForgetfulCheckpointTest, AFullLineageIsCutBeforeItForgets) {
  Train(1000);
  EXPECT_GT(statistics().checkpoints, 1);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  Lose();
  EXPECT_TRUE(ReadAll(small_).ok());
  EXPECT_TRUE(ReadAll(large_).ok());
}

// A device without checkpoints leaves a worker that is not lost, as after a
// local fallback.
class ReturnTest : public CheckpointTest {
 protected:
  explicit ReturnTest(SessionOptions options = {})
      : CheckpointTest(std::move(options), /*checkpoints=*/false) {}

  void Return() {
    // It stands for the worker of the cluster, too.
    cluster_.worker().Set(&FakeScript::begins_anew, true);
    cluster_.coordinator().EndLease("lease-0", kFallbackEnded);
    while (statistics().recoveries == 0) std::this_thread::yield();
  }
};

TEST_F(ReturnTest, ADeviceThatReturnsTakesItsValuesAlong) {
  Train(100);
  const std::string small = *ReadAll(small_);
  const std::string large = *ReadAll(large_);
  Return();
  EXPECT_EQ(*ReadAll(data_), "12345678");
  EXPECT_EQ(*ReadAll(small_), small);
  EXPECT_EQ(*ReadAll(large_), large);
  EXPECT_EQ(statistics().checkpoints, 1u);
  // The upload of the data, and two anchors.
  EXPECT_EQ(statistics().messages_replayed, 3u);
}

// It goes on there as after a migration.
TEST_F(ReturnTest, ADeviceReturnsToAWorkerWithOtherNumerics) {
  cluster_.worker().Set(&FakeScript::numerics, "local");
  Train(10);
  const std::string small = *ReadAll(small_);
  cluster_.worker().Set(&FakeScript::numerics, "cluster");
  Return();
  EXPECT_EQ(*ReadAll(small_), small);
}

TEST_F(ReturnTest, ALossMeanwhileIsRecoveredByReplay) {
  Train(10);
  cluster_.worker().Pause();
  cluster_.coordinator().EndLease("lease-0", kFallbackEnded);
  cluster_.worker().WaitForRead();
  Lose();
  cluster_.worker().Resume();
  EXPECT_TRUE(ReadAll(large_).ok());
  EXPECT_EQ(statistics().recoveries, 1u);
  EXPECT_EQ(statistics().checkpoints, 0u);
  // It has left already, and makes no checkpoint at the next worker.
  Train(1);
  EXPECT_EQ(statistics().checkpoints, 0u);
}

class ForgetfulReturnTest : public ReturnTest {
 protected:
  ForgetfulReturnTest() : ReturnTest(Forgetful()) {}

  static SessionOptions Forgetful() {
    SessionOptions options;
    options.replay_memory = 30'000;  // as in ForgetfulCheckpointTest
    return options;
  }
};

// It would have to stay if it had to compute its values again.
TEST_F(ForgetfulReturnTest, ADeviceWhoseChainsWereDroppedReturns) {
  Train(1000);
  const std::string small = *ReadAll(small_);
  Return();
  EXPECT_EQ(*ReadAll(small_), small);
  EXPECT_TRUE(ReadAll(large_).ok());
  EXPECT_LE(statistics().messages_replayed, 4u);
}

class DisklessReturnTest : public ReturnTest {
 public:
  static SessionOptions Diskless() {
    SessionOptions options;
    options.replay_memory = 30'000;
    options.replay_disk = 0;
    return options;
  }

 protected:
  DisklessReturnTest() : ReturnTest(Diskless()) {}
};

// The worker of the cluster may not have them.
TEST_F(DisklessReturnTest, ADeviceWhoseUploadsWereDroppedReadsThemBack) {
  ASSERT_TRUE(device_->Synchronize().ok());
  ASSERT_EQ(statistics().uploads_not_kept, 1u);
  Return();
  EXPECT_EQ(*ReadAll(data_), "12345678");
  EXPECT_EQ(*ReadAll(large_), Pattern(3 << 20));
}

class CrampedReturnTest : public ReturnTest {
 protected:
  CrampedReturnTest() : ReturnTest(Cramped()) {}

  static SessionOptions Cramped() {
    SessionOptions options = DisklessReturnTest::Diskless();
    options.checkpoint_memory = 1 << 20;
    return options;
  }
};

TEST_F(CrampedReturnTest, ADeviceWhoseUploadsAreNotKeptStays) {
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.coordinator().EndLease("lease-0", kFallbackEnded);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*ReadAll(data_), "12345678");
  EXPECT_TRUE(ReadAll(large_).ok());
  EXPECT_EQ(statistics().recoveries, 0u);
}

// Long training without `checkpoint`.
TEST_F(ForgetfulReturnTest, AFullLineageIsCutBeforeItForgets) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(
        Record(*device_, 0, MakeCall(1, {{small_, kWrites}, {data_, kReads}}))
            .ok());
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  EXPECT_GT(statistics().checkpoints, 1u);
  Lose();
  EXPECT_TRUE(ReadAll(small_).ok());
  EXPECT_EQ(*ReadAll(large_), Pattern(3 << 20));
  EXPECT_EQ(statistics().recoveries, 1u);
  EXPECT_LT(statistics().messages_replayed, 100u);
}

TEST_F(ReturnTest, TheProgramMayAskForACheckpoint) {
  Train(100);
  EXPECT_EQ(statistics().checkpoints, 0u);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  EXPECT_EQ(statistics().checkpoints, 1u);
  // No further one comes by itself.
  clock_.Advance(absl::Hours(1));
  Train(1);
  EXPECT_EQ(statistics().checkpoints, 1u);
}

// Batches that are used and dropped fill the file, and a checkpoint empties it.
TEST(SpillingTrainingTest, AFullFileIsCutBeforeUploadsAreDropped) {
  FakeCluster cluster;
  SessionOptions options;
  options.recovers = true;
  options.replay_memory = 30'000;
  options.replay_disk = 2'000'000;
  const auto [session, device] = cluster.OpenDevice(options);
  const StoragePtr parameter = device->NewStorage(8);
  ASSERT_TRUE(device->Upload(0, parameter.get(), {"12345678", nullptr}).ok());
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = Pattern(100'000 + i);
    StoragePtr batch = device->NewStorage(bytes.size());
    ASSERT_TRUE(device->Upload(0, batch.get(), {bytes, nullptr}).ok());
    ASSERT_TRUE(
        Record(*device, 0, MakeCall(1, {{parameter, kWrites}, {batch, kReads}}))
            .ok());
    Drop(std::move(batch));
    ASSERT_TRUE(device->Synchronize().ok());
  }
  EXPECT_GE(session->statistics().bytes_spilled, 40 * 100'000u);
  EXPECT_EQ(session->statistics().uploads_not_kept, 0u);
  EXPECT_GE(session->statistics().checkpoints, 2u);
  cluster.coordinator().NoteRestart();
  cluster.worker().Restart(/*other_incarnation=*/true);
  EXPECT_TRUE(ReadByte(*device, 0, parameter).ok());
  EXPECT_EQ(session->statistics().recoveries, 1u);
}

class SpillingCheckpointTest : public CheckpointTest {
 protected:
  SpillingCheckpointTest() : CheckpointTest(Spilling()) {}

  static SessionOptions Spilling() {
    SessionOptions options;
    options.checkpoint_memory = 1 << 20;
    return options;
  }
};

TEST_F(SpillingCheckpointTest, ACheckpointBeyondTheMemoryGoesToTheFile) {
  Train(3);
  ASSERT_TRUE(session_->Checkpoint(kPatience).ok());
  const std::string small = *ReadAll(small_);
  const std::string large = *ReadAll(large_);
  EXPECT_EQ(statistics().bytes_spilled, 3 << 20);
  Lose();
  EXPECT_EQ(*ReadAll(small_), small);
  EXPECT_EQ(*ReadAll(large_), large);
  EXPECT_EQ(statistics().messages_replayed, 3);
}

TEST(CheckpointsOffTest, TheErrorNamesTheOption) {
  FakeCluster cluster;
  const auto session = cluster.Open();
  const absl::Status made = session->Checkpoint(kPatience);
  EXPECT_EQ(ErrorReason(made), "CHECKPOINTS_OFF");
  EXPECT_THAT(std::string(made.message()), HasSubstr("recovery"));
}

}  // namespace
}  // namespace djinn
