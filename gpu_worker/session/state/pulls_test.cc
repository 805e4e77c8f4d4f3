#include "gpu_worker/session/state/pulls.h"

#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/pull/link_rates.h"
#include "gpu_worker/pull/peer_pulls.h"
#include "gpu_worker/store/device_memory.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Fetches values that the test provides.
class FakePullSource : public PullSource {
 public:
  void Start(const std::string& worker_id, const v1::PullRequest& request,
             std::shared_ptr<PullReceiver> receiver) override {
    worker_id_ = worker_id;
    request_ = request;
    receiver_ = std::move(receiver);
  }
  void Cancel(const PullReceiver* receiver) override {
    if (receiver == receiver_.get()) ++cancelled_;
  }
  bool Knows(const std::string& worker_id) const override {
    return worker_id == "w1";
  }

  std::string worker_id_;
  v1::PullRequest request_;
  std::shared_ptr<PullReceiver> receiver_;
  int cancelled_ = 0;
};

class PullsTest : public testing::Test {
 protected:
  PullsTest() {
    environment_.worker_id = "w0";
    environment_.clock = &clock_;
    environment_.memory = &memory_;
    environment_.pulls = &source_;
    environment_.links = &links_;
  }

  static v1::Pull From(const std::string& worker_id, uint64_t bytes) {
    v1::Pull pull;
    pull.set_worker_id(worker_id);
    pull.set_worker_incarnation(5);
    pull.set_ticket("ticket");
    pull.set_size_bytes(bytes);
    return pull;
  }
  std::string BytesOf(const std::shared_ptr<Buffer>& buffer) {
    return std::string(device_.HostBytes(buffer)->bytes);
  }

  FakeClock clock_;
  FakeDevice device_{1 << 20};
  Ledger ledger_{1 << 20};
  DeviceMemory memory_{&device_, &ledger_};
  LinkRates links_{&clock_};
  FakePullSource source_;
  SessionEnvironment environment_;
  int settled_ = 0;
  Pulls pulls_{&environment_, "s1", "red", [this] { ++settled_; }};
};

TEST_F(PullsTest, AValueComesPieceByPiece) {
  ASSERT_TRUE(pulls_.Begin(From("w1", 6)).ok());
  EXPECT_EQ(source_.worker_id_, "w1");
  EXPECT_EQ(source_.request_.session_id(), "s1");
  EXPECT_EQ(source_.request_.ticket(), "ticket");
  EXPECT_EQ(source_.request_.worker_incarnation(), 5u);
  EXPECT_EQ(pulls_.awaited()->worker_id, "w1");
  EXPECT_TRUE(source_.receiver_->OnBytes(0, "abc").ok());
  EXPECT_TRUE(source_.receiver_->OnBytes(3, "def").ok());
  EXPECT_FALSE(pulls_.settled());
  source_.receiver_->OnComplete();
  EXPECT_TRUE(pulls_.settled());
  EXPECT_FALSE(pulls_.awaited().has_value());
  EXPECT_EQ(settled_, 1);
  const Pulls::Pulled pulled = pulls_.Finish();
  EXPECT_EQ(BytesOf(pulled.outcome.buffer), "abcdef");
  EXPECT_NE(pulled.reservation, nullptr);
  // So few bytes say nothing of the link.
  EXPECT_FALSE(pulled.link.has_value());
  EXPECT_FALSE(pulls_.settled());
}

