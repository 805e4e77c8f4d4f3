#include "coordinator/ctl/explanation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/ctl/detail.h"
#include "coordinator/ctl/lineage.h"
#include "coordinator/ctl/reports.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

// Three digits distinguish candidates.
std::string Number(double value) { return absl::StrFormat("%.3g", value); }

std::string Link(const v1::PlacementTerms& terms) {
  const double rate = terms.link_bytes_per_second();
  if (!(rate > 0)) return "-";
  return absl::StrCat(FormatBytes(static_cast<uint64_t>(rate)), "/s",
                      terms.link_measured() ? " (measured)" : "");
}

std::string Candidates(const v1::PlacementDecision& decision) {
  std::vector<Row> rows = {{"WORKER", "SCORE", "QUEUE", "MISSING", "TRANSFER",
                            "LINK", "COMPUTE", "FACTOR", "COST", "LOAD",
                            "DROPPED"}};
  for (const v1::PlacementCandidate& worker : decision.candidates()) {
    const v1::PlacementTerms& terms = worker.terms();
    const bool dropped = !worker.dropped_by().empty();
    const bool chosen = worker.worker_id() == decision.worker_id();
    rows.push_back(
        {absl::StrCat(worker.worker_id(), chosen ? " *" : "",
                      worker.holder() ? " (holder)" : ""),
         dropped ? "-" : Number(worker.score()),
         absl::StrCat(Number(terms.queue_seconds()), "s"),
         FormatBytes(terms.missing_bytes()),
         absl::StrCat(Number(terms.transfer_seconds()), "s"), Link(terms),
         absl::StrCat(Number(terms.compute_seconds()), "s"),
         Number(terms.compute_factor()), Number(terms.cost()),
         Number(terms.load()),
         dropped ? absl::StrCat(worker.dropped_by(), ": ", worker.drop_reason())
                 : "-"});
  }
  return FormatTable(rows);
}

std::string Describe(const v1::PlacementDecision& decision) {
  return absl::StrCat(
      FormatTable({{"policy", absl::StrCat(decision.policy(), ", the ",
                                           decision.policy_source(), "'s")},
                   {"asked", FormatBytes(decision.asked_bytes())},
                   {"phase", Name(decision.phase())},
                   {"decided",
                    absl::StrCat(
                        FormatDuration(decision.age()), " ago, looking at ",
                        decision.looked_at(), " of ", decision.worker_count(),
                        decision.worker_count() == 1 ? " worker" : " workers")},
                   {"chosen", decision.worker_id().empty()
                                  ? "none"
                                  : absl::StrCat(decision.worker_id(), ": ",
                                                 decision.reason())}}),
      decision.candidates().empty() ? "" : Candidates(decision));
}

std::string Describe(const v1::PlacementGate& gate) {
  return FormatTable({{"held by", gate.reason()},
                      {"because", OrDash(gate.message())},
                      {"until", OrDash(gate.unblocked_by())}});
}

// Returns the most critical values that move in every run; -o json shows all of
// them.
std::string Transfers(const v1::StagePlan& plan) {
  constexpr int kShown = 5;
  if (plan.transfers().empty()) return "";
  const auto worker_of = [&](uint32_t member) {
    for (const v1::StagePlan::Stage& stage : plan.stages()) {
      if (stage.member() == member) return stage.worker_id();
    }
    return absl::StrCat("member ", member);
  };
  std::vector<Row> rows = {
      {"MOVES", "FROM", "TO", "BYTES", "TRANSFER", "REMAINING"}};
  for (const v1::StagePlan::Transfer& transfer : plan.transfers()) {
    if (rows.size() > kShown) break;
    rows.push_back({absl::StrCat("slot ", transfer.slot()),
                    worker_of(transfer.from_member()),
                    worker_of(transfer.to_member()),
                    FormatBytes(transfer.size_bytes()),
                    absl::StrCat(Number(transfer.seconds()), "s"),
                    absl::StrCat(Number(transfer.remaining_seconds()), "s")});
  }
  const int more = plan.transfers_size() - kShown;
  return absl::StrCat(FormatTable(rows),
                      more > 0 ? absl::StrCat("and ", more, " more\n") : "");
}

