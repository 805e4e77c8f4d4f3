// Devices that need more room than one worker has.
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/operator_table.h"
#include "client_lib/session/recipe.h"
#include "client_lib/session/testing/program.h"
#include "common/error.h"
#include "common/status_macros.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

// Of the storages here; two fit into a worker. Larger than what goes inline.
constexpr uint64_t kSize = 100'000;
// Ids of errors are told in hex.
constexpr uint64_t kErrorId = 0x63;
constexpr char kErrorText[] = "63";

v1::SessionLimits SmallLimits() {
  v1::SessionLimits limits = FakeWorker::DefaultLimits();
  limits.set_memory_bytes(kSize * 5 / 2);
  return limits;
}

class SpanningDeviceTest : public testing::Test {
 protected:
  explicit SpanningDeviceTest(SessionOptions options = {})
      : session_(cluster_.Open(std::move(options))) {
    device_ = *session_->Device(0);
  }
  ~SpanningDeviceTest() override {
    session_ = nullptr;
    for (int worker = 0; worker < 3; ++worker) {
      ExpectNoViolations(cluster_.worker(worker));
    }
  }

  absl::Status Upload(const StoragePtr& storage) {
    const auto bytes =
        std::make_shared<std::string>(Pattern(storage->size_bytes()));
    return device_->Upload(0, storage.get(), {*bytes, bytes});
  }
  StoragePtr Uploaded() {
    StoragePtr storage = device_->NewStorage(kSize);
    EXPECT_EQ(Upload(storage), absl::OkStatus());
    return storage;
  }
  // Three, of which the last is on the second worker.
  std::vector<StoragePtr> Span() {
    cluster_.coordinator().LetSpan(2);
    std::vector<StoragePtr> storages;
    for (int i = 0; i < 3; ++i) storages.push_back(Uploaded());
    return storages;
  }
  // What the worker was told, after everything was carried out.
  int Count(int worker, v1::Ordered::ActionCase action) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker(worker).received()) {
      count += message.action_case() == action;
    }
    return count;
  }

  FakeCluster cluster_{SmallLimits()};
  std::unique_ptr<Session> session_;
  std::shared_ptr<VirtualDevice> device_;
};

struct WithClock {
  FakeClock clock_;
};

// What is tried again after a while.
class PatienceTest : private WithClock, public SpanningDeviceTest {
 protected:
  PatienceTest() : SpanningDeviceTest(OptionsWith(&clock_)) {}
  using WithClock::clock_;
};

// Two layers of a network, on a device that is to have three workers.
class StagesTest : public SpanningDeviceTest {
 protected:
  StagesTest() : SpanningDeviceTest(OnThreeWorkers()) {
    cluster_.coordinator().LetSpan(3);
    first_ = Uploaded();
    second_ = Uploaded();
    input_ = device_->NewStorage(8);
    EXPECT_EQ(Upload(input_), absl::OkStatus());
  }

  static SessionOptions OnThreeWorkers() {
    SessionOptions options;
    options.device_workers[0] = 3;
    return options;
  }

  // A run of both, whose result is read.
  absl::Status Step() {
    StoragePtr between = device_->NewStorage(8);
    StoragePtr result = device_->NewStorage(8);
    DJINN_RETURN_IF_ERROR(Record(
        *device_, 0,
        MakeCall(1, {{first_, kReads}, {input_, kReads}, {between, kBirth}})));
    DJINN_RETURN_IF_ERROR(Record(
        *device_, 0,
        MakeCall(2, {{second_, kReads}, {between, kReads}, {result, kBirth}})));
    const absl::Status status = ReadByte(*device_, 0, result);
    Drop(std::move(between));
    Drop(std::move(result));
    return status;
  }

  // By slot: the first layer's weight, its input, its result, the second's
  // weight, the result.
  void Answer(const FakeCoordinator::StagesAsked& asked,
              std::vector<uint32_t> member_of_slot) {
    v1::StageAnswer answer;
    answer.set_virtual_device(asked.request.virtual_device());
    answer.set_number(asked.request.number());
    answer.mutable_member_of_slot()->Add(member_of_slot.begin(),
                                         member_of_slot.end());
    cluster_.coordinator().AnswerStages(answer);
  }

