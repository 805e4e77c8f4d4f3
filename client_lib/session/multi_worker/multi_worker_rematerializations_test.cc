// Tests cheap values, which are computed wherever a device needs them.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/session/multi_worker/rematerialization.h"
#include "client_lib/session/testing/multi_worker_fixture.h"
#include "common/base/error.h"
#include "gmock/gmock.h"

namespace djinn {
namespace {

// Tests values that a few cheap calls compute from nothing.
class RematerializationsTest : public MultiWorkerDeviceTest {
 protected:
  RematerializationsTest() : storages_(Span()) {}

  absl::Status Use(int index, const StoragePtr& value) {
    return UseWith(storages_[index], value);
  }
  int Fetched() {
    return Count(0, v1::Ordered::kOffer) + Count(1, v1::Ordered::kOffer);
  }

  std::vector<StoragePtr> storages_;
};

TEST_F(RematerializationsTest, AMaskIsRematerializedAndNotFetched) {
  const StoragePtr row = device_->NewStorage(kSize / 10),
                   mask = device_->NewStorage(kSize / 10);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::arange"), {{row, kCreates}}))
          .ok());
  ASSERT_TRUE(
      Record(*device_, 0,
             MakeCallOf(Op("aten::ge"), {{row, kReads}, {mask, kCreates}}))
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
  // The worker has the value now.
  ASSERT_EQ(Use(0, mask), absl::OkStatus());
  ASSERT_EQ(Use(2, mask), absl::OkStatus());
  EXPECT_EQ(Ran(0).size(), 5u);
  EXPECT_EQ(Ran(1).size(), 5u);
  // None of the intermediates stays.
  Drop(row);
  Drop(mask);
  for (const StoragePtr& storage : storages_) Drop(storage);
  ASSERT_TRUE(session_->Close(absl::Seconds(10)).ok());
  EXPECT_TRUE(cluster_.worker(0).live_storages().empty());
  EXPECT_TRUE(cluster_.worker(1).live_storages().empty());
}

TEST_F(RematerializationsTest, NewVersionIsRematerialized) {
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{value, kCreates}}))
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

TEST_F(RematerializationsTest, FailedRematerializationIsFetched) {
  // The next call goes to the worker that took this one.
  ASSERT_EQ(Use(0, storages_[1]), absl::OkStatus());
  const StoragePtr value = device_->NewStorage(8);
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{value, kCreates}}))
          .ok());
  ASSERT_EQ(ReadByte(*device_, 0, value), absl::OkStatus());
  // The failing run is the rematerialization.
  cluster_.worker(1).Set(&FakeScript::fail_next_run, kErrorId);
  EXPECT_FALSE(Use(2, value).ok());
  EXPECT_EQ(Fetched(), 0);
  EXPECT_EQ(Use(2, value), absl::OkStatus());
  EXPECT_EQ(Fetched(), 1);
}

TEST_F(RematerializationsTest, UntouchedStorageIsZerosOnEveryWorker) {
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

TEST_F(RematerializationsTest, ExpensiveOrDependentValueIsFetched) {
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
      Record(*device_, 0, MakeCallOf(Op("aten::mm"), {{product, kCreates}}))
          .ok());
  expect_fetched(product);
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCallOf(Op("aten::add"),
                                {{storages_[0], kReads}, {sum, kCreates}}))
                  .ok());
  expect_fetched(sum);
  ASSERT_TRUE(Record(*device_, 0,
                     MakeCallOf(Op("aten::zeros"), {{overwritten, kCreates}}))
                  .ok());
  ASSERT_EQ(Upload(overwritten), absl::OkStatus());
  expect_fetched(overwritten);
  // The value takes more calls than the limit.
  ASSERT_TRUE(
      Record(*device_, 0, MakeCallOf(Op("aten::zeros"), {{much, kCreates}}))
          .ok());
  for (uint32_t i = 0; i < Rematerialization::kMaxCalls; ++i) {
    ASSERT_TRUE(
        Record(*device_, 0, MakeCallOf(Op("aten::add_"), {{much, kWrites}}))
            .ok());
  }
  expect_fetched(much);
}

}  // namespace
}  // namespace djinn
