#include "coordinator/cluster/sessions.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/plain_text.h"
#include "common/base/proto_duration.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/net/protocol_version.h"
#include "coordinator/cluster/leases/leases.h"
#include "coordinator/cluster/leases/line.h"
#include "coordinator/cluster/leases/notifications.h"
#include "coordinator/cluster/leases/restored.h"
#include "coordinator/cluster/placement/moves.h"
#include "coordinator/cluster/placement/phases.h"
#include "coordinator/cluster/placement/placement.h"
#include "coordinator/cluster/quota/away.h"
#include "coordinator/config/credit_ledger.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/lease_table.h"
#include "coordinator/tables/worker_registry.h"
#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "scheduler/placement/fleet.h"
#include "scheduler/placement/phase_weights.h"
#include "scheduler/placement/work.h"

namespace djinn::coordinator::sessions {
namespace {

// Most graphs that are remembered of a session. Beyond this count, a repeated
// definition of another graph counts as a new one.
constexpr size_t kMaxCountedGraphs = 1 << 16;
// Most bytes of OpenSession.program, as session.proto says. The name is kept
// with the session, in the store and in the program memory.
constexpr size_t kMaxProgram = 256;
// Time after which a client may ask again for a session when it is not known
// when one of its tenant ends.
constexpr absl::Duration kRetryForSession = absl::Seconds(5);

absl::Status Stopping() {
  return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                   "the coordinator stops; attach again");
}

// Returns the work of a session that has defined some, with its phases weighed
// by the device time that they took.
SharedWork WorkDone(const ClusterState& state, const Session& session)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  // Uses the worker where the session used most device time: times of different
  // workers do not compare.
  const CreditLedger::Account* most = nullptr;
  for (const Lease* lease : state.leases.OfSession(session.id)) {
    const CreditLedger::Account* const account =
        state.billing.ledger.Find(lease->id);
    if (account == nullptr) continue;
    if (most == nullptr ||
        account->billed.device_time > most->billed.device_time) {
      most = account;
    }
  }
  const scheduler::Fleet::Member* const worker =
      most == nullptr ? nullptr : state.known.fleet.Find(most->worker_id);
  if (worker == nullptr) return session.work.sum;
  scheduler::PhaseSeconds seconds;
  for (size_t phase = 0; phase < seconds.size(); ++phase) {
    seconds[phase] = absl::ToDoubleSeconds(
        most->billed.phases.of(static_cast<v1::Phase>(phase)));
  }
  return std::make_shared<scheduler::Work>(scheduler::WeighByTime(
      *session.work.sum, seconds, worker->facts.speed, worker->facts.device,
      state.known.works.factors()));
}

// Returns InvalidArgument (PROTOCOL_VIOLATION) for a deadline that is not
// positive.
absl::Status CheckUrgency(const v1::Urgency& urgency) {
  if (urgency.has_run_deadline() &&
      FromProtoDuration(urgency.run_deadline()) <= absl::ZeroDuration()) {
    return Violation("a run_deadline that is not positive");
  }
  return absl::OkStatus();
}

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