  StoragePtr first_, second_, input_;
};

TEST_F(StagesTest, WhatIsRepeatedGoesWhereThePlanHasItsWeights) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(device_->Placement()->worker_id, "w0+w1+w2");
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  EXPECT_EQ(asked.request.virtual_device(), 0u);
  ASSERT_EQ(asked.structure.nodes_size(), 2);
  ASSERT_EQ(asked.structure.slots_size(), 5);
  Answer(asked, {1, 0, 0, 3, 0});
  ASSERT_EQ(Step(), absl::OkStatus());
  // The second weight and the first layer's result crossed.
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 2);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 22);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 21);
  // The weight has gone from where it was.
  EXPECT_EQ(cluster_.worker(0).contents(second_->id()).size(), 0u);
  // A stage is not cut again.
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
}

TEST_F(StagesTest, ItStaysTogetherUntilThereIsAPlanAndAsksAgain) {
  for (int i = 0; i < 15; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 15);
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 1u);
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 16);
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 2u);
}

TEST_F(StagesTest, AnAnswerThatMakesNoSenseChangesNothing) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  auto asked = cluster_.coordinator().WaitStagesAsked();
  const uint64_t number = asked.request.number();
  asked.request.set_number(number + 1);
  Answer(asked, {2, 2, 2, 2, 2});
  asked.request.set_number(number);
  Answer(asked, {2});
  // The question was answered.
  Answer(asked, {2, 2, 2, 2, 2});
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 3);
  // A member that is not there.
  for (int i = 0; i < 13; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 16);
  Answer(cluster_.coordinator().WaitStagesAsked(), {4, 0, 0, 4, 0});
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 17);
}

TEST_F(StagesTest, TheFirstPlanForAWeightCounts) {
  for (int i = 0; i < 16; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 16);
  const auto first = cluster_.coordinator().WaitStagesAsked();
  const auto second = cluster_.coordinator().WaitStagesAsked();
  Answer(first, {1, 0, 0, 2, 0});
  Answer(second, {3, 0, 0, 3, 0});
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 0);
}

TEST_F(StagesTest, AWeightThatDoesNotArriveStaysWhereItIs) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  cluster_.worker(1).FailNextPull(kErrorId);
  Answer(cluster_.coordinator().WaitStagesAsked(), {1, 0, 0, 2, 0});
  // Nothing is lost, and the program does not hear of it: the plan is dropped.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
  // What was to move cut one of the steps in two.
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 6);
}

TEST_F(StagesTest, AWeightThatIsPoisonedMovesWithItsError) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  cluster_.worker(0).FailNextRun(kErrorId);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(3, {{second_, kWrites}})).ok());
  // As a worker fetches what is poisoned.
  cluster_.worker(1).FailNextPull(kErrorId);
  Answer(asked, {1, 0, 0, 2, 0});
  const StoragePtr result = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(2, {{second_, kReads}, {result, kBirth}}))
          .ok());
  // Nobody has said it yet.
  EXPECT_EQ(ErrorMetadataValue(device_->Synchronize(), "error_id"), kErrorText);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  EXPECT_EQ(cluster_.worker(0).contents(second_->id()).size(), 0u);
}

TEST_F(StagesTest, WhatHasNoBytesIsThereAlthoughAPlanIsDropped) {
  const StoragePtr nothing = device_->NewStorage(0),
                   result = device_->NewStorage(8);
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(3, {{nothing, kBirth}})).ok());
  cluster_.worker(1).FailNextPull(kErrorId);
  Answer(cluster_.coordinator().WaitStagesAsked(), {1, 0, 0, 2, 0});
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCall(
                 4, {{second_, kReads}, {nothing, kWrites}, {result, kBirth}}))
          .ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
}

