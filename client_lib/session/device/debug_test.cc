// Tests call sites, the log of messages and the history of graphs.
#include <string>
#include <vector>

#include "client_lib/session/model/call_sites.h"
#include "client_lib/session/model/debug_flags.h"
#include "client_lib/session/testing/program.h"
#include "common/base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::ErrorDetail Detail(uint64_t id, uint64_t sequence, uint32_t node) {
  v1::ErrorDetail detail;
  detail.set_error_id(id);
  detail.set_code(3);
  detail.set_reason("OPERATOR_FAILED");
  detail.set_message("out of range");
  detail.set_sequence(sequence);
  detail.set_node(node);
  return detail;
}

uint32_t Site(const std::string& location, const std::string& module = "") {
  return CallSiteTable::Global().Add({location, module});
}

TEST(CallSitesTest, EqualSitesHaveOneNumberAndNoSiteHasNone) {
  const uint32_t first = Site("a.py:1", "Net");
  EXPECT_NE(first, 0u);
  EXPECT_EQ(Site("a.py:1", "Net"), first);
  EXPECT_NE(Site("a.py:1"), first);
  EXPECT_EQ(Site(""), 0u);
  EXPECT_EQ(CallSiteTable::Global().Get(first).module, "Net");
}

TEST(CallSitesTest, AnErrorNamesTheCallThatFailed) {
  CallSiteLog log;
  log.Add(7, {Site("a.py:1"), Site("a.py:2", "Net.fc"), 0});
  log.Add(9, {Site("b.py:1")});
  const absl::Status error = log.StatusOf(Detail(1, 7, 1));
  EXPECT_THAT(error.message(), HasSubstr("called at a.py:2, in module Net.fc"));
  EXPECT_EQ(ErrorReason(error), "OPERATOR_FAILED");
  EXPECT_EQ(ErrorMetadataValue(error, "error_id"), "1");
  EXPECT_THAT(log.StatusOf(Detail(2, 9, 0)).message(), HasSubstr("b.py:1"));
  // The call has no site, the node does not exist, or the run does not.
  for (const auto& detail : {Detail(3, 7, 2), Detail(4, 7, 3), Detail(5, 8, 0)})
    EXPECT_THAT(log.StatusOf(detail).message(), Not(HasSubstr("called at")));
}

TEST(CallSitesTest, OldRunsAreForgottenAndTheirKnownErrorsAreNot) {
  CallSiteLog log;
  log.Add(1, std::vector<uint32_t>(2, Site("old.py:1")));
  EXPECT_THAT(log.StatusOf(Detail(1, 1, 0)).message(), HasSubstr("old.py:1"));
  log.Add(2, std::vector<uint32_t>(CallSiteLog::kMaxCalls, Site("new.py:1")));
  EXPECT_THAT(log.StatusOf(Detail(1, 1, 0)).message(), HasSubstr("old.py:1"));
  EXPECT_THAT(log.StatusOf(Detail(2, 1, 0)).message(),
              Not(HasSubstr("called at")));
}

TEST(DebugFlagsTest, BitsChangeWithinTheirMask) {
  debug::Set(debug::kLevels, debug::kExecution);
  debug::Set(debug::kCallSites, debug::kCallSites);
  EXPECT_TRUE(debug::Has(debug::kExecution));
  debug::Set(debug::kLevels, debug::kInterception);
  EXPECT_FALSE(debug::Has(debug::kExecution));
  EXPECT_TRUE(debug::Has(debug::kCallSites));
  debug::Set(~0u, 0);
  EXPECT_EQ(debug::Flags(), 0u);
}

::djinn::Call SitedCall(int op, const std::vector<Use>& uses, uint32_t site) {
  ::djinn::Call call = MakeCall(op, uses);
  call.set_site(site);
  return call;
}

