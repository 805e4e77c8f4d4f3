// Tests captured graphs: what they keep of a lane's calls, what they refuse,
// and what a worker receives when they execute.
#include "client_lib/session/recording/recording.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "client_lib/session/model/execution_flag.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

constexpr uint32_t kLane = 3;

class CapturedGraphTest : public DeviceTest {
 protected:
  explicit CapturedGraphTest(
      v1::SessionLimits limits = FakeWorker::DefaultLimits())
      : DeviceTest(std::move(limits)) {}

  void Call(int op, const std::vector<Use>& touches) {
    EXPECT_TRUE(Record(*device_, kLane, MakeCall(op, touches)).ok());
  }
  // loss = op1(input, weights); gradient = op2(loss); weights += gradient.
  StoragePtr Step(const StoragePtr& input) {
    StoragePtr loss = device_->NewStorage(4);
    Call(1, {{input, kReads}, {weights_, kReads}, {loss, kCreates}});
    for (int i = 0; i < 2; ++i) {
      const StoragePtr gradient = device_->NewStorage(8);
      Call(2, {{loss, kReads}, {gradient, kCreates}});
      Call(3, {{weights_, kWrites}, {gradient, kReads}});
      Drop(gradient);
    }
    return loss;
  }
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> RecordStep() {
    const StoragePtr input = Uploaded();
    EXPECT_TRUE(device_->graphs().Start(kLane).ok());
    const StoragePtr loss = Step(input);
    auto captured_graph = Finish({input}, {loss});
    Drop(loss);
    return captured_graph;
  }
  absl::StatusOr<std::shared_ptr<const CapturedGraph>> Finish(
      const std::vector<StoragePtr>& given,
      const std::vector<StoragePtr>& outputs, size_t awaited = 1) {
    std::vector<RemoteStorage*> in, out;
    for (const StoragePtr& storage : given) in.push_back(storage.get());
    for (const StoragePtr& storage : outputs) out.push_back(storage.get());
    return device_->graphs().Finish(kLane, in, out, awaited);
  }
  std::string RefusalOf(const std::vector<StoragePtr>& given,
                        const std::vector<StoragePtr>& outputs) {
    return ErrorReason(Finish(given, outputs).status());
  }
  StoragePtr Replay(const std::shared_ptr<const CapturedGraph>& captured_graph,
                    const StoragePtr& input) {
    const std::vector<RemoteStorage*> given = {input.get()};
    auto outputs =
        device_->graphs().Replay(kLane, captured_graph, given, nullptr);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? outputs->at(0) : StoragePtr();
  }

  StoragePtr weights_ = Uploaded();
};

TEST_F(CapturedGraphTest, ReplayBindsOtherStorages) {
  const auto captured_graph = RecordStep();
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  // The first part ends with the output; the second one holds the rest.
  EXPECT_EQ((*captured_graph)->parts.size(), 2u);
  EXPECT_EQ((*captured_graph)->kept.size(), 1u);
  for (int i = 0; i < 5; ++i) {
    const StoragePtr input = Uploaded();
    const StoragePtr loss = Replay(*captured_graph, input);
    std::string value(4, '?');
    ASSERT_TRUE(device_
                    ->Read(kLane, loss.get(), WholeView(*loss.get()),
                           value.data(), value.size())
                    .ok());
    EXPECT_EQ(value, cluster_.worker().contents(loss->id()));
    Drop(loss);
    Drop(input);
  }
  ASSERT_TRUE(device_->Synchronize().ok());
  const std::vector<v1::Run> runs = cluster_.worker().seen().runs;
  const v1::Run& last = runs.back();
  EXPECT_TRUE(last.has_repeat());
  EXPECT_LT(last.repeat().slot_gaps_size(), 2);
  // The weights, the input of the captured step, and the storages just dropped.
  EXPECT_LE(cluster_.worker().live_storages().size(), 4u);
  EXPECT_EQ(session_->statistics().calls, 6u * 5u);
}

TEST_F(CapturedGraphTest, AnArgumentMayHaveNoContents) {
  ASSERT_TRUE(device_->graphs().Start(kLane).ok());
  const StoragePtr empty = device_->NewStorage(4);
  const StoragePtr loss = Step(empty);
  const auto captured_graph = Finish({empty}, {loss});
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  for (const StoragePtr& input : {device_->NewStorage(4), empty, Uploaded()}) {
    const StoragePtr output = Replay(*captured_graph, input);
    std::string value(4, '?');
    ASSERT_TRUE(device_
                    ->Read(kLane, output.get(), WholeView(*output.get()),
                           value.data(), value.size())
                    .ok());
    EXPECT_EQ(value, cluster_.worker().contents(output->id()));
  }
}

