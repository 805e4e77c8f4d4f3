#include "coordinator/rpc/session_traces.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/proto_duration.h"
#include "common/trace/testing/collected_spans.h"
#include "coordinator/testing/cluster_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kTime = absl::Seconds(1);

class Spans final : public SpanSink {
 public:
  bool Takes(const TraceContext& context) const override {
    return context.valid() && takes;
  }
  void Add(Span span) override { spans.push_back(std::move(span)); }
  std::vector<std::string> Names() const { return NamesOf(spans); }

  bool takes = true;
  std::vector<Span> spans;
};

class SessionTracesTest : public ClusterTest {
 protected:
  static v1::LeaseRequest Traced(const TraceContext& context) {
    v1::LeaseRequest request = TestLeaseRequest(0);
    *request.mutable_trace() = ToProto(context);
    return request;
  }
  // Refuses the lease of the request.
  void Refuse() {
    v1::SessionResponse response;
    response.mutable_refused()->set_reason("NO_WORKER");
    traces_.NoteResponse(response);
  }
  // Requests a lease under the context of a client's span.
  void Request() {
    const v1::LeaseRequest request = Traced({1, 2, 3});
    traces_.NoteRequest(request);
    ASSERT_TRUE(requests::Request(*cluster_, session_, request).ok());
  }
  // Passes the next response on to the traces, as the stream does.
  void Respond() {
    const std::optional<v1::SessionResponse> next = Next(session_);
    ASSERT_TRUE(next.has_value());
    traces_.NoteResponse(*next);
  }

  const StreamId session_ = Open("red");
  Spans spans_;
  SessionTraces traces_{cluster_.get(), &spans_, "red"};
};

TEST_F(SessionTracesTest, AGrantIsPlacedAndAnnounced) {
  v1::WorkerState state = TestWorker("w0");
  const StreamId worker = Join(state);
  Request();
  clock_.Advance(kTime);
  Execute(worker, &state);
  Respond();
  ASSERT_THAT(spans_.Names(), ElementsAre("grant lease", "place", "announce"));
  EXPECT_EQ(Took(spans_.spans[0]), kTime);
  EXPECT_EQ(Took(spans_.spans[1]), absl::ZeroDuration());
  EXPECT_EQ(Took(spans_.spans[2]), kTime);
  EXPECT_EQ(spans_.spans[0].parent_span_id(),
            std::string("\0\0\0\0\0\0\0\3", 8));
  for (const size_t child : {1, 2}) {
    EXPECT_EQ(spans_.spans[child].parent_span_id(), spans_.spans[0].span_id());
  }
  // A grant that nobody traced has no spans.
  spans_.spans.clear();
  traces_.NoteResponse(v1::SessionResponse());
  EXPECT_THAT(spans_.spans, IsEmpty());
}

TEST_F(SessionTracesTest, ARefusalSaysWhy) {
  Request();
  clock_.Advance(config_.lease_request_timeout + kTime);
  Tick(*cluster_);
  Respond();
  ASSERT_THAT(spans_.Names(), ElementsAre("grant lease", "place"));
  EXPECT_EQ(spans_.spans[0].status().message(), "NO_WORKER");
}

TEST_F(SessionTracesTest, ARepeatedRequestBelongsToTheFirstOfItsTrace) {
  traces_.NoteRequest(Traced({1, 2, 3}));
  clock_.Advance(kTime);
  traces_.NoteRequest(Traced({1, 2, 4}));
  Refuse();
  ASSERT_THAT(spans_.Names(), ElementsAre("grant lease", "place"));
  EXPECT_EQ(Took(spans_.spans[0]), kTime);
  EXPECT_EQ(spans_.spans[0].parent_span_id(),
            std::string("\0\0\0\0\0\0\0\3", 8));
}

