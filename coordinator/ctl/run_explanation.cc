#include "coordinator/ctl/run_explanation.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/ctl/explanation.h"
#include "coordinator/ctl/names.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

constexpr size_t kShownFingerprint = 16;

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

std::string Times(uint64_t count) {
  return count == 1 ? "once" : absl::StrCat(count, " times");
}

std::string WaitedFor(v1::RunGate gate) {
  switch (gate) {
    case v1::RUN_GATE_SESSION:
      return "messages of its session before it";
    case v1::RUN_GATE_TENANT:
      return "turns of other sessions of its tenant";
    case v1::RUN_GATE_OTHER_TENANTS:
      return "turns of other tenants";
    case v1::RUN_GATE_WORKER:
      return "the worker itself";
    case v1::RUN_GATE_COMPANY:
      return "runs to share products with";
    case v1::RUN_GATE_CREDIT:
      return "credit";
    case v1::RUN_GATE_BYTES:
      return "uploads of its client";
    case v1::RUN_GATE_CONTENT:
      return "contents from the worker's disk";
    case v1::RUN_GATE_VALUE:
      return "values from other workers";
    case v1::RUN_GATE_STRUCTURE:
      return "a structure whose plan was gone";
    case v1::RUN_GATE_ROOM:
      return "memory that runs beside it held";
    case v1::RUN_GATE_REPLIES:
      return "its client to take replies";
    case v1::RUN_GATE_PLAN:
      return "plans that were made";
    default:
      // A worker of a newer build says more.
      return absl::StrCat("gate ", gate);
  }
}

std::string Graph(const v1::RunRecord& run) {
  std::string text = OrDash(run.fingerprint().substr(0, kShownFingerprint));
  if (run.size() != 0) absl::StrAppend(&text, " at size ", run.size());
  return run.fast() ? absl::StrCat(text, ", fast") : text;
}

std::string Waits(const v1::RunRecord& run) {
  std::vector<v1::RunWait> waits(run.waits().begin(), run.waits().end());
  if (waits.empty()) return "";
  std::stable_sort(waits.begin(), waits.end(),
                   [](const v1::RunWait& a, const v1::RunWait& b) {
                     return Seconds(a.time()) > Seconds(b.time());
                   });
  const double all = Seconds(run.waited());
  std::vector<Row> rows = {{"WAITED FOR", "TIME", "SHARE"}};
  for (const v1::RunWait& wait : waits) {
    rows.push_back(
        {WaitedFor(wait.gate()), FormatShortDuration(wait.time()),
         all > 0 ? absl::StrFormat("%.1f%%", 100 * Seconds(wait.time()) / all)
                 : "-"});
  }
  return absl::StrCat("\n", FormatTable(rows));
}

std::string Preemptions(const v1::RunRecord& run) {
  if (run.preemptions().empty()) return "";
  std::vector<Row> rows = {{"WENT FIRST", "TENANT", "BY", "COUNT", "TIME"}};
  for (const v1::RunPreemption& first : run.preemptions()) {
    rows.push_back({first.session_id(), first.tenant(), first.reason(),
                    absl::StrCat(first.count()),
                    FormatShortDuration(first.time())});
  }
  return absl::StrCat("\n", FormatTable(rows));
}

std::string Companions(const v1::RunRecord& run) {
  return absl::StrCat(
      run.shared_products(),
      run.shared_products() == 1 ? " product, with " : " products, with ",
      absl::StrJoin(run.companions(), ", ",
                    [](std::string* out, const v1::RunCompanion& companion) {
                      absl::StrAppend(out, companion.session_id(),
                                      " of tenant ", companion.tenant());
                    }));
}

std::string Failure(const v1::RunFailure& failure) {
  std::string where;
  if (!failure.operator_name().empty()) {
    where = absl::StrCat(" in ", failure.operator_name());
    if (failure.has_node()) {
      absl::StrAppend(&where, ", node ", failure.node());
    }
  }
  return absl::StrCat(failure.reason(), where, ": ", failure.message());
}

// Of a run that is over, whether it was in time for its deadline.
std::string Deadline(const v1::RunRecord& run) {
  std::string text = absl::StrCat(FormatShortDuration(run.deadline()),
                                  " after it was received");
  if (run.state() != v1::RunRecord::COMPLETED &&
      run.state() != v1::RunRecord::FAILED) {
    return text;
  }
  const double took = Seconds(run.waited()) + Seconds(run.served());
  const double late = took - Seconds(run.deadline());
  return absl::StrCat(text, late > 0 ? ": missed" : ": attained");
}

}  // namespace

std::string ShowRuns(const v1::ListRunsResponse& runs) {
  std::vector<Row> rows = {Header(v1::RunInfo())};
  for (const v1::RunInfo& run : runs.runs()) rows.push_back(Cells(run));
  std::string text = FormatTable(rows);
  if (runs.more_waiting() > 0) {
    absl::StrAppend(&text, "and ", runs.more_waiting(), " more that wait\n");
  }
  for (const v1::SilentWorker& worker : runs.silent_workers()) {
    absl::StrAppend(&text, worker.reason(), ": ", worker.message(), "\n");
  }
  return text;
}

std::string Explain(const v1::RunExplanation& explanation) {
  const v1::RunInfo& info = explanation.run();
  const v1::RunRecord& run = info.record();
  std::vector<Row> rows = {
      {"run", absl::StrCat(info.session_id(), "/", info.run())},
      {"tenant", info.tenant()},
      {"worker", info.worker_id()},
      {"graph", Graph(run)},
      {"phase", Name(run.phase())},
      {"lane", absl::StrCat(run.lane())},
      {"state", v1::RunRecord::State_Name(run.state())},
      {"received", absl::StrCat(FormatShortDuration(run.age()), " ago")},
      {"waited", FormatShortDuration(run.waited())},
      {"served", run.has_served() ? FormatShortDuration(run.served()) : "-"},
      {"device time", FormatShortDuration(run.device_time())}};
  if (run.has_planned()) {
    rows.push_back({"planning", FormatShortDuration(run.planned())});
  }
  if (run.has_deadline()) rows.push_back({"deadline", Deadline(run)});
  if (run.gave_way_count() > 0) {
    rows.push_back(
        {"gave way",
         absl::StrCat(Times(run.gave_way_count()), ", for ",
                      FormatShortDuration(run.gave_way()), " in all")});
  }
  if (run.shared_products() > 0) rows.push_back({"shared", Companions(run)});
  if (run.has_failure()) rows.push_back({"failure", Failure(run.failure())});
  if (info.has_gate()) {
    rows.push_back({"held by", info.gate().reason()});
    rows.push_back({"because", OrDash(info.gate().message())});
    rows.push_back({"until", OrDash(info.gate().unblocked_by())});
  }
  return absl::StrCat(FormatTable(rows), Waits(run), Preemptions(run),
                      DescribeDevice(explanation.device()));
}

absl::StatusOr<v1::ExplainRunRequest> ParseRun(absl::string_view text) {
  const size_t slash = text.find('/');
  if (slash == 0 || slash == absl::string_view::npos ||
      slash + 1 == text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" names no run: expected SESSION/RUN, such "
                     "as 1a2b3c4d/0:17"));
  }
  v1::ExplainRunRequest request;
  request.set_session_id(std::string(text.substr(0, slash)));
  request.set_run(std::string(text.substr(slash + 1)));
  return request;
}

}  // namespace djinn::ctl
