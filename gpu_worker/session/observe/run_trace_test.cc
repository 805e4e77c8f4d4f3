#include "gpu_worker/session/observe/run_trace.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/proto_duration.h"
#include "common/srg/validate.h"
#include "common/trace/testing/collected_spans.h"
#include "gmock/gmock.h"
#include "gpu_worker/device/fake/fake_device.h"
#include "gpu_worker/device/fake/fake_graph.h"
#include "gtest/gtest.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr absl::Duration Us(int64_t us) { return absl::Microseconds(us); }
constexpr absl::Duration kNow = Us(1000);

class Spans final : public SpanSink {
 public:
  bool Takes(const TraceContext& /*context*/) const override { return true; }
  void Add(Span span) override { spans.push_back(std::move(span)); }

  const Span& operator[](const std::string& name) const {
    for (const Span& span : spans) {
      if (span.name() == name) return span;
    }
    static const Span* const none = new Span;
    ADD_FAILURE() << "no span " << name;
    return *none;
  }
  std::vector<std::string> Names() const { return NamesOf(spans); }

  std::vector<Span> spans;
};

std::string Attribute(const Span& span, const std::string& key) {
  for (const auto& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    const auto& value = attribute.value();
    if (value.has_int_value()) return std::to_string(value.int_value());
    if (value.has_double_value()) return std::to_string(value.double_value());
    return value.string_value();
  }
  return "(none)";
}

class RunTraceTest : public testing::Test {
 protected:
  // Makes the record of a run that waited for 70 us, 20 us of them in a
  // batching window, and had a turn of 100 us, which ended 5 us ago.
  static v1::RunRecord Record() {
    v1::RunRecord record;
    record.set_number(7);
    record.set_fingerprint("abcd");
    record.set_state(v1::RunRecord::COMPLETED);
    *record.mutable_age() = ToProtoDuration(Us(175));
    *record.mutable_waited() = ToProtoDuration(Us(70));
    const auto wait = [&](v1::RunGate gate, absl::Duration time) {
      record.add_waits()->set_gate(gate);
      *record.mutable_waits()->rbegin()->mutable_time() = ToProtoDuration(time);
    };
    wait(v1::RUN_GATE_OTHER_TENANTS, Us(50));
    wait(v1::RUN_GATE_BATCH, Us(20));
    *record.mutable_served() = ToProtoDuration(Us(100));
    *record.mutable_device_time() = ToProtoDuration(Us(80));
    return record;
  }
  Spans Export(const RunTrace& trace, const v1::RunRecord& record) {
    Spans spans;
    trace.Export(record,
                 {.worker_id = "w0",
                  .tenant = "dev",
                  .session_id = "12345678",
                  .wall = WallTimes(&clock_),
                  .now = kNow},
                 /*seed=*/3, &spans);
    return spans;
  }
  // Makes a plan of so many nodes.
  Plan MakePlan(int nodes) {
    FakeGraph s;
    const uint32_t x = s.Bound();
    const uint32_t y = s.Bound();
    for (int i = 0; i < nodes; ++i) s.AddInPlace(x, y, 2);
    const srg::GraphFacts facts = *srg::Validate(s.get(), srg::GraphCaps());
    return Plan("abcd", s.get(), facts, *device_.operators()->Compile(s.get()),
                100);
  }

  FakeDevice device_{1 << 20};
  FakeClock clock_;
};

TEST_F(RunTraceTest, QueueBatchingAndTurnAddUpToTheRun) {
  RunTrace trace({1, 2, 3});
  trace.NoteExecution(Us(905), Us(985));
  const Spans spans = Export(trace, Record());
  EXPECT_THAT(spans.Names(),
              ElementsAre("run", "queue", "batching", "turn", "execute"));
  EXPECT_EQ(Took(spans["run"]), Us(170));
  EXPECT_EQ(Took(spans["queue"]), Us(50));
  EXPECT_EQ(Took(spans["batching"]), Us(20));
  EXPECT_EQ(Took(spans["turn"]), Us(100));
  EXPECT_EQ(Took(spans["execute"]), Us(80));
  // It ended 5 us before the moment of the record.
  EXPECT_EQ(absl::FromUnixNanos(
                static_cast<int64_t>(spans["run"].end_time_unix_nano())),
            WallTimes(&clock_).At(kNow - Us(5)));
  EXPECT_EQ(spans["queue"].start_time_unix_nano(),
            spans["run"].start_time_unix_nano());
  EXPECT_EQ(spans["queue"].end_time_unix_nano(),
            spans["batching"].start_time_unix_nano());
  EXPECT_EQ(spans["batching"].end_time_unix_nano(),
            spans["turn"].start_time_unix_nano());
  EXPECT_EQ(Attribute(spans["queue"], "djinn.wait.other_tenants"), "0.000050");
}

