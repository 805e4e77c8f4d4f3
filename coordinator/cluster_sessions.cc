// Session streams.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/lease/priority_class.h"
#include "common/log/log.h"
#include "common/net/proto_duration.h"
#include "common/net/protocol_version.h"
#include "common/quota_failure.h"
#include "common/retry_after.h"
#include "common/status_macros.h"
#include "coordinator/cluster.h"
#include "coordinator/violation.h"
#include "scheduler/placement/phase_weights.h"

namespace djinn::coordinator {
namespace {

// Beyond these a session's definitions are no longer told apart.
constexpr size_t kMaxCountedStructures = 1 << 16;
// Of OpenSession.program, as session.proto says: it is kept with the session,
// in the store, and with what was learnt of its work.
constexpr size_t kMaxProgram = 256;
// More than any policy's name has.
constexpr size_t kMaxPolicyName = 64;

absl::Status Stopping() {
  return MakeError(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                   "the coordinator stops; attach again");
}

absl::Status CheckUrgency(const v1::Urgency& urgency) {
  if (urgency.has_run_deadline() &&
      FromProtoDuration(urgency.run_deadline()) <= absl::ZeroDuration()) {
    return Violation("a run_deadline that is not positive");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Cluster::Replaced() {
  return MakeError(absl::StatusCode::kAborted, "SESSION_ATTACHED_ELSEWHERE",
                   "another stream attached to this session");
}

absl::Status Cluster::CheckPolicy(const std::string& name) {
  if (name.size() > kMaxPolicyName) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, "POLICY_UNKNOWN",
        absl::StrCat("a placement policy's name of ", name.size(), " bytes"));
  }
  return name.empty() ? absl::OkStatus() : scheduler::FindPolicy(name).status();
}

v1::Urgency Cluster::Known(const v1::Urgency& said) {
  v1::Urgency known;
  known.set_priority_class(said.priority_class());
  if (said.has_run_deadline()) {
    *known.mutable_run_deadline() =
        ToProtoDuration(FromProtoDuration(said.run_deadline()));
  }
  return known;
}

v1::Urgency Cluster::Allowed(const Tenant& tenant, const v1::Urgency& asked) {
  v1::Urgency allowed = Known(asked);
  const v1::PriorityClass counts = EffectiveClass(asked.priority_class());
  // One that nobody declared stays so: workers look at what runs.
  if (IsDeclared(asked.priority_class()) ||
      counts > tenant.max_priority_class) {
    allowed.set_priority_class(std::min(counts, tenant.max_priority_class));
  }
  return allowed;
}

Session* Cluster::FindSession(const StreamId& id) {
  Session* const session = sessions_.Find(id.owner);
  return session != nullptr && session->stream == id.stream ? session : nullptr;
}

absl::StatusOr<StreamId> Cluster::Attach(const Tenant& owner,
                                         const v1::OpenSession& open,
                                         std::shared_ptr<Waker> waker) {
  DJINN_ASSIGN_OR_RETURN(
      const uint32_t version,
      NegotiateProtocol(OwnProtocolWindow(), open.protocol(), "client"));
  const std::string& resume = open.resume_session_id();
  if (!resume.empty() && !IsSessionId(resume)) {
    return Violation("resume_session_id is not a session id");
  }
  if (open.program().size() > kMaxProgram) {
    return Violation(absl::StrCat("a program's name of ", open.program().size(),
                                  " bytes: at most ", kMaxProgram,
                                  " are allowed"));
  }
  DJINN_RETURN_IF_ERROR(CheckPolicy(open.placement_policy()));
  DJINN_RETURN_IF_ERROR(CheckUrgency(open.urgency()));
  Wakes wakes;
  MutexLock lock(&mu_);
  if (stopping_) return Stopping();
  // As it is now: the stream may have begun before a change.
  const std::shared_ptr<const Tenant> tenant = tenants_->Find(owner.name);
  if (tenant == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "TOKEN_UNKNOWN",
                     "the tenant is not configured any more");
  }
  Session* session = resume.empty() ? nullptr : sessions_.Find(resume);
  if (session != nullptr && !session->end.ok()) {
    // Its tenant was away meanwhile. The stream before finds itself replaced.
    wakes.Add(std::move(session->waker));
    sessions_.Remove(resume);
    session = nullptr;
  }
  if (session != nullptr && session->tenant != tenant->name) {
    return MakeError(absl::StatusCode::kPermissionDenied,
                     "SESSION_OF_OTHER_TENANT",
                     "the session belongs to another tenant");
  }
  if (session == nullptr && sessions_.Ended(tenant->name, resume)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, "SESSION_EXPIRED",
                     "the session has ended and its storages are gone; open a "
                     "new one");
  }
  if (session == nullptr) {
    const size_t count = sessions_.CountOfTenant(tenant->name);
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
      return WithRetryAfter(
          refused, sessions_.NextTimeout(tenant->name) - clock_->Monotonic());
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
    added.id = resume.empty() ? random_->HexId() : resume;
    added.began_earlier = !resume.empty();
    added.all_leases_known = resume.empty();
    added.tenant = tenant->name;
    added.open_time = clock_->Now();
    session = sessions_.Add(std::move(added));
  } else if (session->stream == 0) {
    const absl::Duration left = session->deadline - config_.session_timeout;
    metrics_.attached_again.Observe(clock_->Monotonic() - left);
  }
  if (!resume.empty()) metrics_.recoveries.Add({"session_attached_again"});
  // An older stream asks for its next message and finds itself replaced.
  wakes.Add(std::move(session->waker));
  session->program = open.program();
  session->policy = open.placement_policy();
  TakeUrgency(open.urgency(), session, &wakes);
  session->state = v1::SessionInfo::ATTACHED;
  session->stream = ++last_stream_;
  session->waker = std::move(waker);
  session->protocol_version = version;
  session->greeted = false;
  wakes.Add(session->waker);
  if (session->MayLog(clock_->Monotonic())) {
    log::Info("session attached", {{"session", log::ShortId(session->id)},
                                   {"tenant", session->tenant},
                                   {"program", session->program},
                                   {"resumed", !resume.empty()}});
  }
  return StreamId{session->id, session->stream};
}

