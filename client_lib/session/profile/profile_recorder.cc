#include "client_lib/session/profile/profile_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/session/model/debug_flags.h"
#include "common/base/error.h"
#include "djinn/v1/execution.pb.h"

namespace djinn {
namespace {

absl::Duration FromWorker(uint64_t nanoseconds) {
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds));
}

ExecutionPath FromProto(v1::ExecutionPath way) {
  switch (way) {
    case v1::EXECUTION_PATH_PACKED:
      return ExecutionPath::kPacked;
    case v1::EXECUTION_PATH_FAILED:
      return ExecutionPath::kFailed;
    default:
      return ExecutionPath::kPlain;
  }
}

// The start of the thread's request. It is valid only in the profile with the
// number `profile`.
struct Beginning {
  uint64_t profile = 0;
  absl::Duration at;
};
thread_local Beginning beginning;

}  // namespace

ProfileRecorder& ProfileRecorder::Global() {
  static ProfileRecorder* const recorder = new ProfileRecorder;
  return *recorder;
}

absl::Status ProfileRecorder::Begin(Clock* clock) {
  MutexLock lock(&mu_);
  if (running_) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "PROFILE_RUNNING",
                     "this process is being profiled already");
  }
  running_ = true;
  clock_ = clock;
  profile_ = {};
  operators_.clear();
  nodes_ = 0;
  number_.fetch_add(1, std::memory_order_relaxed);
  debug::Set(debug::kProfile, debug::kProfile);
  return absl::OkStatus();
}

void ProfileRecorder::Stop() { debug::Set(debug::kProfile, 0); }

Profile ProfileRecorder::End() {
  Stop();
  MutexLock lock(&mu_);
  running_ = false;
  last_ = profile_.statistics;
  Profile profile = std::exchange(profile_, {});
  // Sorts operators by descending total time, and adapts the nodes' indices.
  std::vector<uint32_t> order(profile.operators.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return profile.operators[a].total > profile.operators[b].total;
  });
  std::vector<uint32_t> place(order.size());
  std::vector<OperatorProfile> sorted;
  for (const uint32_t index : order) {
    place[index] = static_cast<uint32_t>(sorted.size());
    sorted.push_back(std::move(profile.operators[index]));
  }
  profile.operators = std::move(sorted);
  for (RunProfile& run : profile.runs) {
    for (NodeProfile& node : run.nodes) {
      node.operator_index = place[node.operator_index];
    }
  }
  return profile;
}

void ProfileRecorder::BeginRequest() {
  const uint64_t number = number_.load(std::memory_order_relaxed);
  if (beginning.profile == number) return;
  beginning = {number, clock_.load()->Monotonic()};
}

absl::Duration ProfileRecorder::TakeBeginning(absl::Duration now) {
  const Beginning taken = std::exchange(beginning, {});
  return taken.profile == number_.load(std::memory_order_relaxed)
             ? std::min(taken.at, now)
             : now;
}

void ProfileRecorder::AddRequest(const RequestProfile& request) {
  MutexLock lock(&mu_);
  if (!running_) return;
  ProfileStatistics& sums = profile_.statistics;
  sums.capture += request[Stage::kCapture];
  sums.schedule += request[Stage::kEncode] + request[Stage::kClientQueue] +
                   request[Stage::kAdmission] + request[Stage::kWorkerQueue] +
                   request[Stage::kBind];
  if (profile_.requests.size() < limits_.requests) {
    profile_.requests.push_back(request);
  } else {
    ++profile_.dropped_requests;
  }
}

