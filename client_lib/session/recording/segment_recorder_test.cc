#include "client_lib/session/recording/segment_recorder.h"

#include <memory>
#include <string>
#include <vector>

#include "client_lib/session/stream/graph_table.h"
#include "client_lib/session/stream/run_encoder.h"
#include "client_lib/session/testing/calls.h"
#include "common/base/error.h"
#include "common/srg/proto_codec.h"
#include "common/srg/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

// Records without a device.
class SegmentRecorderTest : public testing::Test {
 protected:
  StoragePtr New(uint64_t size = 16) {
    return StoragePtr(new RemoteStorage(++last_id_, nullptr, size));
  }
  // Returns a storage that exists on the worker.
  StoragePtr NewCreated() {
    StoragePtr storage = New();
    recorder_.StampWrite(storage.get());
    return storage;
  }
  // Records the call and returns the segments that this sealed.
  SealedSegments Record(uint32_t lane, Call call) {
    SealedSegments sealed;
    EXPECT_TRUE(recorder_.Check(&call, nullptr).ok());
    recorder_.Record(lane, &call, &sealed);
    return sealed;
  }

  uint64_t last_id_ = 0;
  SegmentRecorder recorder_;
};

TEST_F(SegmentRecorderTest, LanesThatOnlyReadTheSameSealNothing) {
  const StoragePtr a = NewCreated(), b = NewCreated(), c = NewCreated();
  EXPECT_TRUE(Record(1, MakeCall(0, {{a, kReads}, {b, kWrites}})).empty());
  EXPECT_TRUE(Record(2, MakeCall(0, {{a, kReads}, {c, kWrites}})).empty());
}

TEST_F(SegmentRecorderTest, AWriteSealsOtherLanesReadersFirst) {
  const StoragePtr a = NewCreated(), b = NewCreated();
  Record(1, MakeCall(0, {{a, kReads}, {b, kWrites}}));
  const SealedSegments sealed = Record(2, MakeCall(0, {{a, kWrites}}));
  ASSERT_EQ(sealed.size(), 1u);
  EXPECT_EQ(sealed[0]->lane(), 1u);
}

TEST_F(SegmentRecorderTest, AnotherThreadInALaneBeginsASegment) {
  const StoragePtr a = NewCreated();
  const auto record = [&](uint64_t thread) {
    SealedSegments sealed;
    Call call = MakeCall(0, {{a, kWrites}});
    recorder_.Record(1, &call, &sealed, thread);
    return sealed;
  };
  EXPECT_TRUE(record(7).empty());
  EXPECT_TRUE(record(7).empty());
  const SealedSegments forward = record(8);
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward[0]->calls().size(), 2u);
  // The stretch continues: its next segment is not short.
  for (size_t i = 0; i < SegmentRecorder::kFirstCalls; ++i) {
    EXPECT_TRUE(record(8).empty());
  }
  const SealedSegments backward = record(7);
  ASSERT_EQ(backward.size(), 1u);
  EXPECT_EQ(backward[0]->calls().size(), SegmentRecorder::kFirstCalls + 1);
}

TEST_F(SegmentRecorderTest, AReadSealsAnotherLanesWriterButNotItsOwn) {
  const StoragePtr a = NewCreated();
  Record(1, MakeCall(0, {{a, kWrites}}));
  EXPECT_TRUE(Record(1, MakeCall(0, {{a, kReads}})).empty());
  EXPECT_EQ(Record(2, MakeCall(0, {{a, kReads}})).size(), 1u);
  // The entry of the sealed segment is stale by now.
  EXPECT_TRUE(Record(3, MakeCall(0, {{a, kReads}})).empty());
}

TEST_F(SegmentRecorderTest, TheFirstUseOfAnEmptyTensorIsAWrite) {
  const StoragePtr a = New();
  Record(1, MakeCall(0, {{a, kReads}}));
  EXPECT_EQ(Record(2, MakeCall(0, {{a, kReads}})).size(), 1u);
}

TEST_F(SegmentRecorderTest, TwoLanesOverFourStoragesAlternate) {
  const StoragePtr s[] = {NewCreated(), NewCreated(), NewCreated(),
                          NewCreated()};
  // Each call reads the storage that the other lane wrote last.
  for (int i = 0; i < 40; ++i) {
    const uint32_t lane = i % 2;
    const SealedSegments sealed = Record(
        lane, MakeCall(0, {{s[i % 4], kReads}, {s[(i + 1) % 4], kWrites}}));
    if (i == 0) {
      EXPECT_TRUE(sealed.empty());
    } else {
      ASSERT_EQ(sealed.size(), 1u);
      EXPECT_EQ(sealed[0]->lane(), 1 - lane);
    }
  }
}

