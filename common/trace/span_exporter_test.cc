// Tests the exporter with a collector that the test controls. Where time
// matters, the test moves the clock.
#include "common/trace/span_exporter.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Request =
    opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

// A collector whose answers the test decides.
class FakeCollector {
 public:
  // Makes the next calls end so, in this order; later ones succeed.
  void Answer(std::vector<absl::Status> answers) {
    MutexLock lock(&mu_);
    answers_.assign(answers.begin(), answers.end());
  }
  // Refuses calls of more bytes.
  void Limit(size_t bytes) {
    MutexLock lock(&mu_);
    most_bytes_ = bytes;
  }
  void Reject(int64_t spans) {
    MutexLock lock(&mu_);
    rejects_ = spans;
  }
  // Makes calls wait until Release() or the exporter's Cancel().
  void Hold() {
    MutexLock lock(&mu_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(&mu_);
    held_ = false;
    changed_.SignalAll();
  }
  // Waits for so many calls, and returns all of them.
  std::vector<Request> Calls(size_t count) {
    Patience patience;
    MutexLock lock(&mu_);
    while (calls_.size() < count) patience.Wait(&changed_, &mu_);
    return calls_;
  }
  size_t call_count() {
    MutexLock lock(&mu_);
    return calls_.size();
  }
  std::vector<absl::Duration> timeouts() {
    MutexLock lock(&mu_);
    return timeouts_;
  }

  std::unique_ptr<SpanTransport> Connect() {
    return std::make_unique<Transport>(this);
  }

 private:
  class Transport final : public SpanTransport {
   public:
    explicit Transport(FakeCollector* collector) : collector_(*collector) {}
    absl::Status Export(const Request& request, absl::Duration timeout,
                        int64_t* rejected) override {
      return collector_.Take(request, timeout, rejected);
    }
    void Cancel() override {
      MutexLock lock(&collector_.mu_);
      collector_.cancelled_ = true;
      collector_.changed_.SignalAll();
    }

   private:
    FakeCollector& collector_;
  };

  absl::Status Take(const Request& request, absl::Duration timeout,
                    int64_t* rejected) {
    MutexLock lock(&mu_);
    calls_.push_back(request);
    timeouts_.push_back(timeout);
    changed_.SignalAll();
    for (Patience patience; held_ && !cancelled_;) {
      patience.Wait(&changed_, &mu_);
    }
    if (cancelled_) return absl::CancelledError("cancelled");
    if (request.ByteSizeLong() > most_bytes_) {
      return absl::ResourceExhaustedError("too large");
    }
    *rejected = rejects_;
    if (answers_.empty()) return absl::OkStatus();
    absl::Status answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<absl::Status> answers_ ABSL_GUARDED_BY(mu_);
  size_t most_bytes_ ABSL_GUARDED_BY(mu_) = size_t{4} << 20;
  int64_t rejects_ ABSL_GUARDED_BY(mu_) = 0;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Request> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Duration> timeouts_ ABSL_GUARDED_BY(mu_);
};

Span Named(const std::string& name) {
  Span span;
  span.set_name(name);
  return span;
}

std::vector<std::string> NamesIn(const Request& request) {
  std::vector<std::string> names;
  for (const Span& span : request.resource_spans(0).scope_spans(0).spans()) {
    names.push_back(span.name());
  }
  return names;
}

class SpanExporterTest : public testing::Test {
 protected:
  static SpanExporterOptions Options() {
    SpanExporterOptions options;
    options.service_name = "djinn-test";
    options.instance_id = "one";
    options.queue_spans = 4;
    options.batch_spans = 2;
    return options;
  }
  void Start(SpanExporterOptions options = Options()) {
    exporter_ = std::make_unique<SpanExporter>(std::move(options),
                                               collector_.Connect(), &clock_);
  }
  // Leaves the exporter's thread a moment.
  static void Pause(const Patience& patience) {
    absl::SleepFor(std::min(patience.Left(), absl::Milliseconds(1)));
  }
  // Waits until the condition holds; the exporter's thread makes it true.
  template <typename Condition>
  void Await(Condition condition) {
    for (Patience patience; !condition(exporter_->counts());) Pause(patience);
  }
  // Lets time pass until so many calls were made.
  std::vector<Request> PassUntil(size_t calls) {
    for (Patience patience; collector_.call_count() < calls;) {
      clock_.Advance(absl::Seconds(1));
      Pause(patience);
    }
    return collector_.Calls(calls);
  }

  FakeClock clock_;
  FakeCollector collector_;
  std::unique_ptr<SpanExporter> exporter_;
};

TEST_F(SpanExporterTest, AFullBatchLeavesAtOnceAndARestAfterTheInterval) {
  Start();
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  const std::vector<Request> calls = collector_.Calls(1);
  EXPECT_THAT(NamesIn(calls[0]), ElementsAre("a", "b"));
  const auto& resource = calls[0].resource_spans(0).resource();
  EXPECT_EQ(resource.attributes(0).key(), "service.name");
  EXPECT_EQ(resource.attributes(0).value().string_value(), "djinn-test");
  EXPECT_EQ(resource.attributes(1).value().string_value(), "one");
  Await([](const auto& counts) { return counts.exported == 2; });
  exporter_->Add(Named("c"));
  EXPECT_EQ(collector_.call_count(), 1u);
  EXPECT_THAT(NamesIn(PassUntil(2)[1]), ElementsAre("c"));
}

TEST_F(SpanExporterTest, AFullQueueDropsAndCounts) {
  collector_.Hold();
  Start();
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  collector_.Calls(1);  // a and b have left the queue
  for (int i = 0; i < 7; ++i) exporter_->Add(Named(absl::StrCat(i)));
  exporter_->CountDropped(5);
  EXPECT_EQ(exporter_->counts().dropped, 8u);
  collector_.Release();
  const std::vector<Request> calls = collector_.Calls(3);
  EXPECT_THAT(NamesIn(calls[1]), ElementsAre("0", "1"));
  EXPECT_THAT(NamesIn(calls[2]), ElementsAre("2", "3"));
}

TEST_F(SpanExporterTest, ABatchThatFailsIsSentAgainEverLessOften) {
  collector_.Answer({absl::UnavailableError("dead"),
                     absl::DeadlineExceededError("slow"),
                     absl::UnavailableError("dead")});
  SpanExporterOptions options = Options();
  // The clock may run far ahead of the exporter's thread.
  options.give_up_after = absl::InfiniteDuration();
  Start(std::move(options));
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  collector_.Calls(1);
  Await([](const auto& counts) { return counts.failures == 1; });
  const absl::Duration first = clock_.Monotonic();
  const std::vector<Request> calls = PassUntil(4);
  // One, two and four seconds.
  EXPECT_GE(clock_.Monotonic() - first, absl::Seconds(7));
  for (const Request& call : calls) {
    EXPECT_THAT(NamesIn(call), ElementsAre("a", "b"));
  }
  Await([](const auto& counts) { return counts.exported == 2; });
  EXPECT_EQ(exporter_->counts().failures, 3u);
  EXPECT_EQ(exporter_->counts().dropped, 0u);
}

TEST_F(SpanExporterTest, ABatchThatIsRefusedIsNotSentAgain) {
  collector_.Answer({absl::InvalidArgumentError("no")});
  Start();
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  Await([](const auto& counts) { return counts.refused == 2; });
  exporter_->Add(Named("c"));
  EXPECT_THAT(NamesIn(PassUntil(2)[1]), ElementsAre("c"));
}

TEST_F(SpanExporterTest, AFatSpanDoesNotStopThoseBehindIt) {
  collector_.Limit(4096);
  Start();
  exporter_->Add(Named(std::string(5000, 'x')));
  exporter_->Add(Named("a"));
  Await([](const auto& counts) { return counts.refused == 2; });
  exporter_->Add(Named("b"));
  EXPECT_THAT(NamesIn(PassUntil(2)[1]), ElementsAre("b"));
  Await([](const auto& counts) { return counts.exported == 1; });
  EXPECT_EQ(exporter_->counts().dropped, 0u);
}

TEST_F(SpanExporterTest, ABatchIsBoundedByBytes) {
  SpanExporterOptions options = Options();
  options.batch_spans = 3;
  options.batch_bytes = 100;
  Start(std::move(options));
  const std::string fat(200, 'x');
  const std::string half(60, 'y');
  for (const std::string& name : {half, half, fat}) exporter_->Add(Named(name));
  const std::vector<Request> calls = PassUntil(3);
  EXPECT_THAT(NamesIn(calls[0]), ElementsAre(half));
  EXPECT_THAT(NamesIn(calls[1]), ElementsAre(half));
  EXPECT_THAT(NamesIn(calls[2]), ElementsAre(fat));
}

TEST_F(SpanExporterTest, ABatchThatKeepsFailingIsDropped) {
  collector_.Answer(std::vector<absl::Status>(1000, absl::DataLossError("")));
  Start();
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  collector_.Calls(1);
  const absl::Duration first = clock_.Monotonic();
  for (Patience patience; exporter_->counts().dropped < 2;) {
    clock_.Advance(absl::Seconds(1));
    Pause(patience);
  }
  EXPECT_GE(clock_.Monotonic() - first, Options().give_up_after);
  collector_.Answer({});
  exporter_->Add(Named("c"));
  for (Patience patience; exporter_->counts().exported < 1;) {
    clock_.Advance(absl::Seconds(1));
    Pause(patience);
  }
  EXPECT_EQ(exporter_->counts().dropped, 2u);
}

TEST_F(SpanExporterTest, SpansThatTheCollectorRejectsAreCounted) {
  collector_.Reject(1);
  Start();
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  Await([](const auto& counts) { return counts.exported == 1; });
  EXPECT_EQ(exporter_->counts().refused, 1u);
}

TEST_F(SpanExporterTest, StopSendsWhatWaits) {
  Start();
  exporter_->Add(Named("a"));
  exporter_->Stop();
  EXPECT_THAT(NamesIn(collector_.Calls(1)[0]), ElementsAre("a"));
  EXPECT_EQ(exporter_->counts().exported, 1u);
  exporter_->Add(Named("late"));
  EXPECT_EQ(exporter_->counts().dropped, 1u);
  EXPECT_THAT(collector_.Calls(1), SizeIs(1));
}

TEST_F(SpanExporterTest, StopWithoutSpansCallsNobody) {
  Start();
  exporter_->Stop();
  EXPECT_THAT(collector_.Calls(0), IsEmpty());
}

TEST_F(SpanExporterTest, StopGivesADeadCollectorOneCall) {
  collector_.Answer({absl::UnavailableError("dead")});
  Start();
  for (const char* const name : {"a", "b", "c"}) exporter_->Add(Named(name));
  Await([](const auto& counts) { return counts.failures == 1; });
  collector_.Answer({absl::UnavailableError("dead")});
  exporter_->Stop();
  EXPECT_EQ(collector_.call_count(), 2u);
  EXPECT_EQ(exporter_->counts().dropped, 3u);
}

TEST_F(SpanExporterTest, StopCancelsASlowCollectorAtItsDeadline) {
  collector_.Hold();
  SpanExporterOptions options = Options();
  options.stop_timeout = absl::Milliseconds(20);
  exporter_ = std::make_unique<SpanExporter>(
      std::move(options), collector_.Connect(), Clock::Real());
  exporter_->Add(Named("a"));
  exporter_->Add(Named("b"));
  collector_.Calls(1);
  exporter_->Stop();  // returns, although nobody releases the collector
  EXPECT_EQ(exporter_->counts().dropped, 2u);
}

TEST_F(SpanExporterTest, ACallAtTheEndHasWhatIsLeftOfTheStopTimeout) {
  Start();
  exporter_->Add(Named("a"));
  exporter_->Stop();
  EXPECT_THAT(collector_.timeouts(), ElementsAre(Options().stop_timeout));
}

TEST_F(SpanExporterTest, TakesItsShareOfTraces) {
  SpanExporterOptions options = Options();
  options.sample_ratio = 0.5;
  Start(std::move(options));
  EXPECT_TRUE(exporter_->Takes({1, 0, 1}));
  EXPECT_FALSE(exporter_->Takes({1, ~uint64_t{0}, 1}));
  EXPECT_FALSE(exporter_->Takes({0, 0, 1}));
  EXPECT_FALSE(exporter_->Takes({1, 0, 0}));
}

}  // namespace
}  // namespace djinn