std::string Describe(const v1::StagePlan& plan) {
  const std::string of =
      absl::StrCat("stages of graph ", plan.fingerprint().substr(0, 12));
  if (plan.stages().empty()) {
    return FormatTable({{of, absl::StrCat("none: ", plan.problem())}});
  }
  std::vector<Row> rows = {
      {"STAGE", "WORKER", "NODES", "KEEPS", "TAKES", "COMPUTE", "TRANSFER"}};
  for (int i = 0; i < plan.stages_size(); ++i) {
    const v1::StagePlan::Stage& stage = plan.stages(i);
    rows.push_back(
        {absl::StrCat(i), stage.worker_id(), absl::StrCat(stage.node_count()),
         FormatBytes(stage.weight_bytes()), FormatBytes(stage.input_bytes()),
         absl::StrCat(Number(stage.compute_seconds()), "s"),
         absl::StrCat(Number(stage.transfer_seconds()), "s")});
  }
  return absl::StrCat(of, ", ", Number(plan.alone_seconds()),
                      "s on its first worker alone\n", FormatTable(rows),
                      Transfers(plan));
}

std::string Describe(const v1::BatchPlan& plan) {
  const std::string of =
      absl::StrCat("batch of graph ", plan.fingerprint().substr(0, 12));
  if (plan.parts().empty()) {
    return FormatTable({{of, absl::StrCat("whole: ", plan.problem())}});
  }
  const bool micro_batches = plan.parts(0).worker_id().empty();
  std::vector<Row> rows = {
      {"PART", "WORKER", "ROWS", "TAKES", "GIVES", "COMPUTE", "TRANSFER"}};
  for (int i = 0; i < plan.parts_size(); ++i) {
    const v1::BatchPlan::Part& part = plan.parts(i);
    rows.push_back({absl::StrCat(i),
                    micro_batches ? "all stages" : part.worker_id(),
                    absl::StrCat(part.rows()),
                    micro_batches ? "-" : FormatBytes(part.input_bytes()),
                    micro_batches ? "-" : FormatBytes(part.output_bytes()),
                    absl::StrCat(Number(part.compute_seconds()), "s"),
                    absl::StrCat(Number(part.transfer_seconds()), "s")});
  }
  return absl::StrCat(
      of, ", ", plan.rows(), " rows, ", FormatBytes(plan.weight_bytes()),
      " of weights ", micro_batches ? "in all" : "on each", "; ",
      Number(plan.alone_seconds()), "s on its first worker alone",
      plan.stage_seconds() > 0
          ? absl::StrCat(", ", Number(plan.stage_seconds()), "s in ",
                         micro_batches ? "micro-batches" : "stages")
          : "",
      "\n", FormatTable(rows));
}