TEST_F(SegmentRecorderTest, StampsVersionsInTheOrderOfTheCalls) {
  const StoragePtr a = NewCreated();
  Record(1, MakeCall(0, {{a, kReads}}));
  Record(1, MakeCall(0, {{a, kWrites}}));
  Record(1, MakeCall(0, {{a, kReads}}));
  Record(1, MakeCall(0, {{a, kOverwrites}}));
  SealedSegments sealed;
  recorder_.SealAll(&sealed);
  std::vector<uint64_t> versions;
  for (const Touch& touch : sealed[0]->touches()) {
    versions.push_back(touch.base_version);
  }
  EXPECT_EQ(versions, (std::vector<uint64_t>{1, 1, 2, 2}));
  EXPECT_EQ(recorder_.StampWrite(a.get()), 3u);
}

TEST_F(SegmentRecorderTest, RefusesWhatCannotBe) {
  const StoragePtr a = NewCreated(), generator = New();
  Call creation = MakeCall(0, {{a, kCreates}});
  EXPECT_EQ(ErrorReason(recorder_.Check(&creation, nullptr)), "CREATED_TWICE");
  Call draw = MakeCall(0, {{generator, kDraws}});
  EXPECT_EQ(ErrorReason(recorder_.Check(&draw, nullptr)),
            "GENERATOR_NOT_SEEDED");
}

TEST_F(SegmentRecorderTest, RefusesCallsThatNoWorkerTakes) {
  constexpr srg::GraphCaps kCaps;
  Call call;
  const auto list_of = [&](size_t count) {
    call.Begin(TestOperator(0));
    call.AddTensorList(count);
    for (size_t i = 0; i < count; ++i) call.AddNone();
    call.AddUndefinedResult();
  };
  list_of(kCaps.max_list_entries - 1);
  EXPECT_TRUE(recorder_.Check(&call, nullptr).ok());
  list_of(kCaps.max_list_entries);
  const absl::Status status = recorder_.Check(&call, nullptr);
  EXPECT_EQ(ErrorReason(status), "CALL_TOO_LARGE");
  EXPECT_THAT(status.message(),
              testing::HasSubstr("test::op0 has 65537 list entries"));
  call.Begin(TestOperator(0));
  call.AddText(std::string(kCaps.max_text_bytes, 'x'));
  EXPECT_TRUE(recorder_.Check(&call, nullptr).ok());
  call.AddText(std::string(kCaps.max_text_bytes + 1, 'x'));
  EXPECT_EQ(ErrorReason(recorder_.Check(&call, nullptr)), "CALL_TOO_LARGE");
}

TEST_F(SegmentRecorderTest, SegmentsStayBelowTheCapOfSlots) {
  constexpr size_t kOperands = 10000;
  std::vector<Use> uses;
  for (size_t i = 0; i < kOperands; ++i) uses.push_back({NewCreated(), kReads});
  size_t calls = 0;
  SealedSegments sealed;
  while (sealed.empty()) {
    sealed = Record(1, MakeCall(0, uses));
    ++calls;
  }
  EXPECT_EQ(calls, SegmentRecorder::kMaxSegmentTouches / kOperands + 1);
  EXPECT_LT(sealed[0]->touches().size() + srg::GraphCaps().max_list_entries,
            srg::GraphCaps().max_slots);
}

TEST(CallTest, AStorageIsTouchedOnceHoweverManyThereAre) {
  std::vector<StoragePtr> storages;
  for (uint64_t id = 1; id <= 200; ++id) {
    storages.push_back(StoragePtr(new RemoteStorage(id, nullptr, 16)));
  }
  std::vector<Use> uses;
  for (const StoragePtr& storage : storages) uses.push_back({storage, kReads});
  for (const StoragePtr& storage : storages) uses.push_back({storage, kWrites});
  Call call = MakeCall(0, uses);
  ASSERT_EQ(call.touches().size(), storages.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    EXPECT_EQ(call.touches()[i].storage.get(), storages[i].get());
    EXPECT_EQ(call.touches()[i].access, kReads | kWrites);
  }
  // Nothing stays of one call for the next.
  call.Begin(TestOperator(0));
  Operand operand;
  operand.storage = storages[150].get();
  call.AddTensor(operand);
  ASSERT_EQ(call.touches().size(), 1u);
}

TEST_F(SegmentRecorderTest, TooManyOpenSegmentsSealTheOldest) {
  for (uint32_t lane = 0; lane < SegmentRecorder::kMaxOpenSegments; ++lane) {
    EXPECT_TRUE(Record(lane, MakeCall(0, {{NewCreated(), kReads}})).empty());
  }
  const SealedSegments sealed =
      Record(9999, MakeCall(0, {{NewCreated(), kReads}}));
  ASSERT_EQ(sealed.size(), 1u);
  EXPECT_EQ(sealed[0]->lane(), 0u);
}

