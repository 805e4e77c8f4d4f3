#include "coordinator/admin/message_wait.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/proto_duration.h"

namespace djinn::coordinator {
namespace {

std::string Text(const google::protobuf::Duration& duration) {
  return absl::FormatDuration(
      absl::Trunc(FromProtoDuration(duration), absl::Milliseconds(1)));
}

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