TEST_F(SessionTracesTest, ARequestOfAnotherTraceReplacesTheFirst) {
  traces_.NoteRequest(Traced({1, 2, 3}));
  clock_.Advance(kTime);
  traces_.NoteRequest(Traced({1, 7, 4}));
  Refuse();
  ASSERT_THAT(spans_.Names(), ElementsAre("grant lease", "place"));
  EXPECT_EQ(ContextOf(spans_.spans[0]).trace_low, 7u);
  EXPECT_EQ(Took(spans_.spans[0]), absl::ZeroDuration());
}

TEST_F(SessionTracesTest, ARequestOfNoTraceEndsTheFirst) {
  traces_.NoteRequest(Traced({1, 2, 3}));
  traces_.NoteRequest(TestLeaseRequest(0));
  Refuse();
  EXPECT_THAT(spans_.spans, IsEmpty());
}

TEST_F(SessionTracesTest, OpenSpanIsForgottenAfterAWhile) {
  v1::SessionResponse asked;
  v1::Lease* const to = asked.mutable_migrate()->mutable_to()->mutable_lease();
  to->set_lease_id("l2");
  traces_.NoteResponse(asked);
  traces_.NoteRequest(Traced({1, 2, 3}));
  clock_.Advance(absl::Hours(1));
  // Others remove what is too old.
  v1::LeaseRequest other = Traced({1, 2, 5});
  other.set_virtual_device(1);
  traces_.NoteRequest(other);
  to->set_lease_id("l3");
  traces_.NoteResponse(asked);
  Refuse();
  v1::MigrationOutcome outcome;
  outcome.set_to_lease_id("l2");
  traces_.NoteMigrated(outcome);
  EXPECT_THAT(spans_.spans, IsEmpty());
}

TEST_F(SessionTracesTest, AMigrationIsATraceOfItsOwn) {
  v1::SessionResponse asked;
  v1::Lease* const to = asked.mutable_migrate()->mutable_to()->mutable_lease();
  to->set_lease_id("l2");
  to->set_worker_id("w1");
  traces_.NoteResponse(asked);
  clock_.Advance(kTime);
  v1::MigrationOutcome outcome;
  outcome.set_to_lease_id("l2");
  traces_.NoteMigrated(outcome);
  // The client repeats the outcome on every stream.
  traces_.NoteMigrated(outcome);
  ASSERT_THAT(spans_.Names(), ElementsAre("migrate"));
  EXPECT_EQ(Took(spans_.spans[0]), kTime);
  EXPECT_EQ(spans_.spans[0].parent_span_id(), "");
}

TEST_F(SessionTracesTest, ARecoveryIsOfTheTraceThatTheClientNames) {
  clock_.Advance(kTime);
  v1::SessionRequest request;
  *request.mutable_recovered()->mutable_total_time() = ToProtoDuration(kTime);
  request.mutable_recovered()->mutable_failure()->set_reason("WORKER\x1bLOST");
  *request.mutable_trace() = ToProto({1, 2, 3});
  traces_.NoteRecovered(request);
  request.clear_trace();
  traces_.NoteRecovered(request);
  ASSERT_THAT(spans_.Names(), ElementsAre("recover", "recover"));
  EXPECT_EQ(ContextOf(spans_.spans[0]).trace_low, 2u);
  EXPECT_EQ(spans_.spans[0].parent_span_id(),
            std::string("\0\0\0\0\0\0\0\3", 8));
  EXPECT_NE(ContextOf(spans_.spans[0]).span_id, 3u);
  EXPECT_EQ(spans_.spans[1].parent_span_id(), "");
  EXPECT_NE(spans_.spans[1].trace_id(), spans_.spans[0].trace_id());
  EXPECT_EQ(Took(spans_.spans[1]), kTime);
  EXPECT_EQ(spans_.spans[0].status().message(), "WORKER LOST");
}

TEST_F(SessionTracesTest, NothingIsMadeForASinkThatTakesNothing) {
  spans_.takes = false;
  v1::WorkerState state = TestWorker("w0");
  const StreamId worker = Join(state);
  Request();
  Execute(worker, &state);
  Respond();
  v1::SessionRequest recovered;
  recovered.mutable_recovered();
  traces_.NoteRecovered(recovered);
  EXPECT_THAT(spans_.spans, IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
