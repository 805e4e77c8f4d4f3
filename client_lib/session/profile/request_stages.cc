#include "client_lib/session/profile/request_stages.h"

#include <algorithm>
#include <cstdint>

#include "djinn/v1/execution.pb.h"

namespace djinn {
namespace {

constexpr absl::Duration kNone = absl::ZeroDuration();

absl::Duration FromWorker(uint64_t nanoseconds) {
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds));
}

}  // namespace

absl::StatusOr<WorkerTimes> TimesOf(const v1::ReplyTiming& timing) {
  uint64_t left = timing.sent() - timing.received();
  bool fits = timing.received() <= timing.sent() && timing.sent() <= INT64_MAX;
  for (const uint64_t part :
       {timing.decode(), timing.admission(), timing.bind(), timing.execute(),
        timing.reply()}) {
    fits &= part <= left;
    left -= part;
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        "the parts of a reply's timing do not fit into it");
  }
  return WorkerTimes{
      FromWorker(timing.received()), FromWorker(timing.sent()),
      FromWorker(timing.decode()),   FromWorker(timing.admission()),
      FromWorker(timing.bind()),     FromWorker(timing.execute()),
      FromWorker(timing.reply())};
}

std::array<absl::Duration, kStageCount> StagesOf(const ReadMarks& marks,
                                                 const ClockRelation& clocks,
                                                 absl::Duration ended) {
  std::array<absl::Duration, kStageCount> stages = {};
  const auto at = [&stages](Stage stage) -> absl::Duration& {
    return stages[static_cast<size_t>(stage)];
  };
  const absl::Duration asked = *marks.asked;
  const absl::Duration handed = *marks.handed;
  const WorkerTimes& timing = *marks.timing;

  at(Stage::kCapture) = asked - marks.began;
  if (handed > asked) {
    at(Stage::kEncode) = std::clamp(
        marks.encoding_after - marks.encoding_before, kNone, handed - asked);
    at(Stage::kClientQueue) = handed - asked - at(Stage::kEncode);
  }

  // The time between hand-over and arrival. The time on the worker exceeds this
  // only if the clocks run at different speeds.
  const absl::Duration away = std::max(marks.arrived - handed, kNone);
  const absl::Duration claimed = timing.sent - timing.received;
  const absl::Duration there = std::min(claimed, away);
  const double scale =
      claimed > kNone ? absl::FDivDuration(there, claimed) : 0.0;
  at(Stage::kDecode) = timing.decode * scale;
  at(Stage::kAdmission) = timing.admission * scale;
  at(Stage::kBind) = timing.bind * scale;
  at(Stage::kExecute) = timing.execute * scale;
  at(Stage::kReply) = timing.reply * scale;
  at(Stage::kWorkerQueue) =
      std::max(there - at(Stage::kDecode) - at(Stage::kAdmission) -
                   at(Stage::kBind) - at(Stage::kExecute) - at(Stage::kReply),
               kNone);
  absl::Duration up = (away - there) / 2;
  if (clocks.known()) {
    up = clocks.ToOurs(timing.received) - handed;
  }
  at(Stage::kTransit) = std::clamp(up, kNone, away - there);
  at(Stage::kTransitBack) = away - there - at(Stage::kTransit);

  // Moves what passed before the program asked to capture, in order of time.
  absl::Duration before = std::clamp(asked - handed, kNone, away);
  for (const Stage stage :
       {Stage::kTransit, Stage::kDecode, Stage::kWorkerQueue, Stage::kAdmission,
        Stage::kBind, Stage::kExecute, Stage::kReply, Stage::kTransitBack}) {
    const absl::Duration cut = std::min(before, at(stage));
    at(stage) -= cut;
    before -= cut;
  }
  at(Stage::kHandOver) = ended - std::max({marks.arrived, asked, handed});
  return stages;
}

void ClockRelation::Add(absl::Duration sent, absl::Duration received_there,
                        absl::Duration sent_there, absl::Duration received) {
  const absl::Duration round_trip =
      (received - sent) - (sent_there - received_there);
  const absl::Duration offset =
      ((received_there - sent) + (sent_there - received)) / 2;
  const Sample sample{std::max(round_trip, absl::ZeroDuration()), offset};
  if (++count_ > kWindow / 2) {
    best_ = next_;
    next_.reset();
    count_ = 1;
  }
  Keep(sample, &best_);
  Keep(sample, &next_);
}

}  // namespace djinn
