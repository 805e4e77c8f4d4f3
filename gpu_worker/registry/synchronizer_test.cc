#include "gpu_worker/registry/synchronizer.h"

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/no_threads.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

// The coordinator's side of all streams, which the tests control.
class FakeRegistry : public RegistryConnector {
 public:
  std::unique_ptr<RegistryStream> Open() override;

  // Waits for a state that matches.
  bool Wait(const std::function<bool(const v1::WorkerState&)>& matches) {
    MutexLock lock(&mu);
    for (int i = 0; i < 200; ++i) {
      for (const v1::WorkerState& state : states) {
        if (matches(state)) return true;
      }
      changed.WaitWithTimeout(&mu, absl::Milliseconds(100));
    }
    return false;
  }
  void Say(v1::DesiredState state) {
    MutexLock lock(&mu);
    desired.push_back(std::move(state));
    changed.SignalAll();
  }
  void Break() {
    MutexLock lock(&mu);
    ++broken;
    changed.SignalAll();
  }

  Mutex mu;
  CondVar changed;
  std::vector<v1::WorkerState> states ABSL_GUARDED_BY(mu);
  std::deque<v1::DesiredState> desired ABSL_GUARDED_BY(mu);
  int opened ABSL_GUARDED_BY(mu) = 0;
  // How streams end.
  absl::Status finish ABSL_GUARDED_BY(mu) = absl::UnavailableError("gone");
  // Streams up to this number are broken.
  int broken ABSL_GUARDED_BY(mu) = 0;
};

class FakeStream : public RegistryStream {
 public:
  FakeStream(FakeRegistry* registry, int number)
      : registry_(registry), number_(number) {}
  bool Write(const v1::WorkerState& state) override {
    MutexLock lock(&registry_->mu);
    if (cancelled_ || registry_->broken >= number_) return false;
    registry_->states.push_back(state);
    registry_->changed.SignalAll();
    return true;
  }
  bool Read(v1::DesiredState* desired) override {
    MutexLock lock(&registry_->mu);
    while (!cancelled_ && registry_->broken < number_ &&
           registry_->desired.empty()) {
      registry_->changed.Wait(&registry_->mu);
    }
    if (cancelled_ || registry_->broken >= number_) return false;
    *desired = std::move(registry_->desired.front());
    registry_->desired.pop_front();
    return true;
  }
  void Cancel() override {
    MutexLock lock(&registry_->mu);
    cancelled_ = true;
    registry_->changed.SignalAll();
  }
  absl::Status Finish() override {
    MutexLock lock(&registry_->mu);
    return registry_->finish;
  }

 private:
  FakeRegistry* const registry_;
  const int number_;
  bool cancelled_ = false;
};

std::unique_ptr<RegistryStream> FakeRegistry::Open() {
  MutexLock lock(&mu);
  changed.SignalAll();
  return std::make_unique<FakeStream>(this, ++opened);
}

class SynchronizerTest : public testing::Test {
 protected:
  // Returns how often a worker says that it lost the coordinator, whose stream
  // ended with `finish` after it had given orders and another one followed.
  int Complaints(absl::Status finish) {
    testing::internal::CaptureStderr();
    {
      auto synchronizer = Make(absl::Hours(1));
      {
        MutexLock lock(&registry_.mu);
        registry_.finish = std::move(finish);
      }
      v1::DesiredState desired;
      desired.set_revision(1);
      registry_.Say(desired);
      EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
        return state.applied_revision() == 1;
      }));
      registry_.Break();
      // Stops it only once the next stream is open.
      MutexLock lock(&registry_.mu);
      for (int i = 0; i < 200 && registry_.opened < 2; ++i) {
        registry_.changed.WaitWithTimeout(&registry_.mu,
                                          absl::Milliseconds(100));
      }
      EXPECT_GE(registry_.opened, 2);
    }
    const std::string log = testing::internal::GetCapturedStderr();
    int complaints = 0;
    for (size_t at = 0; (at = log.find("coordinator lost", at)) != log.npos;
         ++at) {
      ++complaints;
    }
    return complaints;
  }

  std::unique_ptr<Synchronizer> Make(absl::Duration heartbeat) {
    SynchronizerOptions options;
    options.heartbeat_interval = heartbeat;
    options.min_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(5);
    return std::make_unique<Synchronizer>(
        options, &registry_, &random_,
        [this] {
          v1::WorkerState state;
          state.set_queued_runs(queued_);
          return state;
        },
        [this](const v1::DesiredState& desired) {
          applied_ = desired.revision();
        });
  }

  FakeRegistry registry_;
  FakeRandomSource random_;
  std::atomic<uint32_t> queued_{0};
  std::atomic<uint64_t> applied_{0};
};

TEST_F(SynchronizerTest, SendsAtOnceAndEveryHeartbeat) {
  auto synchronizer = Make(absl::Milliseconds(5));
  queued_ = 1;
  EXPECT_TRUE(registry_.Wait(
      [](const v1::WorkerState& state) { return state.queued_runs() == 1; }));
}

TEST_F(SynchronizerTest, SendsSoonAfterAChange) {
  auto synchronizer = Make(absl::Hours(1));
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState&) { return true; }));
  queued_ = 7;
  synchronizer->NotifyChange();
  EXPECT_TRUE(registry_.Wait(
      [](const v1::WorkerState& state) { return state.queued_runs() == 7; }));
}

