#include "coordinator/cluster_sessions.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/net/protocol_version.h"
#include "common/quota_failure.h"
#include "common/retry_after.h"
#include "common/status_macros.h"
#include "coordinator/cluster_leases.h"
#include "coordinator/cluster_line.h"
#include "coordinator/cluster_moves.h"
#include "coordinator/cluster_notices.h"
#include "coordinator/cluster_persistence.h"
#include "coordinator/cluster_phases.h"
#include "coordinator/cluster_placement.h"
#include "coordinator/credit_ledger.h"
#include "coordinator/lease_table.h"
#include "coordinator/urgency.h"
#include "coordinator/violation.h"
#include "coordinator/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/phase_weights.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator::sessions {
namespace {

// Beyond these a session's definitions are no longer told apart.
constexpr size_t kMaxCountedStructures = 1 << 16;
// Of OpenSession.program, as session.proto says: it is kept with the session,
// in the store, and with what was learnt of its work.
constexpr size_t kMaxProgram = 256;

absl::Status Stopping() {
  return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                   "the coordinator stops; attach again");
}

// What the session, which has some, did in all: its phases by the time that
// they took.
SharedWork WorkDone(const ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // Where it was longest: of each phase only one worker's time is comparable.
  const CreditLedger::Account* most = nullptr;
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    const CreditLedger::Account* const account = state.ledger.Find(lease->id);
    if (account == nullptr) continue;
    if (most == nullptr ||
        account->billed.device_time > most->billed.device_time) {
      most = account;
    }
  }
  const scheduler::Fleet::Member* const worker =
      most == nullptr ? nullptr : state.fleet.Find(most->worker_id);
  if (worker == nullptr) return session.work;
  scheduler::PhaseSeconds seconds;
  for (size_t phase = 0; phase < seconds.size(); ++phase) {
    seconds[phase] = absl::ToDoubleSeconds(
        most->billed.phases.of(static_cast<v1::Phase>(phase)));
  }
  return std::make_shared<scheduler::Work>(
      scheduler::WeighByTime(*session.work, seconds, worker->facts.speed,
                             worker->facts.device, state.works.factors()));
}

}  // namespace

absl::Status CheckOpen(const v1::OpenSession& open) {
  DJINN_RETURN_IF_ERROR(
      CheckProtocolVersion(open.protocol_version(), "client"));
  const std::string& resume = open.resume_session_id();
  if (!resume.empty() && !IsSessionId(resume)) {
    return Violation("resume_session_id is not a session id");
  }
  if (open.program().size() > kMaxProgram) {
    return Violation(absl::StrCat("a program's name of ", open.program().size(),
                                  " bytes: at most ", kMaxProgram,
                                  " are allowed"));
  }
  DJINN_RETURN_IF_ERROR(placement::CheckPolicy(open.placement_policy()));
  return CheckUrgency(open.urgency());
}