absl::Status Cluster::SetUrgency(const StreamId& id,
                                 const v1::Urgency& urgency) {
  DJINN_RETURN_IF_ERROR(CheckUrgency(urgency));
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) return session->end;
  TakeUrgency(urgency, session, &wakes);
  return absl::OkStatus();
}

void Cluster::TakeUrgency(const v1::Urgency& said, Session* session,
                          Wakes* wakes) {
  const v1::Urgency urgency = Known(said);
  if (urgency.SerializeAsString() == session->urgency.SerializeAsString()) {
    return;
  }
  session->urgency = urgency;
  session->urgency_untold = true;
  ChangePlaces(session);
  TellUrgency(session, wakes);
}

void Cluster::TellUrgency(Session* session, Wakes* wakes) {
  if (!session->urgency_untold ||
      !session->urgencies.Take(clock_->Monotonic())) {
    return;
  }
  session->urgency_untold = false;
  for (Lease* lease : leases_.OfSession(session->id)) {
    lease->reissue_time = absl::InfinitePast();
    Touch(workers_.Find(lease->worker_id), wakes);
  }
}

bool Cluster::NoteStructure(const StreamId& id, absl::string_view fingerprint,
                            SharedWork work, SharedWork shown) {
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr || !session->end.ok()) return false;
  if (work != nullptr) {
    if (works_.AddStructure(session->tenant, std::string(fingerprint), work,
                            std::move(shown))) {
      TellPhase(std::string(fingerprint), &wakes);
    }
    NotePhase(work, session, &wakes);
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
    works_.NoteProgram({session->tenant, session->program, session->work,
                        ++session->work_structures});
  }
  return true;
}

SharedWork Cluster::WorkDone(const Session& session) const {
  // Where it was longest: of each phase only one worker's time is comparable.
  const CreditLedger::Account* most = nullptr;
  for (const Lease* lease : leases_.OfSession(session.id)) {
    const CreditLedger::Account* const account = ledger_.Find(lease->id);
    if (account == nullptr) continue;
    if (most == nullptr ||
        account->billed.device_time > most->billed.device_time) {
      most = account;
    }
  }
  const scheduler::Fleet::Member* const worker =
      most == nullptr ? nullptr : fleet_.Find(most->worker_id);
  if (worker == nullptr) return session.work;
  scheduler::PhaseSeconds seconds;
  for (size_t phase = 0; phase < seconds.size(); ++phase) {
    seconds[phase] = absl::ToDoubleSeconds(
        most->billed.phases.of(static_cast<v1::Phase>(phase)));
  }
  return std::make_shared<scheduler::Work>(
      scheduler::WeighByTime(*session.work, seconds, worker->facts.speed,
                             worker->facts.device, works_.factors()));
}