TEST_F(SynchronizerTest, AppliedRevisionIsAcknowledgedWithoutAReport) {
  auto synchronizer = Make(absl::Hours(1));
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState&) { return true; }));
  v1::DesiredState desired;
  desired.set_revision(3);
  registry_.Say(desired);
  EXPECT_TRUE(registry_.Wait([this](const v1::WorkerState& state) {
    return state.applied_revision() == 3 && applied_ == 3 &&
           state.acknowledgement() && !state.complete();
  }));
}

TEST_F(SynchronizerTest, EveryStreamBeginsWithACompleteReport) {
  auto synchronizer = Make(absl::Hours(1));
  const auto complete = [](const v1::WorkerState& state) {
    return state.complete();
  };
  EXPECT_TRUE(registry_.Wait(complete));
  {
    MutexLock lock(&registry_.mu);
    registry_.states.clear();
  }
  queued_ = 1;
  synchronizer->NotifyChange();
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
    return state.queued_runs() == 1 && !state.complete();
  }));
  registry_.Break();
  EXPECT_TRUE(registry_.Wait(complete));
}

TEST_F(SynchronizerTest, MissingMessageEndsTheStream) {
  auto synchronizer = Make(absl::Hours(1));
  v1::DesiredState desired;
  desired.set_revision(1);
  registry_.Say(desired);
  desired.set_revision(3);
  registry_.Say(desired);
  MutexLock lock(&registry_.mu);
  for (int i = 0; i < 200 && registry_.opened < 2; ++i) {
    registry_.changed.WaitWithTimeout(&registry_.mu, absl::Milliseconds(20));
  }
  EXPECT_GE(registry_.opened, 2);
  EXPECT_EQ(applied_, 1u);
}

TEST_F(SynchronizerTest, ACommandOfASupersededCoordinatorIsIgnored) {
  auto synchronizer = Make(absl::Hours(1));
  const auto opened = [this](int streams) {
    MutexLock lock(&registry_.mu);
    for (int i = 0; i < 1000 && registry_.opened < streams; ++i) {
      registry_.changed.WaitWithTimeout(&registry_.mu, absl::Milliseconds(20));
    }
    return registry_.opened >= streams;
  };
  v1::DesiredState desired;
  desired.set_revision(7);
  desired.set_term(5);
  registry_.Say(desired);
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
    return state.applied_revision() == 7;
  }));
  EXPECT_EQ(synchronizer->known_term(), 5u);
  // The worker dials again, and says whom it believes.
  registry_.Break();
  ASSERT_TRUE(opened(2));
  EXPECT_TRUE(registry_.Wait(
      [](const v1::WorkerState& state) { return state.known_term() == 5; }));
  desired.set_revision(1);
  desired.set_term(4);
  registry_.Say(desired);
  ASSERT_TRUE(opened(3));
  EXPECT_EQ(applied_, 7u);
  EXPECT_FALSE(synchronizer->joined());
  // A coordinator that was not elected is the only one.
  desired.set_term(0);
  registry_.Say(desired);
  EXPECT_TRUE(registry_.Wait([this](const v1::WorkerState& state) {
    return state.applied_revision() == 1 && applied_ == 1;
  }));
  EXPECT_EQ(synchronizer->known_term(), 5u);
}

TEST_F(SynchronizerTest, ComesBackAfterEveryLoss) {
  auto synchronizer = Make(absl::Hours(1));
  v1::DesiredState desired;
  desired.set_revision(9);
  registry_.Say(desired);
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
    return state.applied_revision() == 9;
  }));
  for (int i = 0; i < 5; ++i) registry_.Break();
  {
    MutexLock lock(&registry_.mu);
    registry_.states.clear();
  }
  queued_ = 2;
  // On a new stream nothing is applied yet.
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
    return state.queued_runs() == 2 && state.applied_revision() == 0;
  }));
}

TEST_F(SynchronizerTest, ALostCoordinatorIsLoggedOnce) {
  EXPECT_EQ(Complaints(absl::UnavailableError("gone")), 1);
}

TEST_F(SynchronizerTest, AStreamThatThePeerRenewsIsNotLogged) {
  EXPECT_EQ(Complaints(absl::OkStatus()), 0);
}

TEST_F(SynchronizerTest, WithoutAThreadToReadWithItDialsAgain) {
  auto synchronizer = Make(absl::Hours(1));
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState&) { return true; }));
  const auto opened = [this](int streams) {
    MutexLock lock(&registry_.mu);
    for (int i = 0; i < 200 && registry_.opened < streams; ++i) {
      registry_.changed.WaitWithTimeout(&registry_.mu, absl::Milliseconds(100));
    }
    return registry_.opened >= streams;
  };
  {
    const NoThreads none;
    registry_.Break();
    EXPECT_TRUE(opened(4));
  }
  v1::DesiredState desired;
  desired.set_revision(9);
  registry_.Say(desired);
  EXPECT_TRUE(registry_.Wait([](const v1::WorkerState& state) {
    return state.applied_revision() == 9;
  }));
}

}  // namespace
}  // namespace djinn::worker