TEST_F(SpanningDeviceTest, EveryErrorIsSaid) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.worker(0).FailNextRun(kErrorId);
  cluster_.worker(1).FailNextRun(kErrorId + 1);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[2], kWrites}})).ok());
  const auto said = [&] {
    return ErrorMetadataValue(device_->Synchronize(), "error_id");
  };
  const std::vector<std::string> errors = {said(), said()};
  EXPECT_THAT(errors, testing::UnorderedElementsAre("63", "64"));
  EXPECT_EQ(said(), "");
}

TEST_F(SpanningDeviceTest, AnOperandThatDoesNotArriveIsStillThere) {
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
  cluster_.worker(0).FailNextPull(kErrorId);
  ASSERT_TRUE(call(kBirth).ok());
  EXPECT_EQ(ErrorMetadataValue(ReadByte(*device_, 0, result), "error_id"),
            kErrorText);
  EXPECT_EQ(ReadByte(*device_, 0, input), absl::OkStatus());
  ASSERT_TRUE(call(kOverwrites).ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 2);
}

TEST_F(SpanningDeviceTest, WhatCannotMoveAwayIsStillThere) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr result = device_->NewStorage(kSize);
  cluster_.coordinator().LetSpan(3);
  cluster_.worker(2).FailNextPull(kErrorId);
  const auto call = [&](uint8_t access) {
    return Record(*device_, 0,
                  MakeCall(1, {{storages[0], kReads}, {result, access}}));
  };
  // What was to come of it is poisoned, as after any failure.
  ASSERT_TRUE(call(kBirth).ok());
  EXPECT_EQ(ErrorMetadataValue(ReadByte(*device_, 0, result), "error_id"),
            kErrorText);
  EXPECT_EQ(ReadByte(*device_, 0, storages[0]), absl::OkStatus());
  ASSERT_TRUE(call(kOverwrites).ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
}

TEST_F(SpanningDeviceTest, WhatDidNotMoveIsKnownAfterACallThatIsNotTaken) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr result = device_->NewStorage(kSize);
  cluster_.coordinator().LetSpan(3);
  cluster_.worker(2).FailNextPull(kErrorId);
  Call call = MakeCall(1, {{storages[0], kReads}, {result, kBirth}});
  EXPECT_EQ(ErrorReason(device_->RecordAndWait(0, &call).status()),
            "UNKNOWN_RESULT");
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(1, {{storages[0], kReads}, {result, kBirth}}))
                  .ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(cluster_.worker(2).runs().size(), 1u);
}

TEST_F(SpanningDeviceTest, WhatDidNotArriveOnOneWorkerIsKnownAfterAnother) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.coordinator().LetSpan(3);
  const StoragePtr third = Uploaded(), fourth = Uploaded();  // the last there
  const StoragePtr input = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  const auto use = [&](const StoragePtr& place) {
    const StoragePtr result = device_->NewStorage(8);
    EXPECT_EQ(
        Record(
            *device_, 0,
            MakeCall(1, {{place, kReads}, {input, kReads}, {result, kBirth}})),
        absl::OkStatus());
    return ReadByte(*device_, 0, result);
  };
  cluster_.worker(0).FailNextPull(kErrorId);
  EXPECT_FALSE(use(storages[0]).ok());
  EXPECT_EQ(use(storages[2]), absl::OkStatus());
  EXPECT_EQ(use(fourth), absl::OkStatus());
  EXPECT_EQ(use(storages[0]), absl::OkStatus());
}

// What a few cheap calls make from nothing.
class RecipesTest : public SpanningDeviceTest {
 protected:
  RecipesTest() : storages_(Span()) {}

