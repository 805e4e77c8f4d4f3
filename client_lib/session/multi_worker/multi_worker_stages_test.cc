// Tests work that is cut into stages for the workers of a device.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/session/testing/multi_worker_fixture.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

// Runs two layers of a network on a device that wants three workers.
class StagesTest : public MultiWorkerDeviceTest {
 protected:
  StagesTest() : MultiWorkerDeviceTest(OnThreeWorkers()) {
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

  // Runs both layers and reads the result.
  absl::Status Step() {
    StoragePtr between = device_->NewStorage(8);
    StoragePtr result = device_->NewStorage(8);
    DJINN_RETURN_IF_ERROR(Record(
        *device_, 0,
        MakeCall(1,
                 {{first_, kReads}, {input_, kReads}, {between, kCreates}})));
    DJINN_RETURN_IF_ERROR(Record(
        *device_, 0,
        MakeCall(2,
                 {{second_, kReads}, {between, kReads}, {result, kCreates}})));
    const absl::Status status = ReadByte(*device_, 0, result);
    Drop(std::move(between));
    Drop(std::move(result));
    return status;
  }

  // Answers with the replica of each slot: the first layer's weight, its input,
  // its result, the second layer's weight, the result.
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

TEST_F(StagesTest, RepeatedSegmentGoesToThePlansWorkers) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(device_->Placement()->worker_id, "w0+w1+w2");
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  EXPECT_EQ(asked.request.virtual_device(), 0u);
  ASSERT_EQ(asked.graph.nodes_size(), 2);
  ASSERT_EQ(asked.graph.slots_size(), 5);
  Answer(asked, {1, 0, 0, 3, 0});
  ASSERT_EQ(Step(), absl::OkStatus());
  // The second weight and the first layer's result crossed.
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 2);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 1);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
  for (int i = 0; i < 14; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kOffer), 16);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 15);
  // The weight left its first worker.
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

TEST_F(StagesTest, SecondPlanMovesTheStages) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  const auto first = cluster_.coordinator().WaitStagesAsked();
  Answer(first, {1, 0, 0, 3, 0});
  for (int i = 0; i < 15; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 15);
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 16);
  // The question is about the whole graph, once for both stages.
  const auto second = cluster_.coordinator().WaitStagesAsked();
  EXPECT_EQ(second.graph.SerializeAsString(), first.graph.SerializeAsString());
  EXPECT_NE(second.request.number(), first.request.number());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 18);
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
  // Both weights move to other workers.
  Answer(second, {2, 0, 0, 1, 0});
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 4);
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 16);
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 22);
}

TEST_F(StagesTest, PlansAreRequestedLessAndLessOften) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  Answer(cluster_.coordinator().WaitStagesAsked(), {1, 0, 0, 3, 0});
  for (int i = 0; i < 16; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  // The plan stays as it is, although an answer is lost or makes no sense.
  Answer(asked, {1, 0, 0, 3, 0});
  Answer(asked, {2, 0, 0, 2, 0});
  for (int i = 0; i < 111; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 127);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
  EXPECT_EQ(cluster_.coordinator().stages_asked(), 0u);
  ASSERT_EQ(Step(), absl::OkStatus());
  const auto third = cluster_.coordinator().WaitStagesAsked();
  Answer(third, {2, 2});
  Answer(third, {});
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(2, v1::Ordered::kRun), 129);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
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
  // The question was answered already.
  Answer(asked, {2, 2, 2, 2, 2});
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 3);
  // The answer names a replica that does not exist.
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
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  Answer(cluster_.coordinator().WaitStagesAsked(), {1, 0, 0, 2, 0});
  // Nothing is lost and the program gets no error: the plan is dropped.
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
  // The attempt to move the weight cut one of the steps in two.
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 6);
}

TEST_F(StagesTest, AWeightThatIsPoisonedMovesWithItsError) {
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(3, {{second_, kWrites}})).ok());
  // Imitates a worker that fetches a poisoned value.
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  Answer(asked, {1, 0, 0, 2, 0});
  const StoragePtr result = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCall(2, {{second_, kReads}, {result, kCreates}}))
          .ok());
  // No call has returned the error yet.
  EXPECT_EQ(ErrorMetadataValue(device_->Synchronize(), "error_id"), kErrorText);
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 1);
  EXPECT_EQ(cluster_.worker(0).contents(second_->id()).size(), 0u);
}

TEST_F(StagesTest, EmptyStorageExistsAfterAPlanWasDropped) {
  const StoragePtr nothing = device_->NewStorage(0),
                   result = device_->NewStorage(8);
  ASSERT_EQ(Step(), absl::OkStatus());
  ASSERT_EQ(Step(), absl::OkStatus());
  EXPECT_EQ(Count(0, v1::Ordered::kRun), 2);
  ASSERT_TRUE(Record(*device_, 0, MakeCall(3, {{nothing, kCreates}})).ok());
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  Answer(cluster_.coordinator().WaitStagesAsked(), {1, 0, 0, 2, 0});
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCall(4, {{second_, kReads},
                                  {nothing, kWrites},
                                  {result, kCreates}}))
                  .ok());
  EXPECT_EQ(ReadByte(*device_, 0, result), absl::OkStatus());
  EXPECT_EQ(Count(1, v1::Ordered::kRun), 0);
}

