// Tests devices that lose their worker and go on at its successor.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

class RecoveryTest : public DeviceTest {
 protected:
  explicit RecoveryTest(SessionOptions options = Recovering())
      : DeviceTest(std::move(options)) {}

  // Returns a storage whose bytes went inside their message.
  StoragePtr UploadedEagerly(const std::string& bytes) {
    cluster_.worker().Set(&FakeScript::content_room, 1 << 30);
    // The worker announces its room with an answer.
    EXPECT_TRUE(ReadAll(Uploaded("12345678")).ok());
    StoragePtr storage = Uploaded(bytes);
    EXPECT_TRUE(device_->Synchronize().ok());
    EXPECT_TRUE(
        cluster_.worker().seen().received.back().install().has_content());
    return storage;
  }
};

TEST_F(RecoveryTest, TheSuccessorGetsWhatMattersAndNothingElse) {
  const StoragePtr x = Uploaded("12345678");
  StoragePtr dropped = Uploaded("dropped.");
  const StoragePtr y = Called(1, {x, dropped});
  StoragePtr unused = Called(2, {x});
  Drop(std::move(unused));
  ASSERT_TRUE(device_->Synchronize().ok());
  const StoragePtr z = Uploaded("first...");
  ASSERT_TRUE(device_->Upload(0, z.get(), {"second..", nullptr}).ok());
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_EQ(*ReadAll(z), "second..");
  EXPECT_TRUE(ReadAll(y).ok());
  EXPECT_EQ(session_->statistics().recoveries, 1);
  // Four messages are kept: the uploads of x and of y's other operand, the last
  // upload of z, and the run that computes y.
  EXPECT_EQ(session_->statistics().messages_replayed, 4);
  EXPECT_THAT(cluster_.coordinator().returned_leases(),
              testing::ElementsAre("lease-0"));
  // The session goes on as before.
  const StoragePtr w = Called(3, {y, z});
  EXPECT_TRUE(ReadAll(w).ok());
  Drop(std::move(dropped));
  EXPECT_TRUE(session_->Close(absl::Seconds(5)).ok());
}

TEST_F(RecoveryTest, ZerosKeepTheirSigns) {
  const StoragePtr x = Uploaded("12345678");
  std::vector<StoragePtr> results;
  for (const double zero : {0.0, -0.0, 0.0}) {
    results.push_back(device_->NewStorage(8));
    EXPECT_TRUE(
        Record(*device_, 0,
               MakeCall(1, {{x, kReads}, {results.back(), kCreates}}, {zero}))
            .ok());
    EXPECT_TRUE(ReadAll(results.back()).ok());
  }
  const size_t before = cluster_.worker().seen().runs.size();
  Lose();
  ASSERT_TRUE(ReadAll(results.back()).ok());
  const std::vector<v1::Run> runs = cluster_.worker().seen().runs;
  ASSERT_EQ(runs.size(), before + 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::signbit(runs[before + i].float_holes(0)), i == 1);
  }
}

TEST_F(RecoveryTest, UnfinishedWorkFollows) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.worker().Pause();
  const StoragePtr y = Called(1, {x});
  std::thread reader([&] { EXPECT_TRUE(ReadAll(y).ok()); });
  cluster_.worker().WaitForRead();
  Lose();
  cluster_.worker().Resume();
  reader.join();
  EXPECT_EQ(*ReadAll(x), "12345678");
}

TEST_F(RecoveryTest, QuestionsWithoutAnAnswerAreAskedAgain) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.worker().Pause();
  const auto cost = session_->AskCost(0);
  ASSERT_TRUE(cost.ok());
  std::thread registration(
      [&] { EXPECT_TRUE(device_->RegisterModel(0, 5, "net", {x}).ok()); });
  cluster_.worker().WaitWaiting(2);
  Lose();
  cluster_.worker().Resume();
  EXPECT_TRUE((*cost)->Wait().ok());
  registration.join();
  EXPECT_EQ(cluster_.worker().models().count(5), 1u);
}

