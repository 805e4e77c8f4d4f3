#include "coordinator/admin/explain.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/admin/lineage.h"
#include "coordinator/admin/run_gate.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/leases/fleet.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/quota/quota.h"
#include "coordinator/cluster/quota/reclaim.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/queue_stops.h"
#include "coordinator/tables/work_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/placement.pb.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/policy.h"
#include "scheduler/placement/terms.h"
#include "scheduler/semantics/cost/meaning.h"

namespace djinn::coordinator::explain {
namespace {

// Most devices of a tenant that are explained as held up.
constexpr int kMaxHeld = 100;
constexpr absl::string_view kQuotaUnblockedBy =
    "sessions that end, or others of the cohort giving quota back";
constexpr absl::string_view kLimitUnblockedBy =
    "a larger limit of the tenant, or asking for less at a time";

void Describe(const scheduler::Terms& terms, v1::PlacementTerms* out) {
  out->set_queue_seconds(terms.queue_seconds);
  out->set_missing_bytes(terms.missing_bytes);
  out->set_transfer_seconds(terms.transfer_seconds);
  out->set_link_bytes_per_second(terms.link_bytes_per_second);
  out->set_link_measured(terms.link_measured);
  out->set_compute_seconds(terms.compute_seconds);
  out->set_compute_factor(terms.compute_factor);
  out->set_cost(terms.cost);
  out->set_load(terms.load);
}

void Describe(const scheduler::Considered& worker,
              v1::PlacementCandidate* out) {
  out->set_worker_id(worker.worker_id);
  out->set_holder(worker.holder);
  Describe(worker.terms, out->mutable_terms());
  out->set_score(worker.score);
  out->set_dropped_by(std::string(worker.dropped_by));
  out->set_drop_reason(worker.drop_reason);
}

void SetGate(const absl::Status& why, absl::string_view unblocked_by,
             v1::PlacementGate* gate) {
  gate->set_reason(ErrorReason(why));
  gate->set_message(std::string(why.message()));
  gate->set_unblocked_by(std::string(unblocked_by));
}

void DescribeDecision(ClusterState& state, const KeptDecision& kept,
                      v1::PlacementDecision* decision)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const scheduler::Decision& made = *kept.decision;
  decision->set_policy(std::string(made.policy));
  decision->set_policy_source(kept.policy_source);
  decision->set_asked_bytes(made.asked_bytes);
  decision->set_phase(static_cast<v1::Phase>(made.phase));
  decision->set_worker_id(made.worker_id);
  decision->set_reason(made.reason);
  for (const scheduler::Considered& worker : made.considered) {
    Describe(worker, decision->add_candidates());
  }
  decision->set_worker_count(static_cast<uint32_t>(made.worker_count));
  decision->set_looked_at(static_cast<uint32_t>(made.looked_at));
  *decision->mutable_age() =
      ToProtoDuration(state.clock->Monotonic() - kept.time);
}

void Explain(ClusterState& state, const PendingLease& pending,
             const std::string& tenant, line::Places* places,
             v1::DeviceExplanation* device)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const absl::Duration now = state.clock->Monotonic();
  *device->mutable_waited() = ToProtoDuration(now - pending.asked);
  *device->mutable_refused_in() =
      ToProtoDuration(std::max(pending.deadline - now, absl::ZeroDuration()));
  if (pending.decision.decision != nullptr) {
    DescribeDecision(state, pending.decision, device->mutable_decision());
  }
  if (pending.ticket != 0) {
    device->set_place_in_line(static_cast<uint32_t>(
        line::PlaceOf(state, pending.ticket, now, places)));
    device->set_line_length(static_cast<uint32_t>(state.queue.line.size()));
  }
  v1::PlacementGate* const gate = device->mutable_gate();
  if (const Lease* lease = state.leases.Find(pending.lease_id)) {
    device->set_lease_id(lease->id);
    device->set_state(v1::LeaseInfo::OFFERED);
    gate->set_reason("WORKER_ACKNOWLEDGEMENT");
    gate->set_message(absl::StrCat("worker ", lease->worker_id,
                                   " has not acknowledged the lease yet"));
    gate->set_unblocked_by(absl::StrCat("a report of ", lease->worker_id));
    return;
  }
  if (ErrorReason(pending.obstacle) == "QUEUE_STOPPED") {
    SetGate(pending.obstacle, ResumeCommand(tenant), gate);
    return;
  }
  if (reclaim::RoomIsOnItsWay(state, pending)) {
    SetGate(pending.obstacle,
            absl::StrCat("a report of ", pending.room.worker_id,
                         ", where others give back what they borrowed"),
            gate);
    return;
  }
  if (!pending.put_off.empty()) {
    SetGate(pending.obstacle, pending.put_off, gate);
    return;
  }
  absl::string_view unblocked_by = kQuotaUnblockedBy;
  if (pending.decision.decision != nullptr) {
    unblocked_by = pending.decision.decision->unblocked_by;
  } else if (WaitsInLine(pending)) {
    unblocked_by = "its turn, after those that wait ahead of it";
  }
  SetGate(pending.obstacle, unblocked_by, gate);
}