TEST_F(RunTraceTest, ParentsFormTheTreeBelowTheClientsSpan) {
  const Spans spans = Export(RunTrace({1, 2, 3}), Record());
  std::map<std::string, std::string> names;
  names[std::string("\0\0\0\0\0\0\0\3", 8)] = "client";
  for (const Span& span : spans.spans) {
    EXPECT_EQ(span.trace_id(), spans["run"].trace_id());
    EXPECT_EQ(Attribute(span, "djinn.tenant"), "dev");
    EXPECT_EQ(Attribute(span, "djinn.worker"), "w0");
    EXPECT_TRUE(names.emplace(span.span_id(), span.name()).second);
  }
  EXPECT_EQ(names[spans["run"].parent_span_id()], "client");
  EXPECT_EQ(names[spans["queue"].parent_span_id()], "run");
  EXPECT_EQ(names[spans["batching"].parent_span_id()], "run");
  EXPECT_EQ(names[spans["turn"].parent_span_id()], "run");
  EXPECT_EQ(names[spans["execute"].parent_span_id()], "turn");
  EXPECT_EQ(Attribute(spans["run"], "djinn.session"), "12345678");
}

TEST_F(RunTraceTest, TheLongestNodesAreKeptInTheirOrder) {
  constexpr int kNodes = 300;
  const Plan plan = MakePlan(kNodes);
  NodeTimer timer(&clock_, RunTrace::kMaxTimedNodes);
  for (int i = 0; i < kNodes; ++i) {
    // The first ones are the shortest.
    timer.Add({static_cast<uint32_t>(i), Us(1000 * i), Us(1000 * i + 1 + i)});
  }
  RunTrace trace({1, 2, 3, true});
  EXPECT_TRUE(trace.wants_nodes());
  trace.NoteNodes(plan, timer);
  const Spans spans = Export(trace, Record());
  const size_t nodes = RunTrace::kMaxNodes;
  EXPECT_THAT(spans.spans, SizeIs(5 + nodes));
  EXPECT_EQ(Attribute(spans["execute"], "djinn.omitted_nodes"), "44");
  for (size_t i = 0; i < nodes; ++i) {
    const Span& span = spans.spans[5 + i];
    EXPECT_EQ(span.parent_span_id(), spans["execute"].span_id());
    EXPECT_EQ(Took(span), Us(static_cast<int64_t>(45 + i)));
  }
}

TEST_F(RunTraceTest, ARunThatWasNotBegunOnlyWaited) {
  v1::RunRecord record = Record();
  record.clear_served();
  record.set_state(v1::RunRecord::CANCELLED);
  const Spans spans = Export(RunTrace({1, 2, 3}), record);
  EXPECT_THAT(spans.Names(), ElementsAre("run", "queue", "batching"));
  EXPECT_EQ(Took(spans["run"]), Us(175));
  EXPECT_EQ(Attribute(spans["run"], "djinn.state"), "cancelled");
}

TEST_F(RunTraceTest, AFailureIsNamedWithoutItsText) {
  v1::RunRecord record = Record();
  record.set_state(v1::RunRecord::FAILED);
  record.mutable_failure()->set_reason("OPERATOR_FAILED");
  record.mutable_failure()->set_message("with a value: 42");
  record.mutable_failure()->set_operator_name("aten::mm");
  const Spans spans = Export(RunTrace({1, 2, 3}), record);
  EXPECT_EQ(spans["run"].status().message(), "OPERATOR_FAILED");
  EXPECT_EQ(Attribute(spans["run"], "djinn.operator"), "aten::mm");
  for (const Span& span : spans.spans) {
    EXPECT_EQ(span.SerializeAsString().find("42"), std::string::npos);
  }
}

TEST_F(RunTraceTest, CompanionsOfABatchAreCountedAndNotNamed) {
  v1::RunRecord record = Record();
  record.add_companions()->set_tenant("rival");
  const Spans spans = Export(RunTrace({1, 2, 3}), record);
  EXPECT_EQ(Attribute(spans["turn"], "djinn.companions"), "1");
  // The execution of a run in a batch is its turn.
  EXPECT_EQ(Took(spans["execute"]), Us(100));
  for (const Span& span : spans.spans) {
    EXPECT_EQ(span.SerializeAsString().find("rival"), std::string::npos)
        << span.ShortDebugString();
  }
}

}  // namespace
}  // namespace djinn::worker