TEST_F(RecoveryTest, LargeUploadsAreSentAgainAlthoughTheProgramWroteToThem) {
  std::string bytes = Pattern(3 << 20);
  const std::string before = bytes;
  const StoragePtr x = device_->NewStorage(bytes.size());
  ASSERT_TRUE(device_->Upload(0, x.get(), {bytes, nullptr}).ok());
  std::fill(bytes.begin(), bytes.end(), 'w');
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  EXPECT_EQ(*ReadAll(x), before);
}

TEST_F(RecoveryTest, AWorkerThatRestartsIsAskedForSmallContentsByHash) {
  const std::string bytes = Pattern(100'000);
  const StoragePtr x = UploadedEagerly(bytes);
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  const uint64_t before = session_->statistics().bytes_up;
  Lose();
  EXPECT_EQ(ReadAll(x)->size(), bytes.size());
  EXPECT_EQ(session_->statistics().uploads_already_held, 1);
  EXPECT_LT(session_->statistics().bytes_up - before, bytes.size() / 10);
  // It does not have them any more.
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kSend);
  Lose();
  EXPECT_EQ(*ReadAll(x), bytes);
}

TEST_F(RecoveryTest, AnotherWorkerGetsSmallContentsAtOnce) {
  const std::string bytes = Pattern(100'000);
  const StoragePtr x = UploadedEagerly(bytes);
  cluster_.coordinator().PlaceElsewhere();
  cluster_.worker(0).Restart(/*other_incarnation=*/true);
  EXPECT_EQ(*ReadAll(x), bytes);
  const std::vector<v1::Ordered> received = cluster_.worker(1).seen().received;
  EXPECT_EQ(std::count_if(received.begin(), received.end(),
                          [](const v1::Ordered& message) {
                            return message.install().has_content();
                          }),
            1);
}

TEST_F(RecoveryTest, AnotherValueThanTheProgramHasSeenIsNotShown) {
  const StoragePtr x = Uploaded("12345678");
  // The fake worker's values depend on the numbers of messages, which change
  // when earlier messages are left out.
  for (int i = 0; i < 3; ++i) Drop(Uploaded("dropped."));
  const StoragePtr y = Called(1, {x});
  ASSERT_TRUE(ReadAll(y).ok());
  const StoragePtr z = Called(2, {y});
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_EQ(ErrorReason(ReadAll(y).status()), "REPLAY_DIVERGED");
  EXPECT_EQ(ErrorReason(ReadAll(z).status()), "REPLAY_DIVERGED");
  EXPECT_EQ(ErrorReason(ReadAll(Called(3, {z})).status()), "REPLAY_DIVERGED");
  EXPECT_EQ(session_->statistics().root_errors, 1u);
}

TEST_F(RecoveryTest, AnotherLargeValueThanTheProgramHasSeenIsNotShown) {
  for (int i = 0; i < 3; ++i) Drop(Uploaded("dropped."));
  const StoragePtr y = device_->NewStorage(1 << 20);
  Call call = MakeCall(1, {{Uploaded("12345678"), kReads}, {y, kCreates}});
  ASSERT_TRUE(Record(*device_, 0, std::move(call)).ok());
  ASSERT_TRUE(ReadAll(y).ok());
  Lose();
  EXPECT_EQ(ErrorReason(ReadAll(y).status()), "REPLAY_DIVERGED");
}

TEST_F(RecoveryTest, TheSameLargeValueThatTheProgramHasSeenIsShownAgain) {
  const StoragePtr y = device_->NewStorage(1 << 20);
  Call call = MakeCall(1, {{Uploaded("12345678"), kReads}, {y, kCreates}});
  ASSERT_TRUE(Record(*device_, 0, std::move(call)).ok());
  const absl::StatusOr<std::string> before = ReadAll(y);
  ASSERT_TRUE(before.ok());
  const int64_t received = session_->statistics().bytes_down;
  Lose();
  // The replay moves a hash instead of the value.
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_TRUE(ReadAll(Called(2, {y})).ok());
  EXPECT_LT(session_->statistics().bytes_down - received, 1000);
  EXPECT_EQ(ReadAll(y), before);
}

TEST_F(RecoveryTest, CloseReportsAnotherValueThanTheProgramHasSeen) {
  for (int i = 0; i < 3; ++i) Drop(Uploaded("dropped."));
  const StoragePtr y = Called(1, {Uploaded("12345678")});
  ASSERT_TRUE(ReadAll(y).ok());
  Lose();
  ASSERT_TRUE(ReadAll(Uploaded("another.")).ok());
  EXPECT_EQ(ErrorReason(session_->Close(absl::Seconds(5))), "REPLAY_DIVERGED");
}

TEST_F(RecoveryTest, AWorkerThatComputesOtherBitsIsLeftForAnother) {
  cluster_.worker(0).Set(&FakeScript::numerics, "same");
  cluster_.worker(1).Set(&FakeScript::numerics, "other");
  cluster_.worker(2).Set(&FakeScript::numerics, "same");
  cluster_.coordinator().PlaceElsewhere();
  const StoragePtr y = Called(1, {Uploaded("12345678")});
  ASSERT_TRUE(device_->Synchronize().ok());
  // The other workers keep their incarnation.
  cluster_.worker().Restart(/*other_incarnation=*/true);
  EXPECT_TRUE(ReadAll(y).ok());
  EXPECT_THAT(cluster_.coordinator().returned_leases(),
              testing::ElementsAre("lease-0", "lease-0.away-1 unreachable"));
  EXPECT_TRUE(cluster_.worker(1).seen().received.empty());
  // The coordinator knows which worker is wanted.
  std::vector<std::string> numerics;
  for (const v1::LeaseRequest& request :
       cluster_.coordinator().lease_requests()) {
    numerics.push_back(request.numerics());
  }
  EXPECT_THAT(numerics, testing::ElementsAre("", "same", "same"));
}

TEST_F(RecoveryTest, AWorkerWithoutNumericsTakesOver) {
  cluster_.worker().Set(&FakeScript::numerics, "known");
  const StoragePtr y = Called(1, {Uploaded("12345678")});
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Set(&FakeScript::numerics, "");
  Lose();
  EXPECT_TRUE(ReadAll(y).ok());
}

// Returns the metadata of one result.
v1::RunMetadata MetadataOf(int elements) {
  v1::RunMetadata metadata;
  v1::TensorView* const view = metadata.add_results();
  view->set_data_type(v1::DATA_TYPE_INT64);
  view->add_sizes(elements);
  view->add_strides(1);
  metadata.add_storage_bytes(elements * 8);
  return metadata;
}

TEST_F(RecoveryTest, ResultsOfAnotherSizeThanTheProgramKnowsAreNotShown) {
  const StoragePtr x = Uploaded("12345678");
  const StoragePtr y = device_->NewStorage(8), z = device_->NewStorage(0);
  cluster_.worker().Set(&FakeScript::metadata, MetadataOf(2));
  Call call = MakeCall(1, {{x, kReads}, {y, kCreates}});
  call.AddUnknownResult(z.get());
  ASSERT_TRUE(device_->RecordAndWait(0, &call).ok());
  Lose();
  EXPECT_EQ(*ReadAll(x), "12345678");
  EXPECT_TRUE(ReadAll(Called(2, {y})).ok());
  cluster_.worker().Set(&FakeScript::metadata, MetadataOf(3));
  Lose();
  EXPECT_EQ(*ReadAll(x), "12345678");
  const absl::Status diverged = ReadAll(y).status();
  EXPECT_EQ(ErrorReason(diverged), "REPLAY_DIVERGED") << diverged;
  EXPECT_THAT(std::string(diverged.message()), HasSubstr("another size"));
}

class ImpatientRecoveryTest : public RecoveryTest {
 protected:
  ImpatientRecoveryTest() : RecoveryTest(Impatient()) {}

  static SessionOptions Impatient() {
    SessionOptions options = Recovering();
    options.connect_timeout = absl::Milliseconds(300);
    return options;
  }
};

TEST_F(ImpatientRecoveryTest, WithoutAnyWorkerTheErrorSaysWhatWasTried) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.coordinator().RefuseLeases(
      MakeError(absl::StatusCode::kUnavailable, "NO_WORKER", "no worker left"));
  Lose();
  const absl::Status lost = ReadAll(x).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("attempts"));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("no worker left"));
  // The worker is there again, and the values of before stay lost.
  cluster_.coordinator().RefuseLeases(absl::OkStatus());
  const auto again = *session_->Device(0);
  const StoragePtr y = again->NewStorage(8);
  ASSERT_TRUE(again->Upload(0, y.get(), {"87654321", nullptr}).ok());
  EXPECT_EQ(*ReadAll(*again, y), "87654321");
  EXPECT_EQ(ReadAll(x).status(), lost);
  // It recovers like any device.
  Lose();
  EXPECT_EQ(*ReadAll(*again, y), "87654321");
  EXPECT_EQ(session_->statistics().recoveries, 1);
}