absl::Status CheckUrgency(const v1::Urgency& urgency) {
  if (urgency.has_run_deadline() &&
      FromProtoDuration(urgency.run_deadline()) <= absl::ZeroDuration()) {
    return Violation("a run_deadline that is not positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamId> Attach(ClusterState& state, const Tenant& owner,
                                const v1::OpenSession& open,
                                const std::shared_ptr<Waker>& waker,
                                Wakes* wakes) {
  const std::string& resume = open.resume_session_id();
  if (state.stopping) return Stopping();
  // As it is now: the stream may have begun before a change.
  const std::shared_ptr<const Tenant> tenant = state.tenants->Find(owner.name);
  if (tenant == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "the tenant is not configured any more");
  }
  Session* session = resume.empty() ? nullptr : state.sessions.Find(resume);
  if (session != nullptr && !session->end.ok()) {
    // Its tenant was away meanwhile. The stream before finds itself replaced.
    wakes->Add(std::move(session->waker));
    state.sessions.Remove(resume);
    session = nullptr;
  }
  if (session != nullptr && session->tenant != tenant->name) {
    return MakeError(absl::StatusCode::kPermissionDenied,
                     "SESSION_OF_OTHER_TENANT",
                     "the session belongs to another tenant");
  }
  if (session == nullptr && state.sessions.Ended(tenant->name, resume)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_EXPIRED",
                     "the session has ended and its storages are gone; open a "
                     "new one");
  }
  if (session == nullptr) {
    const size_t count = state.sessions.CountOfTenant(tenant->name);
    if (count >= tenant->max_sessions) {
      const absl::Status refused = WithQuotaFailure(
          MakeError(
              absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
              absl::StrCat("tenant ", tenant->name, " has ", count,
                           " sessions, its limit is ", tenant->max_sessions),
              {{"limit", absl::StrCat(tenant->max_sessions)},
               {"used", absl::StrCat(count)}}),
          tenant->name);
      // One too many may have to go before there is room for another.
      if (count > tenant->max_sessions) return refused;
      return WithRetryAfter(refused, state.sessions.NextTimeout(tenant->name) -
                                         state.clock->Monotonic());
    }
    const v1::PriorityClass asked = open.urgency().priority_class();
    if (resume.empty() && asked > tenant->max_priority_class) {
      return MakeError(
          absl::StatusCode::kPermissionDenied, "PRIORITY_NOT_ALLOWED",
          absl::StrCat("sessions of tenant ", tenant->name,
                       " may have priority ",
                       PriorityClassName(tenant->max_priority_class),
                       " at most, ", PriorityClassName(asked), " was asked"));
    }
    Session added;
    // A client that outlived the coordinator keeps its id.
    added.id = resume.empty() ? state.random->HexId() : resume;
    added.began_earlier = !resume.empty();
    added.all_leases_known = resume.empty();
    added.tenant = tenant->name;
    added.open_time = state.clock->Now();
    session = state.sessions.Add(std::move(added));
  } else if (session->stream == 0) {
    const absl::Duration left =
        session->deadline - state.config.session_timeout;
    state.metrics.attached_again.Observe(state.clock->Monotonic() - left);
  }
  if (!resume.empty()) state.metrics.recoveries.Add({"session_attached_again"});
  // An older stream asks for its next message and finds itself replaced.
  wakes->Add(std::move(session->waker));
  session->program = open.program();
  session->policy = open.placement_policy();
  TakeUrgency(state, open.urgency(), session, wakes);
  session->state = v1::SessionInfo::ATTACHED;
  session->stream = ++state.last_stream;
  session->waker = waker;
  session->greeted = false;
  wakes->Add(session->waker);
  if (session->MayLog(state.clock->Monotonic())) {
    log::Info("session attached", {{"session", log::ShortId(session->id)},
                                   {"tenant", session->tenant},
                                   {"program", session->program},
                                   {"resumed", !resume.empty()}});
  }
  return StreamId{session->id, session->stream};
}

void TakeUrgency(ClusterState& state, const v1::Urgency& said, Session* session,
                 Wakes* wakes) {
  const v1::Urgency urgency = KnownUrgency(said);
  if (urgency.SerializeAsString() == session->urgency.SerializeAsString()) {
    return;
  }
  session->urgency = urgency;
  session->urgency_untold = true;
  line::ChangePlaces(state, session);
  TellUrgency(state, session, wakes);
}

void TellUrgency(ClusterState& state, Session* session, Wakes* wakes) {
  if (!session->urgency_untold ||
      !session->urgencies.Take(state.clock->Monotonic())) {
    return;
  }
  session->urgency_untold = false;
  for (Lease* lease : state.leases.OfSession(session->id)) {
    lease->reissue_time = absl::InfinitePast();
    notices::Touch(state.workers.Find(lease->worker_id), wakes);
  }
}

