// Tests the spans of runs, with a device and a clock that the test controls.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/trace/testing/collected_spans.h"
#include "gmock/gmock.h"
#include "gpu_worker/testing/batch_fixture.h"
#include "gpu_worker/testing/core_fixture.h"

namespace djinn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TraceTest : public WorkerCoreTest {
 protected:
  TraceTest() {
    WorkerCoreOptions options;
    options.spans = &spans_;
    Start(options);
    device_.SetExecuteHook([this](const std::string&) {
      clock_.Advance(absl::Milliseconds(7));
      return absl::OkStatus();
    });
  }
  ~TraceTest() override {
    core_->Shutdown();
    core_.reset();  // which uses spans_
    Start({});
  }
  // Opens a session with two storages and x += y as graph 1.
  std::unique_ptr<TestClient> OpenWithProgram() {
    std::unique_ptr<TestClient> client = Open();
    client->Define(1, AddTo());
    client->InstallInline(1, FloatBytes({1, 2}));
    client->WaitCompleted(client->InstallInline(2, FloatBytes({10, 20})));
    return client;
  }
  // Runs x += y under this context; returns its spans.
  std::vector<Span> Run(TestClient* client, const TraceContext& context) {
    client->TraceRuns(ToProto(context));
    EXPECT_TRUE(client->WaitCompleted(client->Run(1, {1, 2})));
    return spans_.Take();
  }

  CollectedSpans spans_;
};

TEST_F(TraceTest, ARunIsTracedFromItsArrivalToItsEnd) {
  const std::unique_ptr<TestClient> client = OpenWithProgram();
  const std::vector<Span> spans = Run(client.get(), {1, 2, 3});
  ASSERT_THAT(NamesOf(spans), ElementsAre("run", "queue", "turn", "execute"));
  EXPECT_EQ(Took(spans[0]), Took(spans[1]) + Took(spans[2]));
  EXPECT_EQ(Took(spans[3]), absl::Milliseconds(7));
  EXPECT_EQ(spans[0].parent_span_id(), std::string("\0\0\0\0\0\0\0\3", 8));
}

TEST_F(TraceTest, NodesAreTracedWhereTheTraceAsksAndTheDeviceTimesThem) {
  const std::unique_ptr<TestClient> client = OpenWithProgram();
  std::vector<Span> spans = Run(client.get(), {1, 2, 3, true});
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_THAT(spans[3].ShortDebugString(),
              testing::HasSubstr("does not say when a node was executed"));
  device_.TimeNodes();
  spans = Run(client.get(), {1, 2, 3, true});
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[4].parent_span_id(), spans[3].span_id());
  EXPECT_EQ(Took(spans[4]), absl::Milliseconds(7));
  EXPECT_EQ(Run(client.get(), {1, 2, 3}).size(), 4u);
}

TEST_F(TraceTest, OtherRunsAreNotTraced) {
  const std::unique_ptr<TestClient> client = OpenWithProgram();
  EXPECT_THAT(Run(client.get(), {}), IsEmpty());
  EXPECT_THAT(Run(client.get(), {1, CollectedSpans::kUnwanted, 3}), IsEmpty());
}

TEST_F(TraceTest, AContextWithoutATraceIdEndsNoSession) {
  const std::unique_ptr<TestClient> client = OpenWithProgram();
  EXPECT_THAT(Run(client.get(), {0, 0, 3}), IsEmpty());
  EXPECT_EQ(Run(client.get(), {1, 2, 3}).size(), 4u);
}

TEST_F(TraceTest, AFailedRunSaysSo) {
  const std::unique_ptr<TestClient> client = OpenWithProgram();
  device_.SetExecuteHook(
      [](const std::string&) { return absl::InternalError("a secret value"); });
  const std::vector<Span> spans = Run(client.get(), {1, 2, 3});
  ASSERT_FALSE(spans.empty());
  EXPECT_EQ(spans[0].status().code(), 2);
  for (const Span& span : spans) {
    EXPECT_EQ(span.SerializeAsString().find("secret"), std::string::npos);
  }
}

class BatchTraceTest : public BatchTest {
 protected:
  BatchTraceTest() {
    WorkerCoreOptions options;
    options.spans = &spans_;
    Start(options);
  }
  ~BatchTraceTest() override {
    Release();
    core_->Shutdown();
    core_.reset();  // which uses spans_
    Start({});
  }

  CollectedSpans spans_;
};

TEST_F(BatchTraceTest, ARunOfABatchSaysWhyItsNodesAreNotTimed) {
  Share({"t1", "t2"});
  Batch({"t1", "t2"});
  UploadWeight(Add("first", "t1", 0));
  UploadWeight(Add("second", "t2", 1));
  Plug();
  for (const auto& client : clients_) {
    client->TraceRuns(ToProto({1, 2, 3, true}));
    Run(client.get());
  }
  ReleaseWith(3);
  for (const auto& client : clients_) Result(client.get());
  int executed = 0;
  for (const Span& span : spans_.Take()) {
    if (span.name() != "execute") continue;
    ++executed;
    EXPECT_THAT(span.ShortDebugString(), testing::HasSubstr("in a batch"));
  }
  EXPECT_EQ(executed, 2);
}

}  // namespace
}  // namespace djinn::worker
