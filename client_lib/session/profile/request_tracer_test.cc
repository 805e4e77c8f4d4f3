// Tests the traces of a session's requests, with a clock that the test moves.
#include "client_lib/session/profile/request_tracer.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/session/testing/program.h"
#include "common/trace/testing/collected_spans.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kLane = 3;
constexpr char kParent[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

constexpr absl::Duration Ms(int64_t ms) { return absl::Milliseconds(ms); }

class RequestTracerTest : public DeviceTest {
 protected:
  RequestTracerTest() : DeviceTest(OptionsWith(nullptr), FakeTime()) {}
  ~RequestTracerTest() override {
    RequestTracer::Global().Configure({});
    RequestTracer::EndRequest();
  }

  void Configure(double ratio, bool nodes = false) {
    RequestTracer::Global().Configure({.sample_ratio = ratio,
                                       .nodes = nodes,
                                       .sink = spans_,
                                       .clock = &clock_});
  }
  // Captures for `capture`, then reads, while the worker takes `away`.
  void Request(absl::Duration capture, absl::Duration away) {
    // The session may prefetch the value with the call.
    cluster_.worker().Pause();
    NoteWork();
    EXPECT_TRUE(Record(*device_, kLane, MakeCall(1, {{value_, kWrites}})).ok());
    clock_.Advance(capture);
    std::thread worker([&] {
      cluster_.worker().WaitForRead();
      clock_.Advance(away);
      cluster_.worker().Resume();
    });
    EXPECT_TRUE(ReadByte(*device_, kLane, value_).ok());
    worker.join();
  }
  // Returns the contexts of the runs that the worker received.
  std::vector<TraceContext> RunContexts() {
    std::vector<TraceContext> contexts;
    for (const v1::Ordered& message : cluster_.worker().seen().received) {
      EXPECT_TRUE(message.has_run() || !message.has_trace());
      if (message.has_run()) contexts.push_back(FromProto(message.trace()));
    }
    return contexts;
  }

  const std::shared_ptr<CollectedSpans> spans_ =
      std::make_shared<CollectedSpans>();
  const StoragePtr value_ = device_->NewStorage(4);
};

TEST_F(RequestTracerTest, TheChildrenAddUpToTheRequest) {
  Configure(1);
  const absl::Duration before = clock_.Monotonic();
  Request(Ms(20), Ms(14));
  const absl::Duration wall = clock_.Monotonic() - before;
  const std::vector<Span> spans = spans_->Take();
  ASSERT_THAT(NamesOf(spans),
              ElementsAre("request", "record", "send", "wait", "receive"));
  EXPECT_EQ(Took(spans[0]), wall);
  EXPECT_EQ(Took(spans[1]), Ms(20));
  absl::Duration sum;
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].parent_span_id(), spans[0].span_id());
    EXPECT_EQ(spans[i].trace_id(), spans[0].trace_id());
    sum += Took(spans[i]);
  }
  EXPECT_EQ(sum, wall);
  EXPECT_EQ(spans[0].parent_span_id(), "");
}

TEST_F(RequestTracerTest, TheRunsCarryTheRequestsSpan) {
  Configure(1, /*nodes=*/true);
  Request(Ms(1), Ms(1));
  Request(Ms(1), Ms(1));
  const std::vector<Span> spans = spans_->Take();
  ASSERT_THAT(spans, SizeIs(10));
  const std::vector<TraceContext> contexts = RunContexts();
  ASSERT_THAT(contexts, SizeIs(2));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(contexts[i].nodes);
    const Span as_span = MakeSpan(contexts[i], 0, "", Span::SPAN_KIND_CLIENT,
                                  absl::Time(), absl::Time());
    EXPECT_EQ(as_span.trace_id(), spans[5 * i].trace_id());
    EXPECT_EQ(as_span.span_id(), spans[5 * i].span_id());
  }
  EXPECT_NE(spans[0].trace_id(), spans[5].trace_id());
}

