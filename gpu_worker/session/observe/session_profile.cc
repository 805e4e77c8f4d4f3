#include "gpu_worker/session/observe/session_profile.h"

#include <algorithm>
#include <utility>

namespace djinn::worker {
namespace {

// Converts a time since the clock's start, or between two times.
uint64_t Nanoseconds(absl::Duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(absl::ToInt64Nanoseconds(time), 0));
}

v1::ExecutionPath WayOf(const NodeTime& time) {
  if (time.failed) return v1::EXECUTION_PATH_FAILED;
  switch (time.way) {
    case ExecutionPath::kPlain:
      return v1::EXECUTION_PATH_PLAIN;
    case ExecutionPath::kPacked:
      return v1::EXECUTION_PATH_PACKED;
  }
  return v1::EXECUTION_PATH_UNSPECIFIED;
}

}  // namespace

SessionProfile::Mark SessionProfile::Note() const {
  const absl::Duration now = Now();
  const absl::Duration received = Arrival::Take(clock_).value_or(now);
  return {received, now, stages_.At(received)};
}

v1::ReplyTiming SessionProfile::TimingOf(const Mark& mark) const {
  const absl::Duration now = Now();
  const Stages::Reading spent = stages_.At(now);
  const auto since = [&](Stage stage) {
    return Nanoseconds(spent[stage] - mark.spent[stage]);
  };
  v1::ReplyTiming timing;
  timing.set_received(Nanoseconds(mark.received));
  timing.set_sent(Nanoseconds(now));
  timing.set_admission(since(kAdmission));
  timing.set_bind(since(kBind));
  timing.set_execute(since(kExecute));
  timing.set_reply(since(kReply));
  // Decoding overlaps what the executor did meanwhile, so it counts for at most
  // the time outside the executor's stages.
  const uint64_t waited = timing.sent() - timing.received() -
                          timing.admission() - timing.bind() -
                          timing.execute() - timing.reply();
  timing.set_decode(
      std::min(Nanoseconds(mark.decoded - mark.received), waited));
  return timing;
}

NodeTimer SessionProfile::NewTimer() const {
  return NodeTimer(clock_, nodes_untimed_.empty() ? kMaxNodes - nodes_ : 0);
}

const std::vector<uint32_t>& SessionProfile::OperatorsOf(const Plan& plan) {
  std::vector<uint32_t>& indices = by_fingerprint_[plan.fingerprint()];
  if (!indices.empty()) return indices;
  for (const srg::Operator& op : plan.graph().operators) {
    const auto [found, added] = operators_.try_emplace(
        op.FullName(), static_cast<uint32_t>(report_.operators_size()));
    if (added) report_.add_operators(found->first);
    indices.push_back(found->second);
  }
  return indices;
}

void SessionProfile::AddRun(uint64_t sequence, const Plan& plan,
                            v1::ExecutionMode mode, const RunStages& stages,
                            const NodeTimer& timer) {
  if (nodes_untimed_.empty()) {
    report_.set_dropped_nodes(report_.dropped_nodes() + timer.dropped());
  }
  if (report_.runs_size() >= static_cast<int>(kMaxRuns)) {
    report_.set_dropped_runs(report_.dropped_runs() + 1);
    report_.set_dropped_nodes(report_.dropped_nodes() + timer.times().size());
    return;
  }
  v1::RunTimes* const run = report_.add_runs();
  run->set_sequence(sequence);
  run->set_looked_up(Nanoseconds(stages.looked_up));
  run->set_bound(Nanoseconds(stages.bound));
  run->set_started(Nanoseconds(stages.started));
  run->set_ended(Nanoseconds(stages.ended));
  run->set_mode(mode);
  nodes_ += timer.times().size();
  if (timer.times().empty()) return;
  const std::vector<uint32_t>& operators = OperatorsOf(plan);
  v1::NodeTimes* const nodes = run->mutable_nodes();
  for (const NodeTime& time : timer.times()) {
    nodes->add_operators(
        operators[plan.graph().nodes[time.node].operator_index]);
    nodes->add_began(Nanoseconds(time.began - stages.started));
    nodes->add_took(Nanoseconds(time.ended - time.began));
    nodes->add_ways(WayOf(time));
  }
}

v1::ProfileReport SessionProfile::TakeReport(uint64_t sequence) {
  v1::ProfileReport report = std::exchange(report_, {});
  nodes_ = 0;
  operators_.clear();
  by_fingerprint_.clear();
  report.set_sequence(sequence);
  report.set_nodes_untimed(nodes_untimed_);
  return report;
}

}  // namespace djinn::worker