// Gradients are outputs that come last and that the program does not await.
TEST_F(CapturedGraphTest, OutputsThatAreNotAwaitedDoNotHoldTheOthersUp) {
  const auto record = [&](size_t awaited) {
    const StoragePtr input = Uploaded();
    EXPECT_TRUE(device_->graphs().Start(kLane).ok());
    const StoragePtr loss = Step(input);
    const StoragePtr gradient = device_->NewStorage(4);
    Call(7, {{weights_, kReads}, {gradient, kCreates}});
    const auto captured_graph = Finish({input}, {loss, gradient}, awaited);
    EXPECT_TRUE(captured_graph.ok()) << captured_graph.status();
    return (*captured_graph)->parts.size();
  };
  EXPECT_EQ(record(/*awaited=*/0), 1u);
  EXPECT_EQ(record(/*awaited=*/1), 2u);
  EXPECT_EQ(record(/*awaited=*/2), 1u);
}

TEST_F(CapturedGraphTest, APartHasFewerSlotsThanAWorkerAllows) {
  const StoragePtr input = Uploaded();
  ASSERT_TRUE(device_->graphs().Start(kLane).ok());
  const StoragePtr loss = device_->NewStorage(4);
  Call(1, {{input, kReads}, {loss, kCreates}});
  constexpr int kCalls = 5;
  std::vector<StoragePtr> made;
  for (int call = 0; call < kCalls; ++call) {
    std::vector<Use> uses = {{loss, kReads}};
    for (size_t i = 0; i < Recorder::kMaxPartTouches / 2; ++i) {
      made.push_back(device_->NewStorage(1));
      uses.push_back({made.back(), kCreates});
    }
    Call(2, uses);
  }
  for (StoragePtr& storage : made) Drop(storage);
  const auto captured_graph = Finish({input}, {loss}, /*awaited=*/0);
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  EXPECT_EQ((*captured_graph)->parts.size(), 3u);
  for (const CapturedPart& part : (*captured_graph)->parts) {
    EXPECT_LE(part.slots.size(), 1.5 * Recorder::kMaxPartTouches + 2);
  }
}

TEST_F(CapturedGraphTest, OrdinaryCallsAndReplaysKeepTheirOrder) {
  const auto captured_graph = RecordStep();
  ASSERT_TRUE(captured_graph.ok());
  const StoragePtr input = Uploaded();
  // These segments are open when the replay comes, in this lane and in another.
  Call(4, {{input, kWrites}});
  ASSERT_TRUE(Record(*device_, 9, MakeCall(5, {{weights_, kWrites}})).ok());
  const StoragePtr loss = Replay(*captured_graph, input);
  Call(6, {{loss, kWrites}, {weights_, kReads}});
  EXPECT_TRUE(ReadByte(*device_, kLane, loss).ok());
  EXPECT_TRUE(ReadByte(*device_, kLane, weights_).ok());
}

TEST_F(CapturedGraphTest, AnExpectedReadGoesAheadOfTheRest) {
  const auto captured_graph = RecordStep();
  ASSERT_TRUE(captured_graph.ok());
  const StoragePtr input = Uploaded();
  const auto step = [&] {
    const StoragePtr loss = Replay(*captured_graph, input);
    EXPECT_TRUE(ReadByte(*device_, kLane, loss).ok());
    Drop(loss);
  };
  for (int i = 0; i < 3; ++i) step();
  ASSERT_TRUE(device_->Synchronize().ok());
  const size_t before = cluster_.worker().seen().received.size();
  step();
  ASSERT_TRUE(device_->Synchronize().ok());
  std::string kinds;
  const std::vector<v1::Ordered> all = cluster_.worker().seen().received;
  for (size_t i = before; i < all.size(); ++i) {
    if (all[i].has_run()) kinds += "run ";
    if (all[i].has_read()) kinds += "read ";
  }
  EXPECT_EQ(kinds, "run read run ");
}

TEST_F(CapturedGraphTest, ReplayRebindsTemporariesAndGenerators) {
  const StoragePtr generator = device_->NewStorage(0);
  ASSERT_TRUE(device_->Seed(kLane, generator.get(), 7).ok());
  const StoragePtr input = Uploaded();
  ASSERT_TRUE(device_->graphs().Start(kLane).ok());
  const StoragePtr buffer = device_->NewStorage(8),
                   out = device_->NewStorage(8);
  Call(1, {{buffer, kWrites}, {input, kReads}, {generator, kDraws}});
  Call(2, {{buffer, kReads}, {out, kCreates}});
  Drop(buffer);
  const auto captured_graph = Finish({input}, {out});
  ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
  Drop(out);
  for (int i = 0; i < 3; ++i) {
    const StoragePtr made = Replay(*captured_graph, input);
    EXPECT_TRUE(ReadByte(*device_, kLane, made).ok());
    Drop(made);
  }
}