  static uint32_t Op(const char* name) {
    return OperatorTable::Global().Add({name, "", 1});
  }
  // Uses the value on a worker.
  absl::Status Use(int index, const StoragePtr& value) {
    StoragePtr result = device_->NewStorage(8);
    DJINN_RETURN_IF_ERROR(Record(*device_, 0,
                                 MakeCall(1, {{storages_[index], kReads},
                                              {value, kReads},
                                              {result, kBirth}})));
    const absl::Status status = ReadByte(*device_, 0, result);
    Drop(std::move(result));
    return status;
  }
  // The operators of the worker's runs, by name.
  std::vector<std::string> Ran(int worker) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    std::map<uint64_t, v1::Structure> structures;
    std::vector<std::string> names;
    for (const v1::Ordered& message : cluster_.worker(worker).received()) {
      if (message.has_define_structure()) {
        structures[message.define_structure().structure_id()] =
            message.define_structure().structure();
      }
      if (!message.has_run()) continue;
      const v1::Structure& structure =
          structures.at(message.run().structure_id());
      for (const v1::Node& node : structure.nodes()) {
        names.push_back(
            structure.operators(static_cast<int>(node.operator_index()))
                .name());
      }
    }
    return names;
  }
  int Fetched() {
    return Count(0, v1::Ordered::kOffer) + Count(1, v1::Ordered::kOffer);
  }

  std::vector<StoragePtr> storages_;
};

TEST_F(RecipesTest, AMaskIsMadeAgainAndNotFetched) {
  const StoragePtr row = device_->NewStorage(kSize / 10),
                   mask = device_->NewStorage(kSize / 10);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::arange"), {{row, kBirth}}))
          .ok());
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCallOf(Op("aten::ge"), {{row, kReads}, {mask, kBirth}}))
          .ok());
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::mul_"), {{mask, kWrites}}))
          .ok());
  ASSERT_EQ(Use(0, mask), absl::OkStatus());
  ASSERT_EQ(Use(2, mask), absl::OkStatus());
  EXPECT_EQ(Fetched(), 0);
  const std::vector<std::string> made = {"aten::arange", "aten::ge",
                                         "aten::mul_", "test::op1"};
  EXPECT_EQ(Ran(0), made);
  EXPECT_EQ(Ran(1), made);
  // It is there now.
  ASSERT_EQ(Use(0, mask), absl::OkStatus());
  ASSERT_EQ(Use(2, mask), absl::OkStatus());
  EXPECT_EQ(Ran(0).size(), 5u);
  EXPECT_EQ(Ran(1).size(), 5u);
  // Nothing of what it was made from stays.
  Drop(row);
  Drop(mask);
  for (const StoragePtr& storage : storages_) Drop(storage);
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster_.worker(0).live_storages().empty());
  EXPECT_TRUE(cluster_.worker(1).live_storages().empty());
}

TEST_F(RecipesTest, ANewVersionIsMadeAnew) {
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{value, kBirth}}))
          .ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Use(0, value), absl::OkStatus());
    ASSERT_EQ(Use(2, value), absl::OkStatus());
    ASSERT_TRUE(
        Record(*device_, 0, MakeCallOf(Op("aten::add_"), {{value, kWrites}}))
            .ok());
  }
  EXPECT_EQ(Fetched(), 0);
}

TEST_F(RecipesTest, WhatCannotBeMadeIsFetched) {
  // The next call is where this one is.
  ASSERT_EQ(Use(0, storages_[1]), absl::OkStatus());
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{value, kBirth}}))
          .ok());
  ASSERT_EQ(ReadByte(*device_, 0, value), absl::OkStatus());
  // Making it.
  cluster_.worker(1).FailNextRun(kErrorId);
  EXPECT_FALSE(Use(2, value).ok());
  EXPECT_EQ(Fetched(), 0);
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(Fetched(), 1);
}

TEST_F(RecipesTest, WhatNothingHadTouchedIsZerosEverywhere) {
  const StoragePtr zeros = device_->NewStorage(8),
                   value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCallOf(Op("aten::add_"), {{value, kWrites}, {zeros, kReads}}))
          .ok());
  ASSERT_EQ(Use(0, value), absl::OkStatus());
  ASSERT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(Fetched(), 0);
}