void Cluster::Close(const StreamId& id) {
  Wakes wakes;
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return;
  if (session->work != nullptr && !session->began_earlier) {
    works_.NoteEnded({session->tenant, session->program, WorkDone(*session),
                      session->work_structures});
  }
  EndSession(session, "closed", &wakes);
}

void Cluster::Detach(const StreamId& id) {
  MutexLock lock(&mu_);
  Session* const session = FindSession(id);
  if (session == nullptr) return;
  if (!session->end.ok()) {
    sessions_.Remove(std::string(session->id));
    return;
  }
  session->state = v1::SessionInfo::DETACHED;
  session->stream = 0;
  session->waker = nullptr;
  session->deadline = clock_->Monotonic() + config_.session_timeout;
  if (!session->MayLog(clock_->Monotonic())) return;
  log::Info("session detached", {{"session", log::ShortId(session->id)},
                                 {"tenant", session->tenant}});
}

void Cluster::EndSession(Session* session, absl::string_view why,
                         Wakes* wakes) {
  ReleaseSession(session, why, wakes);
  sessions_.Remove(std::string(session->id));
}

void Cluster::ReleaseSession(Session* session, absl::string_view why,
                             Wakes* wakes) {
  log::Info("session ended", {{"session", log::ShortId(session->id)},
                              {"tenant", session->tenant},
                              {"why", why}});
  for (const Lease* lease : leases_.OfSession(session->id)) {
    Drop(session->id, workers_.Find(lease->worker_id), wakes);
    RemoveLease(lease->id);
  }
  for (Worker* const worker : workers_.WithSession(session->id)) {
    for (const auto& [lease_id, held] : worker->held) {
      if (held.session_id == session->id && held.tenant == session->tenant) {
        Drop(session->id, worker, wakes);
        break;
      }
    }
  }
  for (auto& [device, pending] : session->pending) LeaveLine(&pending);
  session->pending.clear();
  ForgetRestored([&](const RestoredLease& restored) {
    return restored.lease.session_id() == session->id;
  });
}

void Cluster::Send(v1::SessionResponse response, Session* session,
                   Wakes* wakes) {
  session->outbox.push_back(std::move(response));
  wakes->Add(session->waker);
}

void Cluster::Refuse(const absl::Status& why, MemberId device, Session* session,
                     Wakes* wakes) {
  v1::SessionResponse response;
  v1::LeaseRefused* const refused = response.mutable_refused();
  refused->set_virtual_device(device.virtual_device);
  refused->set_member(device.member);
  refused->set_code(static_cast<int>(why.code()));
  refused->set_reason(ErrorReason(why));
  refused->set_message(std::string(why.message()));
  const std::optional<absl::Duration> retry_after = RetryAfter(why);
  if (retry_after.has_value()) {
    *refused->mutable_retry_after() = ToProtoDuration(*retry_after);
  }
  Send(std::move(response), session, wakes);
  CountRejection(session->tenant, why);
  if (!session->logged_refusals.Take(clock_->Monotonic())) {
    ++session->unlogged_refusals;
    return;
  }
  log::Warning("lease refused", {{"session", log::ShortId(session->id)},
                                 {"tenant", session->tenant},
                                 {"device", device.virtual_device},
                                 {"member", device.member},
                                 {"unlogged_before",
                                  std::exchange(session->unlogged_refusals, 0)},
                                 {"error", why}});
}

absl::StatusOr<std::optional<v1::SessionResponse>> Cluster::NextResponse(
    const StreamId& id) {
  MutexLock lock(&mu_);
  if (stopping_) return Stopping();
  Session* const session = FindSession(id);
  if (session == nullptr) return Replaced();
  if (!session->end.ok()) {
    const absl::Status end = session->end;
    sessions_.Remove(std::string(session->id));
    return end;
  }
  v1::SessionResponse response;
  if (!session->greeted) {
    session->greeted = true;
    v1::SessionOpened* const opened = response.mutable_opened();
    opened->set_session_id(session->id);
    opened->set_tenant(session->tenant);
    opened->set_protocol_version(session->protocol_version);
    opened->set_takes_lease_returns(true);
    if (const auto tenant = tenants_->Find(session->tenant)) {
      opened->set_max_priority_class(tenant->max_priority_class);
    }
    return response;
  }
  if (session->outbox.empty()) return std::nullopt;
  response = std::move(session->outbox.front());
  session->outbox.pop_front();
  return response;
}

}  // namespace djinn::coordinator
