#include "gpu_worker/core/processor_watch.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

class FakeThread : public ProcessorThread {
 public:
  int Processor() override { return processor; }
  std::optional<absl::Duration> Waited() override { return waited; }
  void Leave() override {}

  std::optional<absl::Duration> waited = absl::ZeroDuration();
  int processor = 0;
};

class ProcessorWatchTest : public testing::Test {
 protected:
  // The first turn tells where the thread is.
  ProcessorWatchTest() { watch_.NoteTurn(now_); }

  // As many turns as between two looks, `waiting` spent waiting in each.
  void Turns(absl::Duration waiting,
             absl::Duration length = absl::Microseconds(100)) {
    for (int i = 0; i < ProcessorWatch::kTurns; ++i) {
      if (thread_.waited.has_value()) *thread_.waited += waiting;
      now_ += length;
      left_ += watch_.NoteTurn(now_);
    }
  }

  const absl::Duration few_ = ProcessorWatch::kTolerated / 2;
  const absl::Duration many_ = ProcessorWatch::kTolerated * 2;
  FakeThread thread_;
  ProcessorWatch watch_{&thread_};
  absl::Duration now_;
  // How often it was told to.
  int left_ = 0;
};

TEST_F(ProcessorWatchTest, StaysWhereItHardlyWaits) {
  for (int i = 0; i < 100; ++i) Turns(few_);
  EXPECT_EQ(left_, 0);
}

TEST_F(ProcessorWatchTest, LeavesWhereItKeepsWaiting) {
  Turns(few_);
  Turns(many_);
  EXPECT_EQ(left_, 1);
  for (int i = 0; i < 100; ++i) Turns(few_);
  EXPECT_EQ(left_, 1);
  Turns(many_);
  EXPECT_EQ(left_, 2);
}

TEST_F(ProcessorWatchTest, LeavesLessOftenWhereThatDoesNotHelp) {
  const absl::Duration length =
      ProcessorWatch::kMinPause / ProcessorWatch::kTurns;
  // One look in every shortest pause, for a minute.
  const int looks =
      static_cast<int>(absl::Minutes(1) / ProcessorWatch::kMinPause);
  for (int i = 0; i < looks; ++i) Turns(many_, length);
  EXPECT_GE(left_, 60);
  EXPECT_LE(left_, 60 + 9);
}

TEST_F(ProcessorWatchTest, IsPatientNoLongerOnceItHelped) {
  const absl::Duration length = LeavePace::kMaxPause;
  for (int i = 0; i < 20; ++i) Turns(many_, length);
  EXPECT_EQ(left_, 20);
  Turns(few_);
  Turns(many_);
  EXPECT_EQ(left_, 20);  // the long pause is not over
  now_ += LeavePace::kMaxPause;
  Turns(many_);
  EXPECT_EQ(left_, 21);
  Turns(few_);
  now_ += ProcessorWatch::kMinPause;
  Turns(many_);
  EXPECT_EQ(left_, 22);
}

// Where it waited before it was moved by others.
TEST_F(ProcessorWatchTest, CountsOneProcessorOnly) {
  Turns(few_);
  for (int i = 0; i < 100; ++i) {
    *thread_.waited += absl::Seconds(1);
    thread_.processor = 1 - thread_.processor;
    Turns(few_);
  }
  EXPECT_EQ(left_, 0);
  Turns(many_);
  Turns(many_);
  EXPECT_GE(left_, 1);
}

TEST_F(ProcessorWatchTest, StaysWhereNobodyTellsHowLongItWaited) {
  thread_.waited.reset();
  for (int i = 0; i < 100; ++i) Turns(many_);
  EXPECT_EQ(left_, 0);
}

TEST(OwnProcessorThread, LeavesItsProcessorAndKeepsItsAffinity) {
  std::thread([] {
    const std::unique_ptr<ProcessorThread> own = OwnProcessorThread();
    cpu_set_t before, after;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    if (CPU_COUNT(&before) == 1) GTEST_SKIP() << "there is one processor";
    own->Leave();
    ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }).join();
}

TEST(OwnProcessorThread, LeavesAnOnlyProcessorAlone) {
  std::thread([] {
    const std::unique_ptr<ProcessorThread> own = OwnProcessorThread();
    cpu_set_t only, after;
    CPU_ZERO(&only);
    CPU_SET(sched_getcpu(), &only);
    ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
    own->Leave();
    ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&only, &after));
  }).join();
}

}  // namespace
}  // namespace djinn::worker
