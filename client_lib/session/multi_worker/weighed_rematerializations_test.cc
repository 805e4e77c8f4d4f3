// Tests values that are rematerialized if this is faster than a fetch.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/testing/multi_worker_fixture.h"
#include "common/base/error.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

// Two storages of this size, and some smaller ones, fit into a worker.
constexpr uint64_t kLarge = 400'000;
constexpr uint64_t kOperand = 16'000;
constexpr uint64_t kValue = 60'000;
// A product takes 2·60,000·16,000 = 1.92e9 operations: 0.24 s.
constexpr double kFlops = 8e9;
// A fetch of the value takes 0.4 s over the fast link and 0.6 s over the slow
// one.
constexpr uint64_t kFastLink = 150'000;
constexpr uint64_t kSlowLink = 100'000;

// The device has two workers. All storages are on both workers, except the
// large ones; the last large storage is on the second worker only.
class WeighedRematerializationsTest : private WithClock,
                                      public MultiWorkerDeviceTest {
 protected:
  explicit WeighedRematerializationsTest(const char* first_numerics = "n",
                                         const char* second_numerics = "n")
      : MultiWorkerDeviceTest(OptionsWith(&clock_), kLarge) {
    SayFacts(0, first_numerics);
    SayFacts(1, second_numerics);
    cluster_.coordinator().LetSpan(2);
    for (StoragePtr& storage : large_) storage = Uploaded(kLarge);
    operand_ = Uploaded(kOperand);
    EXPECT_EQ(Use(2, operand_), absl::OkStatus());
    EXPECT_EQ(Use(0, operand_), absl::OkStatus());
  }

  using WithClock::clock_;

  void SayFacts(int worker, const char* numerics) {
    v1::DeviceSpeed speed;
    speed.set_flops_per_second(kFlops);
    speed.set_bytes_per_second(1e12);
    cluster_.worker(worker).Set(&FakeScript::speed, speed);
    cluster_.worker(worker).Set(&FakeScript::numerics, numerics);
  }
  // Reports the second worker's measurement of the link from the first.
  void MeasureLink(uint64_t bytes_per_second) {
    v1::ControlResponse news;
    news.mutable_link()->set_worker_id("w0");
    news.mutable_link()->set_bytes_per_second(bytes_per_second);
    cluster_.worker(1).Say(news);
    // Later answers show that the report has arrived.
    EXPECT_EQ(Use(2, operand_), absl::OkStatus());
    EXPECT_EQ(Use(0, operand_), absl::OkStatus());
  }
  // Uses the value on the worker that has the large storage.
  absl::Status Use(int large, const StoragePtr& value) {
    return UseWith(large_[large], value);
  }
  // Computes a value from the operand on the first worker, which took the last
  // call.
  StoragePtr Made(const char* name, const StoragePtr& from) {
    StoragePtr value = device_->NewStorage(kValue);
    EXPECT_EQ(Record(*device_, 0,
                     MakeCallOf(Op(name), {{from, kReads}, {value, kCreates}})),
              absl::OkStatus());
    return value;
  }
  StoragePtr Product() { return Made("aten::mm", operand_); }
  // Returns the operators that the second worker ran, except the uses.
  std::vector<std::string> Rematerialized() {
    std::vector<std::string> names = Ran(1);
    std::erase(names, "test::op1");
    return names;
  }
  // Returns how many values the second worker has fetched.
  int Fetched() {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    return Pulls();
  }
  int Pulls() {
    int count = 0;
    for (const v1::Ordered& message : cluster_.worker(1).seen().received) {
      count += message.install().has_pull();
    }
    return count;
  }
  static std::string ErrorId(const absl::Status& status) {
    return ErrorMetadataValue(status, "error_id");
  }
  // Returns the number of rematerialized calls that the messages to the second
  // worker report.
  uint32_t Recomputed() {
    EXPECT_EQ(device_->Synchronize(), absl::OkStatus());
    uint32_t sum = 0;
    for (const v1::Ordered& message : cluster_.worker(1).seen().received) {
      sum += message.run().recomputed_nodes();
    }
    return sum;
  }
  Statistics statistics() { return session_->statistics(); }

  StoragePtr large_[3], operand_;
};