TEST_F(PullsTest, LongPullMeasuresTheLink) {
  const std::string half(100'000, 'h');
  ASSERT_TRUE(pulls_.Begin(From("w1", 2 * half.size())).ok());
  EXPECT_TRUE(source_.receiver_->OnBytes(0, half).ok());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(source_.receiver_->OnBytes(half.size(), half).ok());
  source_.receiver_->OnComplete();
  const Pulls::Pulled pulled = pulls_.Finish();
  ASSERT_TRUE(pulled.link.has_value());
  EXPECT_EQ(pulled.link->worker_id(), "w1");
}

TEST_F(PullsTest, LocalValueIsSharedAndTakesNoRoom) {
  ASSERT_TRUE(pulls_.Begin(From("w0", uint64_t{1} << 40)).ok());
  EXPECT_EQ(ledger_.usage().used, 0u);
  const std::shared_ptr<Buffer> here = *device_.Allocate(10);
  source_.receiver_->OnShared(here);
  const Pulls::Pulled pulled = pulls_.Finish();
  EXPECT_EQ(pulled.outcome.buffer, here);
  EXPECT_EQ(pulled.reservation, nullptr);
}

TEST_F(PullsTest, WorkerIdThatReportsCannotHoldIsAViolation) {
  EXPECT_TRUE(pulls_.Begin(From(std::string(512, 'w'), 6)).ok());
  pulls_.Forget();
  source_.receiver_ = nullptr;
  for (const std::string& id : {std::string(513, 'w'), std::string("w\n")}) {
    EXPECT_EQ(ErrorReason(pulls_.Begin(From(id, 6))), "PROTOCOL_VIOLATION");
    EXPECT_EQ(source_.receiver_, nullptr);
    EXPECT_FALSE(pulls_.awaited().has_value());
  }
}

TEST_F(PullsTest, WithoutRoomNothingIsFetched) {
  EXPECT_EQ(pulls_.Begin(From("w1", uint64_t{1} << 40)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(source_.receiver_, nullptr);
  EXPECT_FALSE(pulls_.awaited().has_value());
}

TEST_F(PullsTest, AFailureSaysWhoCouldNotFetchFromWhom) {
  ASSERT_TRUE(pulls_.Begin(From("w1", 6)).ok());
  source_.receiver_->OnFailed(
      MakeError(absl::StatusCode::kUnavailable, "CONNECTION_LOST", "cut"));
  const absl::Status failure = pulls_.Finish().outcome.failure;
  EXPECT_EQ(failure.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ErrorReason(failure), "PULL_FAILED");
  EXPECT_EQ(failure.message(),
            "worker w0 could not fetch the value from worker w1: cut");
  EXPECT_EQ(ErrorMetadataValue(failure, "cause"), "CONNECTION_LOST");
  EXPECT_EQ(ledger_.usage().used, 0u);
}

TEST_F(PullsTest, AnotherSessionsErrorIsNoFailure) {
  ASSERT_TRUE(pulls_.Begin(From("w1", 6)).ok());
  v1::ErrorDetail error;
  error.set_error_id(77);
  source_.receiver_->OnPoisoned(error);
  const Pulls::Pulled pulled = pulls_.Finish();
  EXPECT_EQ(pulled.outcome.poison->error_id(), 77u);
  EXPECT_TRUE(pulled.outcome.failure.ok());
}

TEST_F(PullsTest, OneOfWhichNothingIsHeardIsGivenUp) {
  ASSERT_TRUE(pulls_.Begin(From("w7", 6)).ok());
  clock_.Advance(absl::Seconds(50));
  // The other worker reports that the offer is still to come.
  source_.receiver_->OnWaiting();
  clock_.Advance(absl::Seconds(59));
  pulls_.CheckDeadline();
  EXPECT_FALSE(pulls_.settled());
  clock_.Advance(absl::Seconds(1));
  pulls_.CheckDeadline();
  EXPECT_TRUE(pulls_.settled());
  EXPECT_EQ(source_.cancelled_, 1);
  const absl::Status failure = pulls_.Finish().outcome.failure;
  EXPECT_EQ(ErrorMetadataValue(failure, "cause"), "TRANSFER_TIMEOUT");
  EXPECT_EQ(failure.message(),
            "worker w0 could not fetch the value from worker w7: nothing came "
            "for 1m; the coordinator has named no such worker to this one");
}

TEST_F(PullsTest, ForgottenPullIsCancelled) {
  pulls_.Forget();
  EXPECT_EQ(source_.cancelled_, 0);
  ASSERT_TRUE(pulls_.Begin(From("w1", 6)).ok());
  pulls_.Forget();
  EXPECT_EQ(source_.cancelled_, 1);
  EXPECT_FALSE(pulls_.awaited().has_value());
  // The source releases its reference, too.
  source_.receiver_ = nullptr;
  EXPECT_EQ(ledger_.usage().used, 0u);
}

}  // namespace
}  // namespace djinn::worker
