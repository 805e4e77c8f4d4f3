#include "coordinator/tables/worker_registry.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace djinn::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kTimeout = absl::Seconds(10);

class WorkerRegistryTest : public testing::Test {
 protected:
  static v1::WorkerState State(const std::string& id,
                               const std::vector<std::string>& graphs,
                               uint64_t incarnation = 1) {
    v1::WorkerState state;
    state.set_worker_id(id);
    state.set_incarnation(incarnation);
    state.set_address("host:1");
    state.set_complete(true);
    for (const std::string& graph : graphs) {
      state.add_graphs()->set_fingerprint(graph);
    }
    return state;
  }
  Worker* Join(const v1::WorkerState& state, absl::Duration now = {}) {
    const auto joined = registry_.Join(state, ++streams_, nullptr, now);
    EXPECT_TRUE(joined.ok()) << joined.status();
    return joined->worker;
  }
  std::vector<std::string> With(const std::string& graph) {
    std::vector<std::string> ids;
    for (const Worker* worker : registry_.WithGraph(graph)) {
      ids.push_back(worker->id);
    }
    return ids;
  }

  // Returns a report with leases, each of a session.
  static v1::WorkerState Holding(
      const std::string& id,
      const std::vector<std::pair<std::string, std::string>>& leases,
      uint64_t incarnation = 1) {
    v1::WorkerState state = State(id, {}, incarnation);
    for (const auto& [lease_id, session_id] : leases) {
      v1::LeaseClaims claims;
      claims.set_lease_id(lease_id);
      claims.set_session_id(session_id);
      state.add_sessions()->mutable_lease()->set_claims(
          claims.SerializeAsString());
    }
    return state;
  }
  std::vector<std::string> WithSession(const std::string& session_id) {
    std::vector<std::string> ids;
    for (const Worker* worker : registry_.WithSession(session_id)) {
      ids.push_back(worker->id);
    }
    return ids;
  }

  WorkerRegistry registry_{kTimeout};
  uint64_t streams_ = 0;
};

TEST_F(WorkerRegistryTest, LastReportDecidesWhichWorkersHaveAGraph) {
  Worker* const b = Join(State("b", {"g", "h"}));
  Worker* const a = Join(State("a", {"g"}));
  EXPECT_THAT(With("g"), ElementsAre("a", "b"));
  EXPECT_THAT(With("h"), ElementsAre("b"));
  EXPECT_THAT(With("none"), IsEmpty());
  registry_.Apply(State("b", {"g", "i"}), {}, b);
  EXPECT_THAT(With("g"), ElementsAre("a", "b"));
  EXPECT_THAT(With("h"), IsEmpty());
  EXPECT_THAT(With("i"), ElementsAre("b"));
  registry_.Apply(State("a", {}), {}, a);
  EXPECT_THAT(With("g"), ElementsAre("b"));
}

TEST_F(WorkerRegistryTest, AGraphThatIsReportedTwiceIsOne) {
  Worker* const worker = Join(State("a", {"g", "g", "h"}));
  EXPECT_THAT(With("g"), ElementsAre("a"));
  // As many entries as before, but another graph is absent.
  registry_.Apply(State("a", {"g", "g"}), {}, worker);
  EXPECT_THAT(With("h"), IsEmpty());
  registry_.Apply(State("a", {"h"}), {}, worker);
  EXPECT_THAT(With("g"), IsEmpty());
  EXPECT_THAT(With("h"), ElementsAre("a"));
}

TEST_F(WorkerRegistryTest, LostOrRestartedWorkerHasNoGraphs) {
  Worker* const a = Join(State("a", {"g"}));
  Worker* const b = Join(State("b", {"g"}));
  registry_.MarkLost(a);
  EXPECT_THAT(With("g"), ElementsAre("b"));
  registry_.Disconnect(b);
  Join(State("b", {"h"}, 2));
  EXPECT_THAT(With("g"), IsEmpty());
  EXPECT_THAT(With("h"), ElementsAre("b"));
  // The first worker returns.
  Join(State("a", {"g"}));
  EXPECT_THAT(With("g"), ElementsAre("a"));
  registry_.MarkLost(a);
  EXPECT_THAT(registry_.Forget(absl::Hours(1000)), ElementsAre("a"));
  EXPECT_THAT(With("g"), IsEmpty());
}