// Records loops of a given length, encoded as the sender would.
class RepeatCutTest : public SegmentRecorderTest,
                      public testing::WithParamInterface<int> {
 protected:
  // Records iterations that execute fresh = op_i(weight, previous) and then
  // release `previous`.
  void RunLoop(int length, int iterations) {
    const StoragePtr weight = NewCreated();
    StoragePtr previous = NewCreated();
    for (int i = 0; i < length * iterations; ++i) {
      const StoragePtr fresh = New();
      Call call = MakeCall(
          i % length, {{weight, kReads}, {previous, kReads}, {fresh, kCreates}},
          {static_cast<double>(i)});
      SealedSegments sealed;
      recorder_.Record(1, &call, &sealed);
      Encode(sealed);
      previous = fresh;
    }
  }

  void Encode(const SealedSegments& sealed) {
    for (Segment* segment : sealed) {
      lengths_.push_back(segment->calls().size());
      const RunEncoder::Encoded encoded = encoder_.Encode(*segment);
      if (encoded.definition.has_value()) {
        const auto graph = srg::FromProto(encoded.definition->message.graph());
        ASSERT_TRUE(graph.ok());
        EXPECT_TRUE(srg::Validate(*graph, {}).ok());
      }
      ids_.push_back(encoded.run.graph_id());
      segment->Clear();
      recorder_.Recycle(segment);
    }
  }

  GraphTable table_{64};
  RunEncoder encoder_{&table_};
  std::vector<size_t> lengths_;
  std::vector<uint64_t> ids_;
};

TEST_P(RepeatCutTest, ALoopSettlesOnOneGraph) {
  const int length = GetParam();
  RunLoop(length, 6000 / length + 4);
  // The short segment at the start.
  constexpr size_t kStart = 1;
  ASSERT_GE(ids_.size(), kStart + 4);
  for (size_t i = kStart; i < ids_.size(); ++i) {
    EXPECT_EQ(ids_[i], ids_[kStart]);
    EXPECT_EQ(lengths_[i] % length, 0u);
    EXPECT_GE(lengths_[i], Segment::kMinCallsBeforeRepeat);
  }
  EXPECT_LE(ids_[kStart], kStart + 1);
}

INSTANTIATE_TEST_SUITE_P(Lengths, RepeatCutTest,
                         testing::Values(7, 64, 175, 900));

TEST_F(RepeatCutTest, WithoutRepeatsASegmentEndsAtItsCapWhichGrows) {
  const StoragePtr a = NewCreated();
  for (int i = 0; lengths_.size() < 2; ++i) {
    Encode(Record(1, MakeCall(i % 1000, {{a, kReads}})));
  }
  // The second segment ends where its own start repeats.
  EXPECT_EQ(lengths_, (std::vector<size_t>{32, 1000}));
}

TEST_F(RepeatCutTest, AfterAReadSegmentsBeginShortAgain) {
  const StoragePtr a = NewCreated();
  uint32_t operator_id = 0;
  const auto record = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      Encode(Record(1, MakeCall(operator_id++, {{a, kReads}})));
    }
  };
  const auto read = [&] {
    SealedSegments sealed;
    recorder_.SealLane(1, &sealed);
    Encode(sealed);
  };
  record(40);
  read();
  record(32);
  // No segment is open, but the stretch ends here all the same.
  read();
  record(50);
  EXPECT_EQ(lengths_, (std::vector<size_t>{32, 8, 32, 32}));
}

TEST_F(RepeatCutTest, TheTailOfACutStillConflicts) {
  const StoragePtr a = NewCreated();
  SealedSegments sealed;
  for (int cuts = 0; cuts < 2; cuts += sealed.empty() ? 0 : 1) {
    const StoragePtr fresh = New();
    sealed = Record(1, MakeCall(0, {{a, kReads}, {fresh, kCreates}}));
  }
  EXPECT_EQ(sealed[0]->calls().size(), Segment::kMinCallsBeforeRepeat);
  sealed = Record(2, MakeCall(0, {{a, kWrites}}));
  ASSERT_EQ(sealed.size(), 1u);
  EXPECT_EQ(sealed[0]->calls().size(), Segment::kRepeatCalls);
}

TEST_F(RepeatCutTest, CreationsInTheTailStayWithIt) {
  std::vector<StoragePtr> storages;
  SealedSegments sealed;
  for (int cuts = 0; cuts < 2; cuts += sealed.empty() ? 0 : 1) {
    storages.push_back(New());
    sealed = Record(1, MakeCall(0, {{storages.back(), kReads}}));
  }
  EXPECT_EQ(sealed[0]->creations().size(), Segment::kMinCallsBeforeRepeat);
  Encode(sealed);
  sealed = Record(2, MakeCall(0, {{storages.back(), kReads}}));
  ASSERT_EQ(sealed.size(), 1u);
  EXPECT_EQ(sealed[0]->creations().size(), Segment::kRepeatCalls);
  Encode(sealed);
}

