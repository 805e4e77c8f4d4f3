#include "coordinator/ctl/explanation.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/ctl/detail.h"
#include "coordinator/ctl/names.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

// Three digits tell one candidate from another.
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

// The most critical of what moves in every run; -o json has all of it.
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
      absl::StrCat("stages of structure ", plan.fingerprint().substr(0, 12));
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
      absl::StrCat("batch of structure ", plan.fingerprint().substr(0, 12));
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
  if (device.has_given_way()) {
    absl::StrAppend(
        &text,
        FormatTable({{"runs gave way", DescribeGivenWay(device.given_way())}}));
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

}  // namespace djinn::ctl