TEST_F(WorkerRegistryTest, LastReportDecidesWhichWorkersHaveASession) {
  Worker* const b = Join(Holding("b", {{"1", "s"}, {"2", "s"}, {"3", "t"}}));
  Worker* const a = Join(Holding("a", {{"4", "s"}}));
  EXPECT_THAT(WithSession("s"), ElementsAre("a", "b"));
  EXPECT_THAT(WithSession("t"), ElementsAre("b"));
  EXPECT_THAT(WithSession("none"), IsEmpty());
  // One of two leases ends, but the session stays.
  registry_.Apply(Holding("b", {{"2", "s"}, {"5", "u"}}), {}, b);
  EXPECT_THAT(WithSession("s"), ElementsAre("a", "b"));
  EXPECT_THAT(WithSession("t"), IsEmpty());
  EXPECT_THAT(WithSession("u"), ElementsAre("b"));
  // The same lease, reported with another session than before.
  registry_.Apply(Holding("b", {{"2", "t"}, {"5", "u"}}), {}, b);
  EXPECT_THAT(WithSession("s"), ElementsAre("a"));
  EXPECT_THAT(WithSession("t"), ElementsAre("b"));
  registry_.Apply(Holding("a", {}), {}, a);
  EXPECT_THAT(WithSession("s"), IsEmpty());
}

TEST_F(WorkerRegistryTest, LostOrRestartedWorkerHasNoSessions) {
  Worker* const a = Join(Holding("a", {{"1", "s"}}));
  Worker* const b = Join(Holding("b", {{"2", "s"}}));
  registry_.MarkLost(a);
  EXPECT_THAT(WithSession("s"), ElementsAre("b"));
  registry_.Disconnect(b);
  // The worker may return with what it holds.
  EXPECT_THAT(WithSession("s"), ElementsAre("b"));
  Join(Holding("b", {{"3", "t"}}, 2));
  EXPECT_THAT(WithSession("s"), IsEmpty());
  EXPECT_THAT(WithSession("t"), ElementsAre("b"));
  Join(Holding("a", {{"1", "s"}}));
  EXPECT_THAT(WithSession("s"), ElementsAre("a"));
  registry_.MarkLost(a);
  EXPECT_THAT(registry_.Forget(absl::Hours(1000)), ElementsAre("a"));
  EXPECT_THAT(WithSession("s"), IsEmpty());
}

TEST_F(WorkerRegistryTest, RemovedWorkerIsInNoIndex) {
  v1::WorkerState state = State("a", {"g"});
  *state.mutable_sessions() = Holding("a", {{"1", "s"}}).sessions();
  Worker* const a = Join(state);
  Worker* const b = Join(State("b", {"g"}));
  registry_.Remove(a);
  EXPECT_EQ(registry_.Find("a"), nullptr);
  EXPECT_EQ(registry_.Find("b"), b);
  EXPECT_THAT(With("g"), ElementsAre("b"));
  EXPECT_THAT(WithSession("s"), IsEmpty());
  EXPECT_THAT(registry_.Forget(absl::Hours(1000)), IsEmpty());
}

TEST_F(WorkerRegistryTest, OnlyWhatIsNewIsUntold) {
  Worker* const worker = Join(State("a", {"g", "h"}));
  EXPECT_THAT(worker->load.untold, UnorderedElementsAre("g", "h"));
  worker->load.untold.clear();
  registry_.Apply(State("a", {"g", "h", "i"}), {}, worker);
  EXPECT_THAT(worker->load.untold, UnorderedElementsAre("i"));
  registry_.Apply(State("a", {"g", "h"}), {}, worker);
  EXPECT_THAT(worker->load.untold, IsEmpty());
  // On another stream, nothing was sent yet.
  registry_.Disconnect(worker);
  Join(State("a", {"g"}));
  EXPECT_THAT(worker->load.untold, UnorderedElementsAre("g"));
}

TEST_F(WorkerRegistryTest, ContentsAreSortedOnceForEachReport) {
  v1::WorkerState state = State("w0", {});
  const auto add = [&](const char* tenant, uint64_t size) {
    v1::HeldContent* const content = state.add_contents();
    content->set_tenant(tenant);
    content->set_hash_high(size);
    content->set_size_bytes(size);
  };
  add("red", 1);
  add("red", 3);
  add("blue", 2);
  Worker* const worker = Join(state);
  const auto sizes = [&](const char* tenant) {
    std::vector<uint64_t> sizes;
    for (const ContentKey& key : worker->ContentsBySize(tenant)) {
      sizes.push_back(key.second);
    }
    return sizes;
  };
  EXPECT_THAT(sizes("red"), ElementsAre(3, 1));
  EXPECT_THAT(sizes("green"), IsEmpty());
  add("red", 2);
  registry_.Apply(state, absl::ZeroDuration(), worker);
  EXPECT_THAT(sizes("red"), ElementsAre(3, 2, 1));
  registry_.MarkLost(worker);
  EXPECT_THAT(sizes("red"), IsEmpty());
}

}  // namespace
}  // namespace djinn::coordinator