bool NoteStructure(ClusterState& state, const StreamId& id,
                   absl::string_view fingerprint, SharedWork work,
                   SharedWork shown, Wakes* wakes) {
  Session* const session = state.FindSession(id);
  if (session == nullptr || !session->end.ok()) return false;
  if (work != nullptr) {
    if (state.works.AddStructure(session->tenant, std::string(fingerprint),
                                 work, std::move(shown))) {
      phases::Tell(state, std::string(fingerprint), wakes);
    }
    moves::NotePhase(state, work, session, wakes);
  }
  const uint64_t key = StructureKey(fingerprint);
  if (session->structures.size() >= kMaxCountedStructures) {
    return !session->structures.contains(key);
  }
  if (!session->structures.insert(key).second) return false;
  if (work != nullptr) {
    auto sum = std::make_shared<scheduler::Work>(*work);
    // It is of no structure.
    sum->SetCacheSlots({});
    if (session->work != nullptr) sum->Add(*session->work);
    session->work = std::move(sum);
    state.works.NoteProgram({session->tenant, session->program, session->work,
                             ++session->work_structures});
  }
  return true;
}

void Close(ClusterState& state, const StreamId& id, Wakes* wakes) {
  Session* const session = state.FindSession(id);
  if (session == nullptr) return;
  if (session->work != nullptr && !session->began_earlier) {
    state.works.NoteEnded({session->tenant, session->program,
                           WorkDone(state, *session),
                           session->work_structures});
  }
  End(state, session, "closed", wakes);
}

void Detach(ClusterState& state, const StreamId& id) {
  Session* const session = state.FindSession(id);
  if (session == nullptr) return;
  if (!session->end.ok()) {
    state.sessions.Remove(std::string(session->id));
    return;
  }
  session->state = v1::SessionInfo::DETACHED;
  session->stream = 0;
  session->waker = nullptr;
  session->deadline = state.clock->Monotonic() + state.config.session_timeout;
  if (!session->MayLog(state.clock->Monotonic())) return;
  log::Info("session detached", {{"session", log::ShortId(session->id)},
                                 {"tenant", session->tenant}});
}

void Release(ClusterState& state, Session* session, absl::string_view why,
             Wakes* wakes) {
  log::Info("session ended", {{"session", log::ShortId(session->id)},
                              {"tenant", session->tenant},
                              {"why", why}});
  for (const Lease* lease : state.leases.OfSession(session->id)) {
    notices::Drop(session->id, state.workers.Find(lease->worker_id), wakes);
    leases::Remove(state, lease->id);
  }
  for (Worker* const worker : state.workers.WithSession(session->id)) {
    for (const auto& [lease_id, held] : worker->held) {
      if (held.session_id == session->id && held.tenant == session->tenant) {
        notices::Drop(session->id, worker, wakes);
        break;
      }
    }
  }
  for (auto& [device, pending] : session->pending) line::Leave(state, &pending);
  session->pending.clear();
  persistence::ForgetRestored(state, [&](const RestoredLease& restored) {
    return restored.lease.session_id() == session->id;
  });
}

void End(ClusterState& state, Session* session, absl::string_view why,
         Wakes* wakes) {
  Release(state, session, why, wakes);
  state.sessions.Remove(std::string(session->id));
}

absl::StatusOr<std::optional<v1::SessionResponse>> NextResponse(
    ClusterState& state, const StreamId& id) {
  if (state.stopping) return Stopping();
  Session* const session = state.FindSession(id);
  if (session == nullptr) return ClusterState::Replaced();
  if (!session->end.ok()) {
    const absl::Status end = session->end;
    state.sessions.Remove(std::string(session->id));
    return end;
  }
  v1::SessionResponse response;
  if (!session->greeted) {
    session->greeted = true;
    v1::SessionOpened* const opened = response.mutable_opened();
    opened->set_session_id(session->id);
    opened->set_tenant(session->tenant);
    if (const auto tenant = state.tenants->Find(session->tenant)) {
      opened->set_max_priority_class(tenant->max_priority_class);
    }
    return response;
  }
  if (session->outbox.empty()) return std::nullopt;
  response = std::move(session->outbox.front());
  session->outbox.pop_front();
  return response;
}

}  // namespace djinn::coordinator::sessions