TEST_F(CapturedGraphTest, CallsThatCannotBeReplayedAreRefused) {
  const StoragePtr input = Uploaded();
  const auto start = [&] { ASSERT_TRUE(device_->graphs().Start(kLane).ok()); };
  start();
  EXPECT_EQ(ErrorReason(device_->graphs().Start(kLane)), "ALREADY_RECORDING");
  EXPECT_EQ(RefusalOf({input}, {}), "NO_CALLS");
  EXPECT_EQ(RefusalOf({input}, {}), "NOT_RECORDING");

  start();
  StoragePtr made = Step(input);
  EXPECT_TRUE(ReadByte(*device_, kLane, made).ok());
  EXPECT_EQ(RefusalOf({input}, {made}), "READS_VALUE");
  start();
  Step(input);
  Uploaded();
  EXPECT_EQ(RefusalOf({input}, {}), "UPLOADS");
  start();
  ASSERT_TRUE(device_->Resize(kLane, made.get(), 400).ok());
  EXPECT_EQ(RefusalOf({input}, {}), "RESIZES");
  start();
  const StoragePtr generator = device_->NewStorage(0);
  ASSERT_TRUE(device_->Seed(kLane, generator.get(), 7).ok());
  EXPECT_EQ(RefusalOf({input}, {}), "SEEDS");

  start();
  made = Step(input);
  EXPECT_EQ(RefusalOf({input}, {}), "KEEPS_TENSOR");
  start();
  made = Step(input);
  EXPECT_EQ(RefusalOf({input}, {made, made}), "OUTPUT_TWICE");
  start();
  made = Step(input);
  EXPECT_EQ(RefusalOf({input}, {made, weights_}), "NOT_MADE");
}

TEST_F(CapturedGraphTest, OneThatIsDroppedIsGone) {
  const StoragePtr input = Uploaded();
  ASSERT_TRUE(device_->graphs().Start(kLane).ok());
  Step(input);
  device_->graphs().Drop(kLane);
  EXPECT_EQ(RefusalOf({input}, {}), "NOT_RECORDING");
  device_->graphs().Drop(kLane);
  EXPECT_TRUE(device_->graphs().Start(kLane).ok());
}

TEST_F(CapturedGraphTest, IsStaleWhenWhatItKeepsIsGone) {
  const auto captured_graph = RecordStep();
  ASSERT_TRUE(captured_graph.ok());
  const StoragePtr input = Uploaded();
  Drop(weights_);
  const std::vector<RemoteStorage*> given = {input.get()};
  EXPECT_EQ(ErrorReason(device_->graphs()
                            .Replay(kLane, *captured_graph, given, nullptr)
                            .status()),
            "STALE_RECORDING");
  const std::shared_ptr<VirtualDevice> other = *session_->Device(1);
  EXPECT_EQ(ErrorReason(other->graphs()
                            .Replay(kLane, *captured_graph, given, nullptr)
                            .status()),
            "STALE_RECORDING");
}

// Tests with a worker that takes one message at a time, so that further
// messages wait in the session.
class CapturedGraphInANarrowWindowTest : public CapturedGraphTest {
 protected:
  CapturedGraphInANarrowWindowTest()
      : CapturedGraphTest([] {
          v1::SessionLimits limits = FakeWorker::DefaultLimits();
          limits.set_max_outstanding(1);
          return limits;
        }()) {}
};

TEST_F(CapturedGraphInANarrowWindowTest, AReplayHasTheModeOfItsCall) {
  const absl::Cleanup strict = [] {
    SetFastExecution(false);
    SetSwitches(srg::Switches());
  };
  srg::Switches plain;
  plain.mkldnn_disabled = true;
  for (const bool fast : {false, true}) {
    SetFastExecution(fast);
    SetSwitches(fast ? plain : srg::Switches());
    weights_ = Uploaded();
    const auto captured_graph = RecordStep();
    ASSERT_TRUE(captured_graph.ok()) << captured_graph.status();
    ASSERT_EQ((*captured_graph)->parts.size(), 2u);
    const StoragePtr input = Uploaded();
    ASSERT_TRUE(device_->Synchronize().ok());
    const size_t before = cluster_.worker().seen().runs.size();
    // The graph's second run waits in the session for room while the program
    // continues.
    cluster_.worker().Pause();
    const StoragePtr loss = Replay(*captured_graph, input);
    SetFastExecution(!fast);
    SetSwitches(fast ? srg::Switches() : plain);
    cluster_.worker().Resume();
    ASSERT_TRUE(ReadByte(*device_, kLane, loss).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
    const std::vector<v1::Run> runs = cluster_.worker().seen().runs;
    ASSERT_EQ(runs.size(), before + 2);
    for (size_t i = before; i < runs.size(); ++i) {
      EXPECT_EQ(runs[i].mode(),
                fast ? v1::EXECUTION_MODE_FAST : v1::EXECUTION_MODE_STRICT)
          << i;
      EXPECT_EQ(runs[i].has_switches(), fast) << i;
      EXPECT_EQ(runs[i].switches().mkldnn_disabled(), fast) << i;
    }
  }
}

TEST_F(CapturedGraphTest, AFailureInAReplayPoisonsItsOutputs) {
  const auto captured_graph = RecordStep();
  ASSERT_TRUE(captured_graph.ok());
  const StoragePtr input = Uploaded();
  ASSERT_TRUE(device_->Synchronize().ok());
  cluster_.worker().Set(&FakeScript::fail_next_run, 9);
  const StoragePtr loss = Replay(*captured_graph, input);
  EXPECT_EQ(ErrorMetadataValue(ReadByte(*device_, kLane, loss), "error_id"),
            "9");
}

}  // namespace
}  // namespace djinn