TEST_F(RecipesTest, WhatIsNotCheapOrNotMadeFromNothingIsFetched) {
  const auto expect_fetched = [&](const StoragePtr& value) {
    const int before = Fetched();
    EXPECT_EQ(Use(0, value), absl::OkStatus());
    EXPECT_EQ(Use(2, value), absl::OkStatus());
    EXPECT_EQ(Fetched(), before + 1);
  };
  const StoragePtr product = device_->NewStorage(8),
                   sum = device_->NewStorage(8),
                   overwritten = device_->NewStorage(8),
                   much = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::mm"), {{product, kBirth}}))
          .ok());
  expect_fetched(product);
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCallOf(Op("aten::add"),
                                {{storages_[0], kReads}, {sum, kBirth}}))
                  .ok());
  expect_fetched(sum);
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCallOf(Op("aten::zeros"), {{overwritten, kBirth}}))
                  .ok());
  ASSERT_EQ(Upload(overwritten), absl::OkStatus());
  expect_fetched(overwritten);
  // More calls than it is worth.
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{much, kBirth}}))
          .ok());
  for (uint32_t i = 0; i < Recipe::kMaxCalls; ++i) {
    ASSERT_TRUE(
        Record(*device_, 0, MakeCallOf(Op("aten::add_"), {{much, kWrites}}))
            .ok());
  }
  expect_fetched(much);
}

TEST_F(SpanningDeviceTest, ARefusedUploadLeavesWhatWasThere) {
  const std::vector<StoragePtr> storages = Span();
  // Its worker has no room for a second copy of it, and the others take none.
  cluster_.worker(1).AnswerTransfers(FakeWorker::Transfers::kRefuse);
  EXPECT_EQ(ErrorReason(Upload(storages[0])), "MEMORY_LIMIT");
  EXPECT_EQ(ReadByte(*device_, 0, storages[0]), absl::OkStatus());
}

TEST_F(SpanningDeviceTest, RoomIsCountedRightWhenASizeChanges) {
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

TEST_F(SpanningDeviceTest, AnUploadThatDoesNotFitGoesToAnotherWorker) {
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

TEST_F(SpanningDeviceTest, WithoutAnotherWorkerTheRefusalStands) {
  const StoragePtr first = Uploaded(), second = Uploaded(),
                   third = device_->NewStorage(kSize);
  const absl::Status refused = Upload(third);
  EXPECT_EQ(ErrorReason(refused), "MEMORY_LIMIT");
  EXPECT_EQ(cluster_.coordinator().lease_requests().size(), 2u);
  // What there is goes on.
  EXPECT_EQ(ReadByte(*device_, 0, first), absl::OkStatus());
  Drop(first);
  EXPECT_EQ(Upload(third), absl::OkStatus());
}

TEST_F(PatienceTest, AWorkerThatIsNotReachedIsAskedForLessAndLess) {
  cluster_.coordinator().LetSpan(2);
  cluster_.worker(1).SayWrongId();
  const StoragePtr first = Uploaded(), second = Uploaded(),
                   third = device_->NewStorage(kSize);
  const auto asked = [&](absl::Duration after) {
    clock_.Advance(after);
    EXPECT_EQ(ErrorReason(Upload(third)), "MEMORY_LIMIT");
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
  cluster_.worker(1).AnswerTransfers(FakeWorker::Transfers::kRefuse);
  const StoragePtr third = Uploaded(), fourth = Uploaded();
  EXPECT_EQ(device_->Placement()->worker_id, "w0+w1+w2");
  cluster_.worker(1).AnswerTransfers(FakeWorker::Transfers::kSend);
  const StoragePtr fifth = device_->NewStorage(kSize);
  EXPECT_EQ(ErrorReason(Upload(fifth)), "MEMORY_LIMIT");
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Upload(fifth), absl::OkStatus());
  EXPECT_EQ(cluster_.worker(1).live_storages().size(), 2u);
}

TEST_F(SpanningDeviceTest, ACallGoesWhereMostOfItsOperandsAre) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr input = device_->NewStorage(8);
  ASSERT_EQ(Upload(input), absl::OkStatus());
  const StoragePtr first = device_->NewStorage(8),
                   second = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCall(
                 1, {{storages[0], kReads}, {input, kReads}, {first, kBirth}}))
          .ok());
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCall(
                 2, {{storages[2], kReads}, {first, kReads}, {second, kBirth}}))
          .ok());
  EXPECT_EQ(ReadByte(*device_, 0, second), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  // The input followed the last upload; it and the first result crossed once.
  EXPECT_EQ(Count(1, v1::Ordered::kOffer), 1);
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  // What is there already does not cross again.
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(2, {{storages[2], kReads},
                                  {first, kReads},
                                  {second, kOverwrites}}))
                  .ok());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
}