absl::Status ProfileRecorder::Check(const v1::ProfileReport& report) {
  const auto bad = [](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("a profile report with ", what));
  };
  for (const v1::RunTimes& run : report.runs()) {
    if (run.looked_up() > run.bound() || run.bound() > run.started() ||
        run.started() > run.ended() || run.ended() > INT64_MAX) {
      return bad("a run whose stages are not in order");
    }
    const v1::NodeTimes& nodes = run.nodes();
    const int count = nodes.took_size();
    if (nodes.operators_size() != count || nodes.began_size() != count ||
        nodes.ways_size() != count) {
      return bad("lists of nodes that differ in length");
    }
    const uint64_t span = run.ended() - run.started();
    for (int i = 0; i < count; ++i) {
      if (nodes.operators(i) >=
          static_cast<uint32_t>(report.operators_size())) {
        return bad("an operator that it does not name");
      }
      if (nodes.began(i) > span || nodes.took(i) > span - nodes.began(i)) {
        return bad("a node outside its run");
      }
    }
  }
  return absl::OkStatus();
}

void ProfileRecorder::AddReport(int device, const std::string& worker_id,
                                const v1::ProfileReport& report,
                                const ClockRelation& clocks,
                                absl::Duration arrived) {
  MutexLock lock(&mu_);
  if (!running_) return;
  if (profile_.workers.size() <= static_cast<size_t>(device)) {
    profile_.workers.resize(device + 1);
  }
  profile_.workers[device] = worker_id;
  if (!report.nodes_untimed().empty()) {
    Remark(absl::StrCat("no node of device ", device, " was timed: worker ",
                        worker_id, ": ", report.nodes_untimed()));
  }
  profile_.dropped_runs += report.dropped_runs();
  profile_.dropped_nodes += report.dropped_nodes();
  if (report.runs().empty()) return;
  absl::Duration shift;  // added to the worker's times
  if (clocks.known()) {
    shift = clocks.ToOurs(absl::ZeroDuration());
    profile_.clock_uncertainty =
        std::max(profile_.clock_uncertainty, clocks.uncertainty());
  } else {
    shift = arrived - FromWorker(report.runs().rbegin()->ended());
    Remark(absl::StrCat("nothing was read from device ", device,
                        ": its place on the time line is not known"));
  }
  for (const v1::RunTimes& times : report.runs()) {
    const absl::Duration started = FromWorker(times.started()) + shift;
    const absl::Duration ended = FromWorker(times.ended()) + shift;
    const bool fast = times.mode() == v1::EXECUTION_MODE_FAST;
    profile_.statistics.execution += ended - started;
    const v1::NodeTimes& nodes = times.nodes();
    const bool kept = profile_.runs.size() < limits_.runs;
    RunProfile unkept;
    RunProfile& run = kept ? profile_.runs.emplace_back() : unkept;
    if (!kept) ++profile_.dropped_runs;
    run.device = device;
    run.sequence = times.sequence();
    run.fast = fast;
    run.looked_up = FromWorker(times.looked_up()) + shift;
    run.bound = FromWorker(times.bound()) + shift;
    run.started = started;
    run.ended = ended;
    for (int i = 0; i < nodes.took_size(); ++i) {
      const absl::Duration took = FromWorker(nodes.took(i));
      const uint32_t index =
          IndexOf({report.operators(static_cast<int>(nodes.operators(i))), fast,
                   FromProto(nodes.ways(i))});
      ++profile_.operators[index].calls;
      profile_.operators[index].total += took;
      // The table also counts nodes that do not fit into the time line.
      if (kept && nodes_ < limits_.nodes) {
        ++nodes_;
        run.nodes.push_back(
            {index, started + FromWorker(nodes.began(i)), took});
      } else {
        ++profile_.dropped_nodes;
      }
    }
  }
}

uint32_t ProfileRecorder::IndexOf(const OperatorKey& key) {
  const auto [found, added] = operators_.try_emplace(
      key, static_cast<uint32_t>(profile_.operators.size()));
  if (added) {
    profile_.operators.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  }
  return found->second;
}

void ProfileRecorder::Remark(std::string remark) {
  if (std::find(profile_.remarks.begin(), profile_.remarks.end(), remark) ==
      profile_.remarks.end()) {
    profile_.remarks.push_back(std::move(remark));
  }
}

ProfileStatistics ProfileRecorder::statistics() const {
  MutexLock lock(&mu_);
  return running_ ? profile_.statistics : last_;
}

}  // namespace djinn
