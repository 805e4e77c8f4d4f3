#include "gpu_worker/service/read_pacer.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Puts one read off at a time.
class FakeReader : public ReadPacer::Reader,
                   public std::enable_shared_from_this<FakeReader> {
 public:
  explicit FakeReader(ReadPacer* pacer) : pacer_(pacer) {}

  void PutOff() {
    {
      MutexLock lock(&mu_);
      put_off_ = pacer_->Now();
      if (watched_) return;
      watched_ = true;
    }
    pacer_->Watch(weak_from_this());
  }
  void Answer() {
    MutexLock lock(&mu_);
    put_off_.reset();
  }
  // Until the pacer has looked once more.
  void AwaitLook() {
    MutexLock lock(&mu_);
    const int before = looks_;
    while (looks_ == before) looked_.Wait(&mu_);
  }
  int reads() {
    MutexLock lock(&mu_);
    return reads_;
  }
  bool watched() {
    MutexLock lock(&mu_);
    return watched_;
  }

 private:
  bool ReadOnIfDue(absl::Duration limit) override {
    MutexLock lock(&mu_);
    if (put_off_.has_value() && *put_off_ <= limit) {
      put_off_.reset();
      ++reads_;
    }
    watched_ = put_off_.has_value();
    ++looks_;
    looked_.SignalAll();
    return watched_;
  }

  ReadPacer* const pacer_;
  Mutex mu_;
  CondVar looked_;
  std::optional<absl::Duration> put_off_ ABSL_GUARDED_BY(mu_);
  bool watched_ ABSL_GUARDED_BY(mu_) = false;
  int reads_ ABSL_GUARDED_BY(mu_) = 0;
  int looks_ ABSL_GUARDED_BY(mu_) = 0;
};

class ReadPacerTest : public testing::Test {
 protected:
  // The pacer looks at times that the test does not choose: at each step one
  // more at the latest.
  void AdvanceUntilLook(FakeReader* reader) {
    std::thread mover([this, reader] {
      while (!done_) {
        clock_.Advance(ReadPacer::kPatience);
        std::this_thread::yield();
      }
    });
    reader->AwaitLook();
    done_ = true;
    mover.join();
    done_ = false;
  }

  FakeClock clock_;
  ReadPacer pacer_{&clock_};
  std::atomic<bool> done_{false};
};

TEST_F(ReadPacerTest, StartsAReadThatNobodyAnswered) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
  while (reader->reads() == 0) AdvanceUntilLook(reader.get());
  EXPECT_EQ(reader->reads(), 1);
  EXPECT_FALSE(reader->watched());
}

TEST_F(ReadPacerTest, LeavesAnsweredReadsAlone) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
  reader->Answer();
  AdvanceUntilLook(reader.get());
  EXPECT_EQ(reader->reads(), 0);
  EXPECT_FALSE(reader->watched());
}

TEST_F(ReadPacerTest, WatchesAgain) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  for (int i = 1; i <= 3; ++i) {
    reader->PutOff();
    while (reader->reads() < i) AdvanceUntilLook(reader.get());
  }
  EXPECT_EQ(reader->reads(), 3);
}

TEST_F(ReadPacerTest, ForgetsReadersThatAreGone) {
  auto gone = std::make_shared<FakeReader>(&pacer_);
  gone->PutOff();
  gone.reset();
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
  while (reader->reads() == 0) AdvanceUntilLook(reader.get());
}

TEST_F(ReadPacerTest, EndsWithReadsPutOff) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
}

}  // namespace
}  // namespace djinn::worker