std::string Describe(const v1::LostLease& lost) {
  return absl::StrCat("lease ", lost.lease_id(), " at ", lost.worker_id(), ", ",
                      FormatDuration(lost.age()), " ago, ", lost.reason(),
                      lost.for_tenant().empty()
                          ? ""
                          : absl::StrCat(" for tenant ", lost.for_tenant()),
                      "; ", FormatDuration(lost.lost()), " of device time");
}

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
    case v1::RUN_GATE_BATCH:
      return "runs to share products with";
    case v1::RUN_GATE_CREDIT:
      return "credit";
    case v1::RUN_GATE_BYTES:
      return "uploads of its client";
    case v1::RUN_GATE_CONTENT:
      return "contents from the worker's disk";
    case v1::RUN_GATE_VALUE:
      return "values from other workers";
    case v1::RUN_GATE_GRAPH:
      return "a graph whose plan was gone";
    case v1::RUN_GATE_ROOM:
      return "memory that runs beside it held";
    case v1::RUN_GATE_REPLIES:
      return "its client to take replies";
    case v1::RUN_GATE_PLAN:
      return "plans that were made";
    default:
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
  std::vector<Row> rows = {
      {"PREEMPTED BY", "TENANT", "REASON", "COUNT", "TIME"}};
  for (const v1::RunPreemption& by : run.preemptions()) {
    rows.push_back({by.session_id(), by.tenant(), by.reason(),
                    absl::StrCat(by.count()), FormatShortDuration(by.time())});
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

// Says for a completed run whether it met its deadline.
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

std::string DescribeDevice(const v1::DeviceExplanation& device) {
  std::string text =
      absl::StrCat("\nvirtual device ",
                   DeviceText(device.virtual_device(), device.member()));
  if (device.lease_id().empty()) {
    absl::StrAppend(&text, ": no lease");
  } else {
    absl::StrAppend(&text, ": lease ", device.lease_id(), ", ",
                    v1::LeaseInfo::State_Name(device.state()));
  }
  if (device.has_waited()) {
    absl::StrAppend(&text, "; waits for ", FormatDuration(device.waited()),
                    ", refused in ", FormatDuration(device.refused_in()));
  }
  if (device.place_in_line() > 0) {
    absl::StrAppend(&text, "; place ", device.place_in_line(), " of ",
                    device.line_length(), " in line");
  }
  absl::StrAppend(&text, "\n");
  if (device.has_gate()) absl::StrAppend(&text, Describe(device.gate()));
  if (device.has_lost_lease()) {
    absl::StrAppend(&text,
                    FormatTable({{"lost", Describe(device.lost_lease())}}));
  }
  if (device.has_migration()) {
    absl::StrAppend(
        &text, FormatTable({{"moved", DescribeMigration(device.migration())}}));
  }
  if (device.has_recovery()) {
    absl::StrAppend(
        &text,
        FormatTable({{"recovered", DescribeRecovery(device.recovery())}}));
  }
  if (device.has_yielded()) {
    absl::StrAppend(
        &text,
        FormatTable({{"runs yielded", DescribeYielded(device.yielded())}}));
  }
  if (device.has_stages()) absl::StrAppend(&text, Describe(device.stages()));
  if (device.has_batch()) absl::StrAppend(&text, Describe(device.batch()));
  absl::StrAppend(&text, device.has_decision()
                             ? Describe(device.decision())
                             : "the decision is not known here\n");
  return text;
}

std::string Explain(const v1::SessionExplanation& explanation,
                    const v1::SessionInfo& session) {
  std::vector<Row> rows = {
      {"session", explanation.session_id()},
      {"tenant", explanation.tenant()},
      {"policy", absl::StrCat(explanation.policy(), ", the ",
                              explanation.policy_source(), "'s")},
      {"priority", DescribePriority(session.urgency())}};
  const v1::SessionUse& use = session.use();
  if (use.model_count() > 0 || use.refused_models() > 0) {
    rows.push_back({"models", DescribeModels(use)});
  }
  std::string text = FormatTable(rows);
  for (const v1::DeviceExplanation& device : explanation.devices()) {
    absl::StrAppend(&text, DescribeDevice(device));
  }
  return text;
}

std::string Explain(const v1::TenantExplanation& explanation) {
  std::vector<Row> head = {
      {"tenant", explanation.tenant()},
      {"policy", absl::StrCat(explanation.policy(), ", the ",
                              explanation.policy_source(), "'s")}};
  if (explanation.has_queue_stop()) {
    head.push_back({"queue", DescribeQueue(true, explanation.queue_stop())});
  }
  for (const v1::ResourceQuota& quota : explanation.quotas()) {
    head.push_back(
        {absl::StrCat("quota of ", quota.resource()), DescribeQuota(quota)});
  }
  head.push_back({"held devices", absl::StrCat(explanation.held_size())});
  std::string text = FormatTable(head);
  if (explanation.held_size() > 0) {
    std::vector<Row> rows = {{"SESSION", "DEVICE", "HELD BY", "UNTIL"}};
    for (const v1::TenantExplanation::Held& held : explanation.held()) {
      rows.push_back({held.session_id(), absl::StrCat(held.virtual_device()),
                      held.gate().reason(),
                      OrDash(held.gate().unblocked_by())});
    }
    absl::StrAppend(&text, "\n", FormatTable(rows));
  }
  std::vector<Row> rows = {{"TENANT", "SESSIONS", "LEASES", "WAITING", "WEIGHT",
                            "FAIR", "DEVICE-TIME", "SHARE", "BYTES"}};
  for (const v1::TenantStanding& standing : explanation.standings()) {
    const bool own = standing.tenant() == explanation.tenant();
    rows.push_back(
        {absl::StrCat(standing.tenant(), own ? " *" : ""),
         absl::StrCat(standing.session_count()),
         absl::StrCat(standing.lease_count()),
         absl::StrCat(standing.waiting_count()), Number(standing.weight()),
         absl::StrFormat("%.1f%%", 100 * standing.fair_share()),
         FormatDuration(standing.used().device_time()),
         absl::StrFormat("%.1f%%", 100 * standing.device_time_share()),
         FormatBytes(standing.used().bytes())});
  }
  return absl::StrCat(text, "\n", FormatTable(rows));
}

std::string Explain(const v1::TryPlacementResponse& response) {
  return absl::StrCat(response.has_gate() ? Describe(response.gate()) : "",
                      Describe(response.decision()));
}

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
  if (run.yield_count() > 0) {
    rows.push_back(
        {"yielded",
         absl::StrCat(Times(run.yield_count()), ", for ",
                      FormatShortDuration(run.yielded_for()), " in all")});
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