// Tests a network with two branches behind its first layer. The weight of each
// branch is on a worker of its own, and the second branch takes longer.
class BranchesTest : public StagesTest {
 protected:
  BranchesTest() {
    trunk_ = Uploaded(1000);
    short_ = Uploaded(1000);
    long_ = Uploaded(1000);
  }

  absl::Status Step() {
    StoragePtr middle = device_->NewStorage(8), one = device_->NewStorage(8),
               other = device_->NewStorage(8), both = device_->NewStorage(8);
    const auto record = [&](Call call) {
      return Record(*device_, 0, std::move(call));
    };
    DJINN_RETURN_IF_ERROR(record(
        MakeCall(1, {{trunk_, kReads}, {input_, kReads}, {middle, kCreates}})));
    DJINN_RETURN_IF_ERROR(record(
        MakeCall(2, {{short_, kReads}, {middle, kReads}, {one, kCreates}})));
    DJINN_RETURN_IF_ERROR(record(
        MakeCall(3, {{long_, kReads}, {middle, kReads}, {other, kCreates}})));
    // The second branch ends here, because it needs the first one's result.
    DJINN_RETURN_IF_ERROR(record(
        MakeCall(4, {{other, kReads}, {one, kReads}, {both, kCreates}})));
    const absl::Status status = ReadByte(*device_, 0, both);
    for (StoragePtr* each : {&middle, &one, &other, &both}) {
      Drop(std::move(*each));
    }
    return status;
  }

  // Answers like StagesTest, with a plan that says how long a run takes.
  void AnswerWithTimes(const FakeCoordinator::StagesAsked& asked) {
    v1::StageAnswer answer;
    answer.set_virtual_device(asked.request.virtual_device());
    answer.set_number(asked.request.number());
    struct Stage {
      std::vector<uint32_t> nodes;
      std::vector<double> remaining;
      uint32_t slot;
    };
    const std::vector<Stage> stages = {
        {{0}, {0.9}, 0}, {{1}, {0.2}, 3}, {{2, 3}, {0.7, 0.1}, 5}};
    for (uint32_t member = 0; member < stages.size(); ++member) {
      v1::StagePlan::Stage* const stage = answer.mutable_plan()->add_stages();
      stage->set_member(member);
      for (const uint32_t node : stages[member].nodes) stage->add_nodes(node);
      for (const double seconds : stages[member].remaining) {
        stage->add_remaining_seconds(seconds);
      }
      stage->add_kept_slots(stages[member].slot);
    }
    for (const uint32_t keeper : {1, 0, 0, 2, 0, 3, 0, 0}) {
      answer.add_member_of_slot(keeper);
    }
    cluster_.coordinator().AnswerStages(answer);
  }

  std::vector<v1::Offer> Offered(int worker) {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    std::vector<v1::Offer> offers;
    for (const v1::Ordered& message : cluster_.worker(worker).seen().received) {
      if (message.has_offer()) offers.push_back(message.offer());
    }
    return offers;
  }

  StoragePtr trunk_, short_, long_;
};

TEST_F(BranchesTest, OffersStateTheRemainingTime) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  const auto asked = cluster_.coordinator().WaitStagesAsked();
  ASSERT_EQ(asked.graph.slots_size(), 8);
  AnswerWithTimes(asked);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(), absl::OkStatus());
  const std::vector<v1::Offer> offers = Offered(0);
  // The weights, for which this process waits, moved once, and two branch
  // inputs moved in each of two runs.
  ASSERT_EQ(offers.size(), 6u);
  std::vector<v1::Offer> weights, values;
  for (const v1::Offer& offer : offers) {
    (offer.has_remaining_seconds() ? values : weights).push_back(offer);
  }
  EXPECT_EQ(weights.size(), 2u);
  ASSERT_EQ(values.size(), 4u);
  for (int run = 0; run < 2; ++run) {
    // The offers are in the program's order. Within a round, the second offer
    // should move first.
    EXPECT_EQ(values[2 * run].remaining_seconds(), 0.2);
    EXPECT_EQ(values[2 * run + 1].remaining_seconds(), 0.7);
    EXPECT_GT(values[2 * run].round(), 0u);
    EXPECT_EQ(values[2 * run].round(), values[2 * run + 1].round());
  }
  EXPECT_LT(values[0].round(), values[2].round());
  // A call that uses no storage of a plan has the urgency of the previous call
  // on its worker.
  const std::vector<v1::Offer> joined = Offered(1);
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].remaining_seconds(), 0.7);
  EXPECT_EQ(joined[0].round(), values[0].round());
}

}  // namespace
}  // namespace djinn
