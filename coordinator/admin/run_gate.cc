#include "coordinator/admin/run_gate.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/proto_duration.h"

namespace djinn::coordinator {
namespace {

// Returns the duration as text. Rounds it to a unit that suits it, because runs
// take from microseconds to minutes.
std::string Text(const google::protobuf::Duration& duration) {
  const absl::Duration time = FromProtoDuration(duration);
  return absl::FormatDuration(absl::Trunc(time, time < absl::Seconds(1)
                                                    ? absl::Microseconds(1)
                                                    : absl::Milliseconds(1)));
}

// Returns the kind of MessageWait that corresponds to the gate; unspecified if
// none does.
v1::MessageWait::For WaitOf(v1::RunGate gate) {
  switch (gate) {
    case v1::RUN_GATE_TENANT:
    case v1::RUN_GATE_OTHER_TENANTS:
    case v1::RUN_GATE_WORKER:
      return v1::MessageWait::TURN;
    case v1::RUN_GATE_BATCH:
      return v1::MessageWait::BATCH;
    case v1::RUN_GATE_BYTES:
      return v1::MessageWait::BYTES;
    case v1::RUN_GATE_CONTENT:
      return v1::MessageWait::CONTENT;
    case v1::RUN_GATE_VALUE:
      return v1::MessageWait::VALUE;
    case v1::RUN_GATE_GRAPH:
      return v1::MessageWait::GRAPH;
    case v1::RUN_GATE_ROOM:
      return v1::MessageWait::ROOM;
    default:
      return v1::MessageWait::FOR_UNSPECIFIED;
  }
}

struct Held {
  std::string reason;
  // Follows "has waited 1.5s" in the message.
  std::string what;
  std::string unblocked_by;
};

Held HeldBy(v1::RunGate gate, const RunSurroundings& around) {
  switch (gate) {
    case v1::RUN_GATE_SESSION:
      return {"WAITS_FOR_SESSION", "for earlier messages of its session",
              "their execution"};
    case v1::RUN_GATE_PLAN:
      return {"WAITS_FOR_PLAN",
              "for the plan of a graph that its session defined",
              "the worker, which makes it"};
    case v1::RUN_GATE_REPLIES:
      return {"WAITS_FOR_REPLIES",
              "for its client to take replies, of which no more are kept",
              "its client, which takes them"};
    case v1::RUN_GATE_CREDIT:
      return {"OUT_OF_CREDIT",
              absl::StrCat("for credit: tenant ", around.tenant,
                           " has none left for this lease"),
              around.credit_unblocked_by};
    default:
      break;
  }
  // Uses the worker's report if it is about this gate; otherwise only the
  // gate's kind is known.
  v1::MessageWait wait = around.lease->wait();
  const v1::MessageWait::For what = WaitOf(gate);
  if (wait.what() != what) {
    wait.Clear();
    wait.set_what(what);
  }
  WaitTexts texts = TextsOf(wait);
  return {absl::StrCat("WAITS_FOR_", v1::MessageWait::For_Name(what)),
          std::move(texts.what), std::move(texts.unblocked_by)};
}

}  // namespace

bool DescribeRunGate(const v1::RunRecord& run, const RunSurroundings& around,
                     v1::PlacementGate* gate) {
  if (run.state() == v1::RunRecord::IN_SERVICE && run.has_preempted_by()) {
    const v1::RunPreemption& by = run.preempted_by();
    gate->set_reason("YIELDED");
    gate->set_message(absl::StrCat(
        "it has been preempted for ", Text(by.time()), " by session ",
        by.session_id(), " of tenant ", by.tenant(), " (", by.reason(), ")"));
    gate->set_unblocked_by("the end of that turn, after a second as a rule");
    return true;
  }
  if (run.state() != v1::RunRecord::WAITING) return false;
  // A session without credit gets no turn, so it may be reported as waiting for
  // one.
  const bool broke = around.lease->out_of_credit() &&
                     WaitOf(run.gate()) == v1::MessageWait::TURN;
  Held held = HeldBy(broke ? v1::RUN_GATE_CREDIT : run.gate(), around);
  if (held.what.empty()) return false;
  const uint32_t ahead = run.messages_ahead();
  gate->set_reason(std::move(held.reason));
  gate->set_message(absl::StrCat(
      ahead == 0 ? ""
                 : absl::StrCat(ahead, ahead == 1 ? " message" : " messages",
                                " of its session ", ahead == 1 ? "is" : "are",
                                " ahead of it; "),
      ahead == 0 ? "it has waited " : "its session has kept it waiting ",
      Text(run.gate_time()), " ", held.what));
  gate->set_unblocked_by(std::move(held.unblocked_by));
  return true;
}

namespace {

std::string TurnText(const v1::MessageWait& wait) {
  std::string text = "for its turn";
  if (!wait.served_session_id().empty()) {
    absl::StrAppend(&text, ": session ", wait.served_session_id(),
                    " of tenant ", wait.served_tenant(), " is served");
  }
  if (wait.has_ahead()) {
    absl::StrAppend(&text, ", ", Text(wait.ahead()), " of work are ahead");
  }
  return text;
}

}  // namespace

WaitTexts TextsOf(const v1::MessageWait& wait) {
  switch (wait.what()) {
    case v1::MessageWait::TURN:
      return {TurnText(wait),
              "its turn, after those that have had less, or are more urgent"};
    case v1::MessageWait::BYTES:
      return {"for what its client uploads",
              "its client: the bytes, their hash, or a proof of having them"};
    case v1::MessageWait::VALUE: {
      const std::string from = wait.worker_id().empty()
                                   ? "another worker"
                                   : "worker " + wait.worker_id();
      return {"for a value from " + from, from + ", which has it"};
    }
    case v1::MessageWait::GRAPH:
      return {"for a graph whose plan is gone",
              "its client, which sends the graph again"};
    case v1::MessageWait::CONTENT:
      return {"for a content on the worker's disk", "the disk, which is read"};
    case v1::MessageWait::ROOM:
      return {"for memory that runs beside it hold", "the end of these runs"};
    case v1::MessageWait::BATCH:
      return {"for runs of other sessions to share products with",
              "such a run, or the end of the time for which it pays to wait"};
    default:
      return {};
  }
}

bool DescribeWait(const v1::MessageWait& wait, v1::PlacementGate* gate) {
  auto [what, unblocked_by] = TextsOf(wait);
  if (what.empty()) return false;
  gate->set_reason(
      absl::StrCat("WAITS_FOR_", v1::MessageWait::For_Name(wait.what())));
  gate->set_message(absl::StrCat("its next message has waited ",
                                 Text(wait.waited()), " ", what));
  gate->set_unblocked_by(std::move(unblocked_by));
  return true;
}

}  // namespace djinn::coordinator