// Adds the session that a client opens, or that it resumes after this process
// has restarted. Returns FailedPrecondition (SESSION_EXPIRED),
// ResourceExhausted (TOO_MANY_SESSIONS) or PermissionDenied
// (PRIORITY_NOT_ALLOWED).
absl::StatusOr<Session*> AddSession(ClusterState& state, const Tenant& tenant,
                                    const v1::OpenSession& open, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  const std::string& resume = open.resume_session_id();
  if (state.sessions.Ended(tenant.name, resume)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_EXPIRED",
                     "the session has ended and its storages are gone; open a "
                     "new one");
  }
  if (state.sessions.CountOfTenant(tenant.name) == tenant.max_sessions) {
    if (Session* const session = away::Longest(state, tenant.name)) {
      End(state, session, "its client is away and its tenant needs its place",
          wakes);
    }
  }
  const size_t count = state.sessions.CountOfTenant(tenant.name);
  if (count >= tenant.max_sessions) {
    const absl::Status refused = WithQuotaFailure(
        MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_SESSIONS",
                  absl::StrCat("tenant ", tenant.name, " has ", count,
                               " sessions, its limit is ", tenant.max_sessions),
                  {{"limit", absl::StrCat(tenant.max_sessions)},
                   {"used", absl::StrCat(count)}}),
        tenant.name);
    // If more than one session must end, the next one makes no room.
    const absl::Duration next = count > tenant.max_sessions
                                    ? absl::InfiniteDuration()
                                    : away::NextTime(state, tenant.name);
    return WithRetryAfter(refused, next == absl::InfiniteDuration()
                                       ? kRetryForSession
                                       : next - state.clock->Monotonic());
  }
  const v1::PriorityClass asked = open.urgency().priority_class();
  if (resume.empty() && asked > tenant.max_priority_class) {
    return MakeError(
        absl::StatusCode::kPermissionDenied, "PRIORITY_NOT_ALLOWED",
        absl::StrCat("sessions of tenant ", tenant.name, " may have priority ",
                     PriorityClassName(tenant.max_priority_class), " at most, ",
                     PriorityClassName(asked), " was asked"));
  }
  Session added;
  // A client that outlived the coordinator keeps its id.
  added.id = resume.empty() ? state.random->HexId() : resume;
  added.began_earlier = !resume.empty();
  added.devices.all_leases_known = resume.empty();
  added.tenant = tenant.name;
  added.open_time = state.clock->Now();
  return state.sessions.Add(std::move(added));
}

}  // namespace

absl::StatusOr<StreamId> Attach(ClusterState& state, const Tenant& owner,
                                const v1::OpenSession& open,
                                const std::shared_ptr<Waker>& waker) {
  DJINN_RETURN_IF_ERROR(CheckOpen(open));
  Wakes wakes;
  MutexLock lock(&state.mu);
  const std::string& resume = open.resume_session_id();
  if (state.stopping) return Stopping();
  DJINN_RETURN_IF_ERROR(state.CheckTerm(open.known_term()));
  // Looks the tenant up again: the stream may have begun before a change.
  const std::shared_ptr<const Tenant> tenant = state.tenants->Find(owner.name);
  if (tenant == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "the tenant is not configured any more");
  }
  Session* session = resume.empty() ? nullptr : state.sessions.Find(resume);
  if (session != nullptr && !session->end.ok()) {
    // The session has ended: its tenant was removed meanwhile. Its older stream
    // finds itself replaced.
    wakes.Add(std::move(session->link.waker));
    state.sessions.Remove(resume);
    session = nullptr;
  }
  if (session == nullptr) {
    DJINN_ASSIGN_OR_RETURN(session, AddSession(state, *tenant, open, &wakes));
  } else if (session->tenant != tenant->name) {
    return MakeError(absl::StatusCode::kPermissionDenied,
                     "SESSION_OF_OTHER_TENANT",
                     "the session belongs to another tenant");
  } else if (session->link.number == 0) {
    const absl::Duration left =
        session->deadline - state.config.session_timeout;
    state.metrics.attached_again.Observe(state.clock->Monotonic() - left);
  }
  if (!resume.empty()) {
    state.metrics.recoveries.Add({"session_attached_again", "done"});
  }
  // An older stream asks for its next message and finds itself replaced.
  wakes.Add(std::move(session->link.waker));
  session->program = open.program();
  ReplaceControls(/*keep_lines=*/false, &session->program);
  session->policy = open.placement_policy();
  TakeUrgency(state, open.urgency(), session, &wakes);
  session->state = v1::SessionInfo::ATTACHED;
  session->link.number = ++state.last_stream;
  session->link.waker = waker;
  session->link.greeted = false;
  wakes.Add(session->link.waker);
  if (session->MayLog(state.clock->Monotonic())) {
    log::Info("session attached", {{"session", log::ShortId(session->id)},
                                   {"tenant", session->tenant},
                                   {"program", session->program},
                                   {"resumed", !resume.empty()}});
  }
  return StreamId{session->id, session->link.number};
}