TEST_F(ImpatientRecoveryTest, WithOtherNumericsOnlyTheErrorNamesBoth) {
  cluster_.worker().Set(&FakeScript::numerics, "cpu-1");
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  cluster_.worker().Set(&FakeScript::numerics, "cpu-2");
  Lose();
  const absl::Status lost = ReadAll(x).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("computes other bits"));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("cpu-1"));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("cpu-2"));
}

// Nothing moves the clock, so that a pause between two dials would not end.
class TimelessRecoveryTest : public RecoveryTest {
 protected:
  static SessionOptions Timeless() {
    static auto* const clock = new FakeClock;
    SessionOptions options = Recovering();
    options.clock = clock;
    return options;
  }
  TimelessRecoveryTest() : RecoveryTest(Timeless()) {}
};

TEST_F(TimelessRecoveryTest, ARefusedDialIsRepeatedWithoutAPause) {
  const StoragePtr x = Uploaded("12345678");
  ASSERT_TRUE(ReadAll(x).ok());
  for (const int refused : {1, 2}) {
    cluster_.RefuseDials(refused);
    if (refused == 2) {
      Lose();
    } else {
      cluster_.worker().Break(absl::UnavailableError("the stream broke"));
    }
    std::string value(8, '?');
    const auto read = *device_->StartRead(0, x.get(), WholeView(*x.get()),
                                          value.data(), value.size());
    for (Patience patience; !read->Ready(); patience.Yield()) {
    }
    EXPECT_TRUE(read->Wait(absl::ZeroDuration()).ok());
    EXPECT_EQ(value, "12345678");
    EXPECT_EQ(cluster_.dials_to_refuse(), 0);
  }
  EXPECT_EQ(session_->statistics().resumes, 1);
  EXPECT_EQ(session_->statistics().recoveries, 1);
  EXPECT_THAT(cluster_.coordinator().returned_leases(),
              testing::ElementsAre("lease-0 unreachable"));
}