TEST_F(SpanningDeviceTest, AWriteLeavesOneCopy) {
  const std::vector<StoragePtr> storages = Span();
  StoragePtr value = device_->NewStorage(8);
  ASSERT_EQ(Upload(value), absl::OkStatus());
  // From the second worker to the first, changed there, and back.
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

TEST_F(SpanningDeviceTest, ResultsThatWouldNotFitGoToAnotherWorker) {
  cluster_.coordinator().LetSpan(2);
  const StoragePtr small = device_->NewStorage(8);
  ASSERT_EQ(Upload(small), absl::OkStatus());
  ASSERT_TRUE(device_->Placement().ok());
  std::vector<StoragePtr> results;
  for (int i = 0; i < 4; ++i) {
    results.push_back(device_->NewStorage(kSize));
    ASSERT_TRUE(Record(*device_, 0,
                       MakeCall(1, {{small, kReads}, {results.back(), kBirth}}))
                    .ok());
  }
  EXPECT_GT(Count(0, v1::Ordered::kRun), 0);
  EXPECT_GT(Count(1, v1::Ordered::kRun), 0);
  EXPECT_EQ(cluster_.worker(0).live_storages().size(), 3u);
  EXPECT_EQ(cluster_.worker(1).live_storages().size(), 3u);
}

TEST_F(SpanningDeviceTest, WhereResultsDoNotFitTheirOperandsMoveAway) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr first = device_->NewStorage(kSize),
                   second = device_->NewStorage(kSize);
  const auto call = [&](const StoragePtr& operand, const StoragePtr& result) {
    return Record(*device_, 0,
                  MakeCall(1, {{operand, kReads}, {result, kBirth}}));
  };
  // There is room for the result on the second worker, but not for both.
  cluster_.coordinator().LetSpan(3);
  ASSERT_TRUE(call(storages[0], first).ok());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 1);
  // What moved left room for the next.
  ASSERT_TRUE(call(storages[1], second).ok());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 1);
  for (const StoragePtr& storage : {storages[0], storages[1], first, second}) {
    EXPECT_EQ(ReadByte(*device_, 0, storage), absl::OkStatus());
  }
}

TEST_F(SpanningDeviceTest, TheLossOfOneWorkerIsTheLossOfTheDevice) {
  const std::vector<StoragePtr> storages = Span();
  cluster_.worker(0).Pause();
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  cluster_.coordinator().EndLease("lease-0.1", "WORKER_LOST");
  // Also what waits for the other one.
  EXPECT_EQ(ErrorReason(ReadByte(*device_, 0, storages[0])), "WORKER_LOST");
  EXPECT_EQ(ErrorReason(ReadByte(*device_, 0, storages[2])), "WORKER_LOST");
  EXPECT_EQ(
      ErrorReason(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}}))),
      "WORKER_LOST");
  EXPECT_EQ(session_->RootErrors().size(), 1u);
  cluster_.worker(0).Resume();
}