void Explain(ClusterState& state, const Lease& lease,
             v1::DeviceExplanation* device)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  v1::LeaseInfo info;
  views::Describe(state, lease, &info);
  device->set_lease_id(lease.id);
  device->set_state(info.state());
  if (info.has_yielded()) *device->mutable_yielded() = info.yielded();
  if (lease.decision.decision != nullptr) {
    DescribeDecision(state, lease.decision, device->mutable_decision());
  }
  if (!lease.out_of_credit) {
    const Worker::Held* const held = state.HeldFor(lease);
    if (held != nullptr && held->wait.has_value() &&
        !DescribeWait(*held->wait, device->mutable_gate())) {
      device->clear_gate();
    }
    return;
  }
  v1::PlacementGate* const gate = device->mutable_gate();
  gate->set_reason("OUT_OF_CREDIT");
  gate->set_message(absl::StrCat("runs wait: tenant ", lease.tenant,
                                 " has no credit left for this lease"));
  gate->set_unblocked_by(CreditUnblockedBy(state, lease));
}

// Adds how the tenant lost the device's last lease. That loss holds the device
// up as long as the device has no other lease.
void Explain(ClusterState& state, const LostLease& lost,
             const std::string& tenant, v1::DeviceExplanation* device)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  v1::LostLease* const out = device->mutable_lost_lease();
  out->set_lease_id(lost.lease_id);
  out->set_worker_id(lost.worker_id);
  out->set_reason(lost.reason);
  out->set_for_tenant(lost.for_tenant);
  *out->mutable_lost() = ToProtoDuration(lost.lost);
  *out->mutable_age() = ToProtoDuration(state.clock->Monotonic() - lost.ended);
  if (!device->lease_id().empty() || device->has_gate()) return;
  v1::PlacementGate* const gate = device->mutable_gate();
  gate->set_reason(lost.reason);
  gate->set_message(absl::StrCat(
      "the lease at worker ", lost.worker_id, " has ended",
      lost.for_tenant.empty() ? ""
                              : absl::StrCat(": tenant ", lost.for_tenant,
                                             " reclaimed its quota")));
  gate->set_unblocked_by(
      state.queue.stops.Find(tenant) != nullptr
          ? ResumeCommand(tenant)
          : "the client, which asks for another one when it uses the device");
}

}  // namespace