TEST_F(WeighedRematerializationsTest, OverASlowLinkAValueIsRematerialized) {
  const int before = Fetched();
  MeasureLink(kFastLink);
  StoragePtr value = Product();
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(Fetched(), before + 1);
  EXPECT_EQ(statistics().fetched_not_worth_it, 1u);
  EXPECT_EQ(statistics().values_rematerialized, 0u);

  MeasureLink(kSlowLink);
  StoragePtr other = Product();
  EXPECT_EQ(Use(2, other), absl::OkStatus());
  EXPECT_EQ(Fetched(), before + 1);
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_EQ(statistics().bytes_not_fetched, kValue);
  EXPECT_THAT(Rematerialized(), testing::ElementsAre("aten::mm"));
  EXPECT_EQ(Recomputed(), 1u);
  // The worker has the value now.
  EXPECT_EQ(Use(2, other), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);

  // The link becomes fast again.
  MeasureLink(kFastLink);
  StoragePtr third = Product();
  EXPECT_EQ(Use(2, third), absl::OkStatus());
  EXPECT_EQ(Fetched(), before + 2);
  // No storage stays.
  for (StoragePtr* storage : {&value, &other, &third, &operand_}) {
    Drop(std::move(*storage));
  }
  for (const StoragePtr& storage : large_) Drop(storage);
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_TRUE(cluster_.worker(worker).live_storages().empty());
  }
}

TEST_F(WeighedRematerializationsTest,
       ALinkThatWasMeasuredLongAgoIsMeasuredAgain) {
  const int before = Fetched();
  EXPECT_EQ(Use(2, Product()), absl::OkStatus());
  EXPECT_EQ(statistics().fetched_not_measured, 1u);
  MeasureLink(kSlowLink);
  clock_.Advance(absl::Seconds(30));
  ASSERT_EQ(Use(0, operand_), absl::OkStatus());
  EXPECT_EQ(Use(2, Product()), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  ASSERT_EQ(Use(0, operand_), absl::OkStatus());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Use(2, Product()), absl::OkStatus());
  EXPECT_EQ(statistics().fetched_not_measured, 2u);
  EXPECT_EQ(Fetched(), before + 2);
}

TEST_F(WeighedRematerializationsTest,
       OperandIsFetchedForACheaperRematerialization) {
  MeasureLink(kSlowLink / 2);
  const int before = Fetched();
  // The operand is only on the first worker. Moving it takes 0.04 s, and moving
  // the value takes 1.2 s.
  const StoragePtr small = device_->NewStorage(2'000);
  ASSERT_EQ(Record(*device_, 0,
                   MakeCall(2, {{large_[0], kReads}, {small, kCreates}})),
            absl::OkStatus());
  const StoragePtr value = Made("aten::mm", small);
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_EQ(Fetched(), before + 1);
}

TEST_F(WeighedRematerializationsTest, AnOperandThatIsGoneIsRematerializedToo) {
  MeasureLink(kSlowLink);
  StoragePtr between = device_->NewStorage(kOperand);
  ASSERT_EQ(Record(*device_, 0,
                   MakeCallOf(Op("aten::exp"),
                              {{operand_, kReads}, {between, kCreates}})),
            absl::OkStatus());
  const StoragePtr value = Made("aten::mm", between);
  Drop(std::move(between));
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_THAT(Rematerialized(), testing::ElementsAre("aten::exp", "aten::mm"));
}

TEST_F(WeighedRematerializationsTest, InPlaceFromWhatWasThereBefore) {
  MeasureLink(kSlowLink);
  const StoragePtr value = Product();
  ASSERT_EQ(
      Record(*device_, 0, MakeCallOf(Op("aten::relu_"), {{value, kWrites}})),
      absl::OkStatus());
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_THAT(Rematerialized(),
              testing::ElementsAre("aten::mm", "aten::relu_"));
}

TEST_F(WeighedRematerializationsTest,
       AnOperandThatHoldsSomethingElseNowIsNoOperand) {
  MeasureLink(kSlowLink);
  const StoragePtr value = Product();
  ASSERT_EQ(Record(*device_, 0, MakeCall(2, {{operand_, kWrites}})),
            absl::OkStatus());
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_not_repeatable, 1u);
}

TEST_F(WeighedRematerializationsTest, NorIsOneThatTheProgramHasDropped) {
  MeasureLink(kSlowLink);
  const StoragePtr value = Product();
  Drop(std::move(operand_));
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_not_repeatable, 1u);
}

TEST_F(WeighedRematerializationsTest,
       OperatorsThatNobodyLookedAtAreNotRepeated) {
  MeasureLink(kSlowLink);
  EXPECT_EQ(Use(2, Made("other::mm", operand_)), absl::OkStatus());
  ASSERT_EQ(Use(0, operand_), absl::OkStatus());
  EXPECT_EQ(Use(2, Made("aten::bernoulli", operand_)), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_not_repeatable, 2u);
}

TEST_F(WeighedRematerializationsTest, AfterAFailureNothingIsRematerialized) {
  MeasureLink(kSlowLink);
  const StoragePtr value = Product();
  ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  EXPECT_FALSE(Use(0, operand_).ok());
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_not_repeatable, 1u);
}