TEST_F(RepeatCutTest, TheAliasPartitionIsPartOfTheGraph) {
  const StoragePtr a = NewCreated(), b = NewCreated();
  const auto record = [&](const StoragePtr& x, const StoragePtr& y) {
    SealedSegments sealed;
    Call first = MakeCall(0, {{x, kReads}});
    Call second = MakeCall(0, {{y, kReads}});
    recorder_.Record(1, &first, &sealed);
    recorder_.Record(1, &second, &sealed);
    recorder_.SealAll(&sealed);
    Encode(sealed);
  };
  record(a, b);
  record(b, a);
  record(a, a);
  EXPECT_EQ(ids_, (std::vector<uint64_t>{1, 1, 2}));
}

TEST(GraphTableTest, ForgetsTheLeastRecentlyUsed) {
  GraphTable table(2);
  EXPECT_EQ(table.FindOrAdd("a").id, 1u);
  EXPECT_EQ(table.FindOrAdd("b").id, 2u);
  table.Keep("definition of b");
  EXPECT_FALSE(table.FindOrAdd("a").is_new);
  EXPECT_TRUE(table.Unsaid().empty());
  const GraphTable::Entry c = table.FindOrAdd("c");
  EXPECT_TRUE(c.is_new);
  EXPECT_EQ(c.id, 3u);
  EXPECT_EQ(table.Unsaid(), std::vector<uint64_t>{2});
  EXPECT_FALSE(table.FindOrAdd("a").is_new);
  // Ids are not reused.
  EXPECT_EQ(table.FindOrAdd("b").id, 4u);
}

TEST(GraphTableTest, KeepsDefinitionsUntilTheWorkerForgotThem) {
  GraphTable table(1);
  table.FindOrAdd("a");
  table.Keep("definition of a");
  EXPECT_EQ(*table.Definition(1), "definition of a");
  table.FindOrAdd("b");
  table.Completed(100);
  EXPECT_EQ(*table.Definition(1), "definition of a");
  table.SaidIn(101);
  EXPECT_TRUE(table.Unsaid().empty());
  table.Completed(100);
  EXPECT_NE(table.Definition(1), nullptr);
  table.Completed(101);
  EXPECT_EQ(table.Definition(1), nullptr);
}

TEST(GraphTableTest, RemembersSoManyRunsAndSlots) {
  constexpr size_t kHalf = srg::kMaxRememberedSlots / 2;
  GraphTable table(2);
  const GraphTable::Entry a = table.Add("a");
  table.Keep("definition of a");
  const GraphTable::Entry b = table.Add("b");
  table.Keep("definition of b");
  EXPECT_FALSE(table.Remember(a.id, 1)) << "not admitted yet";
  table.Admitted(a.id);
  table.Admitted(b.id);
  for (size_t run = 2; run <= srg::kMaxRememberedRuns; ++run) {
    EXPECT_TRUE(table.Remember(a.id, run == 2 ? 2 : 0));
  }
  // Further runs leave half of the room to other graphs.
  EXPECT_FALSE(table.Remember(a.id, kHalf - 1));
  EXPECT_TRUE(table.Remember(a.id, kHalf - 2));
  EXPECT_FALSE(table.Remember(a.id, 0)) << "eight are the most";
  EXPECT_TRUE(table.Remember(b.id, kHalf));
  EXPECT_FALSE(table.Remember(b.id, 1));
  // b stays. The room of a is free once the worker must forget a.
  ASSERT_TRUE(table.Find("b").has_value());
  const GraphTable::Entry c = table.Add("c");
  table.Keep("definition of c");
  table.Admitted(c.id);
  EXPECT_FALSE(table.Remember(c.id, kHalf));
  table.SaidIn(7);
  EXPECT_TRUE(table.Remember(c.id, kHalf));
}

TEST(GraphTableTest, KeepsItsBytesBounded) {
  GraphTable table(100, 30);
  EXPECT_EQ(table.FindOrAdd("aaaaaa").id, 1u);
  table.Keep("0123456789");
  EXPECT_EQ(table.FindOrAdd("bbbbbb").id, 2u);
  table.Keep("0123456789");
  EXPECT_TRUE(table.Unsaid().empty());
  EXPECT_EQ(table.FindOrAdd("cccccc").id, 3u);
  EXPECT_EQ(table.Unsaid(), std::vector<uint64_t>{1});
}

}  // namespace
}  // namespace djinn