std::string CreditUnblockedBy(ClusterState& state, const Lease& lease) {
  const auto tenant = state.tenants->Find(lease.tenant);
  if (tenant == nullptr) return "its tenant in the configuration";
  const CreditLimits& credits = tenant->credits;
  if (const CreditLedger::Account* const account =
          state.billing.ledger.Find(lease.id)) {
    const Use used =
        state.billing.ledger.UsedNow(lease.tenant, credits, state.clock->Now());
    if (credits.device_time_rated &&
        account->billed.device_time >= account->granted.device_time &&
        used.device_time <
            credits.device_time.value_or(absl::InfiniteDuration())) {
      return "time: its quota of device_seconds_per_second grants more";
    }
    if (credits.bytes_rated &&
        account->billed.bytes >= account->granted.bytes &&
        used.bytes < credits.bytes.value_or(UINT64_MAX)) {
      return "time: its quota of bytes_per_second grants more";
    }
  }
  return credits.period != absl::InfiniteDuration()
             ? "the next period of its credits, or more of them"
             : "more credits in the configuration";
}

std::vector<v1::DeviceExplanation> ExplainDevices(ClusterState& state,
                                                  const Session& session,
                                                  line::Places* places) {
  std::map<MemberId, v1::DeviceExplanation> devices;
  for (const auto& [device, pending] : session.devices.pending) {
    Explain(state, pending, session.tenant, places, &devices[device]);
  }
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    if (session.devices.pending.contains(lease->device) || lease->migrating()) {
      continue;
    }
    Explain(state, *lease, &devices[lease->device]);
  }
  for (const auto& [device, lost] : session.devices.lost) {
    Explain(state, lost, session.tenant, &devices[device]);
  }
  for (const Migration& migration : session.devices.migrations) {
    const auto device = devices.find({migration.virtual_device, 0});
    if (device == devices.end()) continue;
    device->second.clear_migration();
    views::Describe(state, migration, device->second.mutable_migration());
  }
  for (const Recovery& recovery : session.devices.recoveries) {
    const auto device = devices.find(
        {recovery.report.virtual_device(), recovery.report.member()});
    if (device == devices.end()) continue;
    device->second.clear_recovery();
    lineage::Describe(state, recovery, device->second.mutable_recovery());
  }
  for (const auto& [number, plans] : session.plans.stages) {
    const auto device = devices.find({number, 0});
    if (device != devices.end()) {
      *device->second.mutable_stages() = plans.back();
    }
  }
  for (const auto& [number, answer] : session.plans.batches) {
    const auto device = devices.find({number, 0});
    if (device == devices.end()) continue;
    *device->second.mutable_batch() = answer.batch();
    // The stages of its micro-batches replace other stage plans.
    if (answer.has_plan()) *device->second.mutable_stages() = answer.plan();
  }
  std::vector<v1::DeviceExplanation> in_order;
  for (auto& [id, device] : devices) {
    device.set_virtual_device(id.virtual_device);
    device.set_member(id.member);
    in_order.push_back(std::move(device));
  }
  return in_order;
}

absl::StatusOr<v1::SessionExplanation> ExplainSession(ClusterState& state,
                                                      const std::string& id) {
  MutexLock lock(&state.mu);
  const Session* const session = state.FindForOperator(id);
  if (session == nullptr) return SessionUnknown(id);
  v1::SessionExplanation explanation;
  explanation.set_session_id(log::ShortId(session->id));
  explanation.set_tenant(session->tenant);
  const placement::PolicyChoice choice =
      placement::PolicyFor(state.config, "", session->policy,
                           state.tenants->Find(session->tenant).get());
  explanation.set_policy(std::string(choice.policy->name()));
  explanation.set_policy_source(choice.source);
  line::Places places;
  for (v1::DeviceExplanation& device :
       ExplainDevices(state, *session, &places)) {
    *explanation.add_devices() = std::move(device);
  }
  return explanation;
}