absl::Status SetUrgency(ClusterState& state, const StreamId& id,
                        const v1::Urgency& urgency) {
  DJINN_RETURN_IF_ERROR(CheckUrgency(urgency));
  Wakes wakes;
  MutexLock lock(&state.mu);
  DJINN_ASSIGN_OR_RETURN(Session* const session, state.FindOpenSession(id));
  TakeUrgency(state, urgency, session, &wakes);
  return absl::OkStatus();
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
      !session->pace.urgencies.Take(state.clock->Monotonic())) {
    return;
  }
  session->urgency_untold = false;
  for (Lease* lease : state.leases.OfSession(session->id)) {
    notifications::SignAgain(state, lease, wakes);
  }
}

bool NoteGraph(ClusterState& state, const StreamId& id,
               absl::string_view fingerprint, SharedWork work,
               SharedWork shown) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  Session* const session = state.FindSession(id);
  if (session == nullptr || !session->end.ok()) return false;
  if (work != nullptr) {
    if (state.known.works.AddGraph(session->tenant, std::string(fingerprint),
                                   work, shown)) {
      phases::Tell(state, std::string(fingerprint), &wakes);
    }
    moves::NotePhase(state, work, session, &wakes);
  }
  const uint64_t key = GraphKey(fingerprint);
  if (session->work.graphs.size() >= kMaxCountedGraphs) {
    return !session->work.graphs.contains(key);
  }
  if (!session->work.graphs.insert(key).second) return false;
  if (work != nullptr) {
    auto sum = std::make_shared<scheduler::Work>(*work);
    // The sum has no cache slots, because they belong to a single graph.
    sum->SetCacheSlots({});
    if (session->work.sum != nullptr) sum->Add(*session->work.sum);
    session->work.sum = std::move(sum);
    state.known.works.NoteProgram({session->tenant, session->program,
                                   session->work.sum, ++session->work.count});
  }
  return true;
}

void Close(ClusterState& state, const StreamId& id) {
  Wakes wakes;
  MutexLock lock(&state.mu);
  Session* const session = state.FindSession(id);
  if (session == nullptr) return;
  if (session->work.sum != nullptr && !session->began_earlier) {
    state.known.works.NoteEnded({session->tenant, session->program,
                                 WorkDone(state, *session),
                                 session->work.count});
  }
  End(state, session, "closed", &wakes);
}

void Detach(ClusterState& state, const StreamId& id) {
  MutexLock lock(&state.mu);
  Session* const session = state.FindSession(id);
  if (session == nullptr) return;
  if (!session->end.ok()) {
    state.sessions.Remove(std::string(session->id));
    return;
  }
  session->state = v1::SessionInfo::DETACHED;
  session->link.number = 0;
  session->link.waker = nullptr;
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
    notifications::Drop(session->id, state.workers.Find(lease->worker_id),
                        wakes);
    leases::Remove(state, lease->id);
  }
  for (Worker* const worker : state.workers.WithSession(session->id)) {
    for (const std::string& lease_id : worker->LeasesOf(session->id)) {
      if (worker->leases.held.at(lease_id).tenant == session->tenant) {
        notifications::Drop(session->id, worker, wakes);
        break;
      }
    }
  }
  for (auto& [device, pending] : session->devices.pending)
    line::Leave(state, &pending);
  session->devices.pending.clear();
  restored::Forget(state, [&](const RestoredLease& restored) {
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
  MutexLock lock(&state.mu);
  if (state.stopping) return Stopping();
  Session* const session = state.FindSession(id);
  if (session == nullptr) return ClusterState::Replaced();
  if (!session->end.ok()) {
    const absl::Status end = session->end;
    state.sessions.Remove(std::string(session->id));
    return end;
  }
  v1::SessionResponse response;
  response.set_term(state.term);
  if (!session->link.greeted) {
    session->link.greeted = true;
    v1::SessionOpened* const opened = response.mutable_opened();
    opened->set_session_id(session->id);
    opened->set_tenant(session->tenant);
    if (const auto tenant = state.tenants->Find(session->tenant)) {
      opened->set_max_priority_class(tenant->max_priority_class);
    }
    return response;
  }
  if (session->link.outbox.empty()) return std::nullopt;
  response = std::move(session->link.outbox.front());
  session->link.outbox.pop_front();
  response.set_term(state.term);
  return response;
}

}  // namespace djinn::coordinator::sessions