class ForgetfulRecoveryTest : public RecoveryTest {
 protected:
  ForgetfulRecoveryTest() : RecoveryTest(Forgetful()) {}

  static SessionOptions Forgetful() {
    SessionOptions options = Recovering();
    options.replay_memory = 20'000;
    return options;
  }
  explicit ForgetfulRecoveryTest(SessionOptions options)
      : RecoveryTest(std::move(options)) {}
};

TEST_F(ForgetfulRecoveryTest, AModelLargerThanTheMemorySurvives) {
  std::vector<std::string> bytes;
  std::vector<StoragePtr> weights;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(Pattern(300'000 + i));
    weights.push_back(Uploaded(bytes.back()));
  }
  const StoragePtr y = Called(1, {weights[0], weights[7]});
  ASSERT_TRUE(device_->Synchronize().ok());
  for (int loss = 0; loss < 2; ++loss) {
    Lose();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(*ReadAll(weights[i]), bytes[i]);
    EXPECT_TRUE(ReadAll(y).ok());
  }
  EXPECT_EQ(session_->statistics().uploads_not_kept, 0);
  EXPECT_GE(session_->statistics().bytes_spilled, 8 * 300'000);
}

TEST_F(ForgetfulRecoveryTest, EqualUploadsTakeTheirRoomOnce) {
  const std::string bytes = Pattern(3 << 20);
  const StoragePtr x = Uploaded(bytes);
  const StoragePtr y = Uploaded(bytes);
  ASSERT_TRUE(device_->Synchronize().ok());
  Lose();
  EXPECT_EQ(*ReadAll(x), bytes);
  EXPECT_EQ(*ReadAll(y), bytes);
  EXPECT_EQ(session_->statistics().bytes_spilled, bytes.size());
}

TEST_F(ForgetfulRecoveryTest, AnEagerUploadThatWasUnfinishedIsAskedForByHash) {
  const std::string bytes = Pattern(100'000);
  const StoragePtr before = UploadedEagerly(bytes);
  EXPECT_GE(session_->statistics().bytes_spilled, bytes.size());
  // There is room for one at a time.
  cluster_.worker().Set(&FakeScript::content_room, 150'000);
  ASSERT_TRUE(ReadAll(Uploaded("87654321")).ok());
  cluster_.worker().Pause();
  const StoragePtr x = Uploaded(Pattern(100'001));
  std::thread reader([&] { EXPECT_EQ(*ReadAll(x), Pattern(100'001)); });
  cluster_.worker().WaitForRead();
  Lose();
  cluster_.worker().Resume();
  reader.join();
  EXPECT_EQ(*ReadAll(before), bytes);
  // The room is free again.
  const StoragePtr y = Uploaded(Pattern(100'002));
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_TRUE(cluster_.worker().seen().received.back().install().has_content());
}

class DisklessRecoveryTest : public ForgetfulRecoveryTest {
 public:
  static SessionOptions Diskless() {
    SessionOptions options = Forgetful();
    options.replay_disk = 0;
    options.replay_time = absl::Hours(1);
    return options;
  }

 protected:
  DisklessRecoveryTest() : ForgetfulRecoveryTest(Diskless()) {}
};

TEST_F(DisklessRecoveryTest, UploadsWithoutRoomNeedAWorkerThatHasTheirBytes) {
  const StoragePtr x = Uploaded(Pattern(1 << 20));
  ASSERT_TRUE(device_->Synchronize().ok());
  EXPECT_EQ(session_->statistics().uploads_not_kept, 1);
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kHeld);
  Lose();
  EXPECT_TRUE(ReadAll(x).ok());
  cluster_.worker().Set(&FakeScript::transfers, FakeScript::Transfers::kSend);
  Lose();
  const absl::Status lost = ReadAll(x).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("kept neither here"));
}

class CrampedRecoveryTest : public ForgetfulRecoveryTest {
 protected:
  CrampedRecoveryTest() : ForgetfulRecoveryTest(Cramped()) {}

  static SessionOptions Cramped() {
    SessionOptions options = DisklessRecoveryTest::Diskless();
    options.checkpoint_memory = 0;
    return options;
  }
};

TEST_F(CrampedRecoveryTest, AChainBeyondTheBudgetEndsWithTheWorker) {
  const StoragePtr x = Uploaded("12345678");
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{x, kWrites}})).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  Lose();
  const absl::Status lost = ReadAll(x).status();
  EXPECT_EQ(ErrorReason(lost), "WORKER_LOST") << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("replay_memory"));
}

}  // namespace
}  // namespace djinn