absl::StatusOr<v1::TenantExplanation> ExplainTenant(ClusterState& state,
                                                    const std::string& name) {
  MutexLock lock(&state.mu);
  const std::shared_ptr<const Tenant> tenant = state.tenants->Find(name);
  if (tenant == nullptr) {
    return Unknown("TENANT", name);
  }
  v1::TenantExplanation explanation;
  explanation.set_tenant(name);
  const placement::PolicyChoice choice =
      placement::PolicyFor(state.config, "", "", tenant.get());
  explanation.set_policy(std::string(choice.policy->name()));
  explanation.set_policy_source(choice.source);
  line::Places places;
  for (const auto& [place, session] : state.sessions.in_order()) {
    if (session->tenant != name) continue;
    if (explanation.held_size() == kMaxHeld) break;
    for (const v1::DeviceExplanation& device :
         ExplainDevices(state, *session, &places)) {
      if (!device.has_gate() || explanation.held_size() == kMaxHeld) continue;
      v1::TenantExplanation::Held* const held = explanation.add_held();
      held->set_session_id(log::ShortId(session->id));
      held->set_virtual_device(device.virtual_device());
      *held->mutable_gate() = device.gate();
    }
  }
  for (auto& [other, standing] : views::Standings(state)) {
    *explanation.add_standings() = std::move(standing);
  }
  if (const QueueStops::Stop* const stop = state.queue.stops.Find(name)) {
    *explanation.mutable_queue_stop() = QueueStops::Describe(*stop);
  }
  v1::TenantInfo quotas;
  quota::Describe(state, *tenant, &quotas);
  explanation.mutable_quotas()->Swap(quotas.mutable_quotas());
  return explanation;
}

absl::Status CheckTry(const v1::TryPlacementRequest& request) {
  if (!v1::Phase_IsValid(request.phase())) {
    return MakeError(absl::StatusCode::kInvalidArgument, "PHASE_UNKNOWN",
                     absl::StrCat("there is no phase ", request.phase()));
  }
  return request.policy().empty()
             ? absl::OkStatus()
             : scheduler::FindPolicy(request.policy()).status();
}

absl::StatusOr<v1::TryPlacementResponse> TryPlacement(
    ClusterState& state, const v1::TryPlacementRequest& request) {
  DJINN_RETURN_IF_ERROR(CheckTry(request));
  MutexLock lock(&state.mu);
  const std::shared_ptr<const Tenant> tenant =
      state.tenants->Find(request.tenant());
  if (tenant == nullptr) {
    return Unknown("TENANT", request.tenant());
  }
  Session nobody;
  nobody.tenant = tenant->name;
  const Session* session = &nobody;
  if (!request.session_id().empty()) {
    session = state.FindForOperator(request.session_id());
    if (session == nullptr || session->tenant != tenant->name) {
      return SessionUnknown(request.session_id());
    }
  }
  PendingLease pending;
  pending.needed_bytes = pending.asked_bytes = request.asked_bytes();
  const placement::PolicyChoice choice = placement::PolicyFor(
      state.config, request.policy(), session->policy, tenant.get());
  const SharedWork work = state.WorkOf(*session);
  scheduler::Request asked =
      placement::RequestFor(state, *session, pending, tenant.get(), work);
  if (request.phase() != v1::PHASE_UNSPECIFIED) {
    asked.phase = static_cast<semantics::Phase>(request.phase());
  }
  const auto decision = std::make_shared<const scheduler::Decision>(
      scheduler::Place(asked, fleet::Fresh(state), *choice.policy,
                       state.known.works.factors(), &state.known.draws));
  v1::TryPlacementResponse response;
  DescribeDecision(state, {decision, choice.source, state.clock->Monotonic()},
                   response.mutable_decision());
  const absl::Status limit =
      quota::LimitObstacle(*tenant, pending.needed_bytes);
  const absl::Status breach = quota::Obstacle(state, *tenant);
  if (state.queue.stops.Find(tenant->name) != nullptr) {
    SetGate(QueueStopped(tenant->name), ResumeCommand(tenant->name),
            response.mutable_gate());
  } else if (!limit.ok()) {
    SetGate(limit, kLimitUnblockedBy, response.mutable_gate());
  } else if (!breach.ok()) {
    SetGate(breach, kQuotaUnblockedBy, response.mutable_gate());
  } else if (!decision->obstacle.ok()) {
    SetGate(decision->obstacle, decision->unblocked_by,
            response.mutable_gate());
  }
  return response;
}

}  // namespace djinn::coordinator::explain