TEST_F(WeighedRematerializationsTest,
       FailureAtTheFirstWorkerFailsTheValueEverywhere) {
  MeasureLink(kSlowLink);
  ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  const StoragePtr value = Product();
  // The client does not know of the failure yet.
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_EQ(ErrorId(device_->Synchronize()), kErrorText);
  const int before = Pulls();
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  EXPECT_EQ(ErrorId(Use(2, value)), kErrorText);
  EXPECT_EQ(Pulls(), before + 1);
  EXPECT_EQ(ErrorId(ReadByte(*device_, 0, value)), kErrorText);
}

TEST_F(WeighedRematerializationsTest, SoItIsWhereItGoesForWantOfRoom) {
  MeasureLink(kSlowLink);
  ASSERT_EQ(device_->Synchronize(), absl::OkStatus());
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  const int before = Pulls();
  const StoragePtr value = Product();
  cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
  // The result takes more than the first worker has left.
  const StoragePtr result = device_->NewStorage(kLarge / 2);
  ASSERT_EQ(
      Record(*device_, 0, MakeCall(2, {{value, kReads}, {result, kCreates}})),
      absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 1u);
  EXPECT_EQ(ErrorId(ReadByte(*device_, 0, result)), kErrorText);
  EXPECT_EQ(Pulls(), before + 1);
  EXPECT_EQ(ErrorId(ReadByte(*device_, 0, value)), kErrorText);
}

TEST_F(WeighedRematerializationsTest, SoIsWhatIsCheap) {
  ASSERT_EQ(Use(0, operand_), absl::OkStatus());
  cluster_.worker(0).Set(&FakeScript::fail_next_run, kErrorId);
  const StoragePtr ones = device_->NewStorage(64),
                   more = device_->NewStorage(64);
  ASSERT_EQ(
      Record(*device_, 0, MakeCallOf(Op("aten::ones"), {{ones, kCreates}})),
      absl::OkStatus());
  EXPECT_EQ(ErrorId(device_->Synchronize()), kErrorText);
  ASSERT_EQ(Record(*device_, 0,
                   MakeCallOf(Op("aten::ones_like"),
                              {{ones, kReads}, {more, kCreates}})),
            absl::OkStatus());
  for (const StoragePtr& value : {ones, more}) {
    const int before = Pulls();
    cluster_.worker(1).Set(&FakeScript::fail_next_pull, kErrorId);
    EXPECT_EQ(ErrorId(Use(2, value)), kErrorText);
    EXPECT_EQ(Pulls(), before + 1);
  }
}

TEST_F(WeighedRematerializationsTest, WhereThereIsNoRoomItIsFetched) {
  MeasureLink(kSlowLink);
  // The second worker has enough room for the value, but not for its operands.
  StoragePtr between = device_->NewStorage(2 * kValue);
  ASSERT_EQ(Record(*device_, 0,
                   MakeCallOf(Op("aten::exp"),
                              {{operand_, kReads}, {between, kCreates}})),
            absl::OkStatus());
  const StoragePtr value = device_->NewStorage(kValue);
  ASSERT_EQ(Record(*device_, 0,
                   MakeCallOf(Op("aten::relu"),
                              {{between, kReads}, {value, kCreates}})),
            absl::OkStatus());
  Drop(std::move(between));
  const StoragePtr filling = Uploaded(kLarge + 10'000);
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_not_worth_it, 1u);
}

class OtherBitsTest : public WeighedRematerializationsTest {
 protected:
  OtherBitsTest() : WeighedRematerializationsTest("n", "other") {}
};

TEST_F(OtherBitsTest, WorkersWithOtherBitsFetch) {
  MeasureLink(kSlowLink);
  EXPECT_EQ(Use(2, Product()), absl::OkStatus());
  EXPECT_EQ(statistics().values_rematerialized, 0u);
  EXPECT_EQ(statistics().fetched_other_bits, 1u);
}

class NoPromiseTest : public WeighedRematerializationsTest {
 protected:
  NoPromiseTest() : WeighedRematerializationsTest("", "") {}
};

TEST_F(NoPromiseTest, WorkerWithoutNumericsFetches) {
  MeasureLink(kSlowLink);
  EXPECT_EQ(Use(2, Product()), absl::OkStatus());
  EXPECT_EQ(statistics().fetched_other_bits, 1u);
}

// Fast mode is a property of the whole process, and its use is remembered for
// ever, so this test needs a process of its own.
TEST(FastExecutionDeathTest, ValueComputedInFastModeIsNotRematerialized) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  class Test : public WeighedRematerializationsTest {
   public:
    void TestBody() override {
      MeasureLink(kSlowLink);
      SetFastExecution(true);
      const StoragePtr fast = Product();
      SetFastExecution(false);
      EXPECT_EQ(Use(2, fast), absl::OkStatus());
      EXPECT_EQ(statistics().values_rematerialized, 0u);
      EXPECT_EQ(statistics().fetched_not_repeatable, 1u);
    }
  };
  EXPECT_EXIT(
      {
        Test().TestBody();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace djinn
