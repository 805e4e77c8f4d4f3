#include "gpu_worker/service/read_pacer.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// Postpones one read at a time.
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
  // These wait until the pacer has started so many reads, or checked so often.
  void AwaitReads(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; reads_ < count;) patience.Wait(&looked_, &mu_);
  }
  void AwaitLooks(int count) {
    MutexLock lock(&mu_);
    for (Patience patience; looks_ < count;) patience.Wait(&looked_, &mu_);
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

// A thread advances the clock. The pacer looks at times that no test chooses.
class ReadPacerTest : public testing::Test {
 protected:
  ~ReadPacerTest() override {
    over_ = true;
    time_.join();
  }

  FakeClock clock_;
  ReadPacer pacer_{&clock_};
  std::atomic<bool> over_{false};
  std::thread time_{[this] {
    while (!over_) {
      clock_.Advance(ReadPacer::kPatience);
      std::this_thread::yield();
    }
  }};
};

TEST_F(ReadPacerTest, StartsAnUnansweredRead) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
  reader->AwaitReads(1);
  EXPECT_FALSE(reader->watched());
}

TEST_F(ReadPacerTest, LeavesAnsweredReadsAlone) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  // The read was answered before the pacer watched the reader.
  pacer_.Watch(reader);
  reader->AwaitLooks(1);
  EXPECT_EQ(reader->reads(), 0);
  EXPECT_FALSE(reader->watched());
}

TEST_F(ReadPacerTest, WatchesAgain) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  for (int i = 1; i <= 3; ++i) {
    reader->PutOff();
    reader->AwaitReads(i);
  }
  EXPECT_EQ(reader->reads(), 3);
}

TEST_F(ReadPacerTest, ForgetsReadersThatAreGone) {
  auto gone = std::make_shared<FakeReader>(&pacer_);
  gone->PutOff();
  gone.reset();
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
  reader->AwaitReads(1);
}

TEST_F(ReadPacerTest, EndsWithReadsPutOff) {
  const auto reader = std::make_shared<FakeReader>(&pacer_);
  reader->PutOff();
}

}  // namespace
}  // namespace djinn::worker