TEST_F(RequestTracerTest, TheLeaseRequestCarriesTheFirstRequest) {
  Configure(1);
  Request(Ms(1), Ms(1));
  const std::vector<TraceContext> contexts = RunContexts();
  ASSERT_THAT(contexts, SizeIs(1));
  const std::vector<v1::LeaseRequest> requests =
      cluster_.coordinator().lease_requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(FromProto(requests[0].trace()), contexts[0]);
}

TEST_F(RequestTracerTest, ARunThatIsSentAgainIsNoPartOfTheRequest) {
  Configure(1);
  FakeCluster cluster;
  SessionOptions options;
  options.recovers = true;
  const std::unique_ptr<Session> session = cluster.Open(std::move(options));
  const std::shared_ptr<VirtualDevice> device = *session->Device(0);
  const StoragePtr value = device->NewStorage(4);
  NoteWork();
  ASSERT_TRUE(Record(*device, kLane, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(ReadByte(*device, kLane, value).ok());
  const size_t before = cluster.worker().seen().received.size();
  cluster.coordinator().NoteRestart();
  cluster.worker().Restart(/*other_incarnation=*/true);
  ASSERT_TRUE(ReadByte(*device, kLane, value).ok());
  EXPECT_EQ(session->statistics().recoveries, 1);
  const std::vector<v1::Ordered> received = cluster.worker().seen().received;
  ASSERT_GT(received.size(), before);
  size_t runs = 0;
  for (size_t i = 0; i < received.size(); ++i) {
    if (!received[i].has_run()) continue;
    EXPECT_EQ(received[i].has_trace(), i < before);
    ++runs;
  }
  EXPECT_EQ(runs, 2u);
}

TEST_F(RequestTracerTest, NothingIsTracedByDefault) {
  Request(Ms(1), Ms(1));
  EXPECT_THAT(spans_->Take(), IsEmpty());
  Configure(0);
  EXPECT_FALSE(debug::Has(debug::kTrace));
  Request(Ms(1), Ms(1));
  EXPECT_THAT(spans_->Take(), IsEmpty());
  for (const TraceContext& context : RunContexts()) {
    EXPECT_EQ(context, TraceContext());
  }
}

TEST_F(RequestTracerTest, TheCallersTraceDecides) {
  const Traceparent sampled = *ParseTraceparent(kParent);
  Traceparent unsampled = sampled;
  unsampled.sampled = false;
  RequestTracer& tracer = RequestTracer::Global();
  Configure(0);
  RequestTracer::Scope outer = tracer.Enter(sampled);
  Request(Ms(1), Ms(1));
  std::vector<Span> spans = spans_->Take();
  ASSERT_THAT(spans, SizeIs(5));
  const Span parent = MakeSpan(sampled.context, 0, "", Span::SPAN_KIND_CLIENT,
                               absl::Time(), absl::Time());
  EXPECT_EQ(spans[0].trace_id(), parent.trace_id());
  EXPECT_EQ(spans[0].parent_span_id(), parent.span_id());
  EXPECT_NE(spans[0].span_id(), parent.span_id());

  Configure(1);
  RequestTracer::Scope inner = tracer.Enter(unsampled);
  Request(Ms(1), Ms(1));
  EXPECT_THAT(spans_->Take(), IsEmpty());
  tracer.Leave(std::move(inner));
  Request(Ms(1), Ms(1));
  EXPECT_EQ(spans_->Take().at(0).trace_id(), parent.trace_id());
  tracer.Leave(std::move(outer));
  Request(Ms(1), Ms(1));
  EXPECT_NE(spans_->Take().at(0).trace_id(), parent.trace_id());
}

TEST_F(RequestTracerTest, WithoutASinkOnlyTheContextTravels) {
  RequestTracer::Global().Configure({.sample_ratio = 1, .clock = &clock_});
  Request(Ms(1), Ms(1));
  const std::vector<TraceContext> contexts = RunContexts();
  ASSERT_THAT(contexts, SizeIs(1));
  EXPECT_TRUE(contexts[0].valid());
}

}  // namespace
}  // namespace djinn