// Each is told of the other's end before it has come to its own.
TEST_F(SpanningDeviceTest, WorkersThatAreLostAtOnceAreBothSaid) {
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
  std::promise<void> first_fails, third_fails, third_told;
  const auto await = [](std::promise<void>& event) {
    EXPECT_EQ(event.get_future().wait_for(std::chrono::seconds(30)),
              std::future_status::ready);
  };
  // The first tells the second, then the third; the third tells the first.
  reads[1]->OnReady([&] {
    first_fails.set_value();
    await(third_fails);
  });
  reads[0]->OnReady([&] {
    third_fails.set_value();
    await(third_told);
  });
  reads[2]->OnReady([&] { third_told.set_value(); });
  std::thread first(
      [&] { cluster_.coordinator().EndLease("lease-0", "WORKER_LOST"); });
  await(first_fails);
  cluster_.coordinator().EndLease("lease-0.2", "WORKER_LOST");
  first.join();
  std::vector<std::string> lost;
  for (const absl::Status& error : session_->RootErrors()) {
    lost.push_back(ErrorMetadataValue(error, "worker"));
  }
  EXPECT_THAT(lost, testing::UnorderedElementsAre("w0", "w2"));
  for (int worker = 0; worker < 3; ++worker) cluster_.worker(worker).Resume();
}

TEST_F(SpanningDeviceTest, ItIsNotRecorded) {
  ASSERT_TRUE(device_->StartRecording(0).ok());
  const std::vector<StoragePtr> storages = Span();
  auto recording = device_->FinishRecording(0, {}, {}, 0);
  EXPECT_EQ(ErrorReason(recording.status()), "UPLOADS");
  ASSERT_TRUE(device_->StartRecording(0).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}})).ok());
  recording = device_->FinishRecording(0, {}, {}, 0);
  EXPECT_EQ(ErrorReason(recording.status()), "SPANS_WORKERS");
}

TEST_F(SpanningDeviceTest, WhatWasRecordedBeforeIsStale) {
  const StoragePtr weight = Uploaded();
  ASSERT_TRUE(device_->StartRecording(0).ok());
  ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{weight, kWrites}})).ok());
  const auto recording = device_->FinishRecording(0, {}, {}, 0);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE(device_->Replay(0, *recording, {}).ok());
  const std::vector<StoragePtr> storages = Span();
  EXPECT_EQ(ErrorReason(device_->Replay(0, *recording, {}).status()),
            "STALE_RECORDING");
}

TEST_F(SpanningDeviceTest, ItStaysWhereItIs) {
  const std::vector<StoragePtr> storages = Span();
  const v1::MigrationOutcome outcome =
      cluster_.coordinator().Migrate("lease-0.1", 2, 7);
  EXPECT_EQ(outcome.failure().reason(), "SPANS_WORKERS");
  EXPECT_EQ(ReadByte(*device_, 0, storages[2]), absl::OkStatus());
}

TEST_F(SpanningDeviceTest, ItCopiesFromAndToOtherDevices) {
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

TEST_F(SpanningDeviceTest, WhatHasAnotherSizeIsBroughtWhole) {
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
  for (const v1::Ordered& message : cluster_.worker(0).received()) {
    if (message.install().has_pull()) {
      pulled = message.install().pull().size_bytes();
    }
  }
  EXPECT_EQ(pulled, 16u);
}

TEST_F(SpanningDeviceTest, CallsOfOtherDevicesAreRefused) {
  const std::vector<StoragePtr> storages = Span();
  const StoragePtr foreign = (*session_->Device(2))->NewStorage(8);
  EXPECT_EQ(ErrorReason(Record(
                *device_, 0,
                MakeCall(1, {{storages[0], kReads}, {foreign, kReads}}))),
            "MIXED_DEVICES");
}

TEST_F(SpanningDeviceTest, ClosingWaitsForAllWorkers) {
  const std::vector<StoragePtr> storages = Span();
  for (const StoragePtr& storage : storages) {
    ASSERT_TRUE(Record(*device_, 0, MakeCall(1, {{storage, kWrites}})).ok());
  }
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_EQ(cluster_.worker(0).runs().size(), 1u);
  EXPECT_EQ(cluster_.worker(1).runs().size(), 1u);
  EXPECT_EQ(
      ErrorReason(Record(*device_, 0, MakeCall(1, {{storages[0], kWrites}}))),
      "SESSION_CLOSED");
}

}  // namespace
}  // namespace djinn