TEST(SessionCallSitesTest, ACallsPlaceIsInItsErrorAndNotInItsGraph) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  for (const char* place : {"one.py:1", "two.py:2"}) {
    ASSERT_TRUE(
        Record(*device, 0, SitedCall(1, {{value, kWrites}}, Site(place))).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  }
  EXPECT_EQ(session->statistics().graphs_defined, 2u);
  cluster.worker().Set(&FakeScript::fail_next_run, 5);
  ASSERT_TRUE(
      Record(*device, 0, SitedCall(1, {{value, kWrites}}, Site("three.py:3")))
          .ok());
  const absl::Status read = ReadByte(*device, 0, value);
  EXPECT_THAT(read.message(), HasSubstr("called at three.py:3"));
  EXPECT_EQ(ReadByte(*device, 0, value).message(), read.message());
  ASSERT_EQ(session->RootErrors().size(), 1u);
  EXPECT_THAT(session->RootErrors()[0].message(),
              HasSubstr("called at three.py:3"));
}

TEST(SessionCallSitesTest, TheCoordinatorIsToldWithTheGraph) {
  FakeCluster cluster;
  const auto [session, device] = cluster.OpenDevice();
  const StoragePtr value = device->NewStorage(8);
  const uint32_t fc1 =
      CallSiteTable::Global().Add({"a.py:1", "Net.fc1", v1::PHASE_LLM_DECODE});
  for (const uint32_t site : {fc1, 0u, fc1, Site("a.py:2")}) {
    ASSERT_TRUE(
        Record(*device, 0, SitedCall(1, {{value, kWrites}}, site)).ok());
  }
  ASSERT_TRUE(device->Synchronize().ok());
  ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  const auto notes = cluster.coordinator().notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].ShortDebugString(),
            "notes { phase: PHASE_LLM_DECODE module_path: \"Net.fc1\" "
            "location: \"a.py:1\" } notes { location: \"a.py:2\" } "
            "note_of_node: 1 note_of_node: 0 note_of_node: 1 "
            "note_of_node: 2");
  EXPECT_EQ(notes[1].ShortDebugString(), "");
}

class ExecutionLogTest : public testing::Test {
 protected:
  ExecutionLogTest() { debug::Set(debug::kLevels, debug::kExecution); }
  ~ExecutionLogTest() override { debug::Set(debug::kLevels, 0); }
};

TEST_F(ExecutionLogTest, SaysWhatIsSentAndWhyAGraphIsNew) {
  FakeCluster cluster;
  testing::internal::CaptureStderr();
  {
    const auto [session, device] = cluster.OpenDevice();
    const StoragePtr value = device->NewStorage(8),
                     other = device->NewStorage(8);
    ASSERT_TRUE(device->Upload(0, value.get(), {"weights!", nullptr}).ok());
    const auto run = [&](std::vector<::djinn::Call> calls) {
      for (::djinn::Call& call : calls) {
        ASSERT_TRUE(device->Record(0, &call).ok());
      }
      ASSERT_TRUE(device->Synchronize().ok());
    };
    const auto writes = [&](int op) {
      return MakeCall(op, {{value, kWrites}});
    };
    run({writes(1), writes(2)});
    run({writes(1), writes(2)});
    run({writes(1), writes(3)});
    run({writes(1)});
    run({writes(1), writes(2), writes(2)});
    run({writes(1), MakeCall(2, {{other, kWrites}})});
    ASSERT_TRUE(ReadByte(*device, 0, value).ok());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* line : {
           "what=\"upload of 8 bytes to storage 1\"",
           "graph=1 calls=2 known=no reason=\"the first that is looked "
           "at\"",
           "graph=1 calls=2 known=yes reason=\"defined before\"",
           "unlike graph 1: call 1 is test::op3 instead of test::op2",
           "ends after 1 of its 2 calls",
           "unlike graph 1: goes on after its 2 calls",
           "the same calls, on storages that are shared or created differently",
           "what=\"graph 1 of 2 nodes\"",
           "what=\"run of graph 1 on 1 storages\"",
           "graph 1: plan hit",
           "what=\"8 bytes for read ",
       }) {
    EXPECT_THAT(log, HasSubstr(line));
  }
}

TEST(QuietTest, NothingIsLoggedUnlessAskedFor) {
  FakeCluster cluster;
  testing::internal::CaptureStderr();
  {
    const auto [session, device] = cluster.OpenDevice();
    const StoragePtr value = device->NewStorage(8);
    ASSERT_TRUE(Record(*device, 0, MakeCall(1, {{value, kWrites}})).ok());
    ASSERT_TRUE(device->Synchronize().ok());
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              Not(HasSubstr("msg=sent")));
}

}  // namespace
}  // namespace djinn
