// DefineStructure and Run.
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "common/error.h"
#include "common/retry_after.h"
#include "common/status_macros.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"
#include "scheduler/fairness/deadline_rule.h"

namespace djinn::worker {

absl::Status Session::HandleDefine(uint64_t sequence,
                                   const v1::DefineStructure& define) {
  for (const uint64_t id : define.forget_ids()) {
    DJINN_RETURN_IF_ERROR(structures_.Forget(id));
    MutexLock lock(&mu_);
    run_times_.Forget(id);
    phases_.erase(id);
    runs_.Forget(id);
  }
  DJINN_ASSIGN_OR_RETURN(const StructureTable::Defined defined,
                         structures_.Define(define));
  const auto& [structure, found] = defined;
  v1::ControlResponse response;
  v1::Admitted* admitted = response.mutable_admitted();
  admitted->set_structure_id(define.structure_id());
  if (found.ok()) {
    NotePhaseOf(define.structure_id(), found->plan->KindTo(tenant_).phase,
                structure);
    {
      MutexLock lock(&mu_);
      runs_.Define(define.structure_id(), structure->fingerprint);
    }
    admitted->set_fingerprint(structure->fingerprint);
    admitted->set_cache_hit(found->known);
  } else {
    structure->refused = errors_.Make(found.status(), {.sequence = sequence});
    *admitted->mutable_refused() = *structure->refused;
  }
  Reply(std::move(response));
  return absl::OkStatus();
}

void Session::NotePhaseOf(uint64_t id, v1::Phase phase,
                          StructureTable::Structure* structure) {
  if (structure->phase == phase) return;
  structure->phase = phase;
  MutexLock lock(&mu_);
  phases_[id] = phase;
  NoteNext();
}

uint64_t Session::BoundContentBytes() const {
  uint64_t bytes = 0;
  for (const BoundRun::Binding& binding : run_.bindings) {
    const Storage* const storage = storages_.Find(binding.storage);
    if (storage != nullptr &&
        storage->quota.storage_class() == StorageClass::kContent) {
      bytes += storage->size_bytes;
    }
  }
  return bytes;
}

absl::Status Session::CheckDeadline(uint64_t structure) const {
  if (message_deadline_ == absl::InfiniteDuration()) return absl::OkStatus();
  const absl::Duration now = environment_.clock->Monotonic();
  const absl::Duration late = now - message_deadline_;
  absl::Duration expected;
  {
    MutexLock lock(&mu_);
    expected = run_times_.Expected(structure, now);
  }
  const scheduler::DeadlineVerdict verdict =
      scheduler::JudgeDeadline(message_deadline_, expected, ahead_, now);
  if (verdict == scheduler::DeadlineVerdict::kInTime) return absl::OkStatus();
  if (verdict == scheduler::DeadlineVerdict::kMissed) {
    return MakeError(
        absl::StatusCode::kDeadlineExceeded, "RUN_DEADLINE_EXCEEDED",
        absl::StrCat("the run was not begun: its turn came ",
                     absl::FormatDuration(late), " after its deadline"));
  }
  const absl::Duration too_late = ahead_ + expected + late;
  const absl::Status refused = MakeError(
      absl::StatusCode::kDeadlineExceeded, "RUN_WOULD_BE_LATE",
      absl::StrCat("the run was not begun: its deadline is in ",
                   absl::FormatDuration(-late), ", and it would be done in ",
                   absl::FormatDuration(ahead_ + expected),
                   " at the earliest, with ", absl::FormatDuration(ahead_),
                   " before it"));
  // Another time it may have less before it, but never be shorter.
  const int64_t wait = run_deadline_.load(std::memory_order_relaxed);
  return WithRetryAfter(refused,
                        wait == kNever || expected <= absl::Nanoseconds(wait)
                            ? too_late
                            : absl::InfiniteDuration());
}

void Session::NoteRunTime(uint64_t structure, absl::Duration took) {
  if (message_deadline_ == absl::InfiniteDuration()) return;
  const absl::Duration now = environment_.clock->Monotonic();
  {
    MutexLock lock(&mu_);
    run_times_.Note(structure, took, now);
  }
  NoteInTime(now <= message_deadline_ ? RunInTime::kAttained
                                     : RunInTime::kMissed);
}

void Session::NoteRefusal(const absl::Status& why) {
  if (why.code() != absl::StatusCode::kDeadlineExceeded) return;
  const bool predicted = ErrorReason(why) == "RUN_WOULD_BE_LATE";
  NoteInTime(predicted ? RunInTime::kRefused : RunInTime::kMissed);
  counts_.Refused(why);
}

void Session::NoteInTime(RunInTime result) {
  // A session that has ended is not counted.
  if (!stopped_ || cancelled_) counts_.InTime(priority(), result);
}

void Session::NoteRunOver(const v1::RunMetadata& metadata,
                          absl::Duration arrived, absl::Duration now) {
  counts_.RunOver(phase(),
                  metadata.has_error()
                      ? static_cast<absl::StatusCode>(metadata.error().code())
                      : absl::StatusCode::kOk,
                  now - arrived);
  result_times_.NoteRun(phase(), arrived);
}

void Session::StepRefusal(absl::Duration ahead) {
  StepReadsAndFrees(1);
  const absl::Duration now = environment_.clock->Monotonic();
  const auto refuse = [&] {
    MutexLock lock(&mu_);
    return inbox_.next_run() != nullptr && !inbox_.free_next() &&
           inbox_.deadline() - now < ahead + expected();
  };
  if (!refuse()) return;
  ahead_ = ahead;
  Step(now);
  ahead_ = absl::ZeroDuration();
}

bool Session::HasRoom(const Plan& plan) {
  if (environment_.edge == nullptr || !environment_.edge->GoesFirst()) {
    return true;
  }
  const uint64_t bytes = LifetimesOf(plan, run_.final_slots).peak_bytes;
  return bytes == 0 ||
         (quota_.Reserve(bytes).ok() &&
          environment_.memory->Reserve(MemoryClass::kStorages, tenant_, bytes)
              .ok());
}

RunContext Session::ContextOf(uint64_t sequence) {
  return {.sequence = sequence,
          .tenant = tenant_,
          .storages = &storages_,
          .quota = &quota_,
          .errors = &errors_,
          .memory = environment_.memory,
          .counters = environment_.counters,
          .cancelled = &stopped_,
          // A profile shows a run as it is alone.
          .edge = profile_ == nullptr ? environment_.edge : nullptr};
}

absl::Duration Session::Execute(uint64_t sequence, uint64_t structure,
                                const Plan& plan, const Lifetimes& lifetimes,
                                v1::ExecutionMode mode,
                                v1::RunMetadata* metadata) {
  RunContext context = ContextOf(sequence);
  const auto now = [&] {
    return context.edge != nullptr ? context.edge->OwnTime()
                                   : environment_.clock->Monotonic();
  };
  const absl::Duration start = now();
  if (ABSL_PREDICT_TRUE(profile_ == nullptr)) {
    ExecuteRun(plan, run_, lifetimes, context, metadata);
  } else {
    run_stages_.started = start;
    NodeTimer timer = profile_->NewTimer();
    context.timer = &timer;
    profile_->Enter(SessionProfile::kExecute);
    ExecuteRun(plan, run_, lifetimes, context, metadata);
    run_stages_.ended = profile_->Now();
    profile_->Enter(SessionProfile::kBind);
    profile_->AddRun(sequence, plan, mode, run_stages_, timer);
  }
  const absl::Duration took = now() - start;
  plan.AddDeviceTime(took);
  NoteRunTime(structure, took);
  return took;
}

absl::Status Session::HandleRun(uint64_t sequence, const v1::Run& run) {
  StructureTable::Structure* const structure =
      structures_.Find(run.structure_id());
  if (structure == nullptr) {
    return Violation(
        absl::StrCat("structure ", run.structure_id(), " is not defined"));
  }
  if (ABSL_PREDICT_FALSE(profile_ != nullptr)) {
    run_stages_.looked_up = profile_->Now();
  }
  v1::ControlResponse response;
  v1::RunMetadata* metadata = response.mutable_metadata();
  RunRecords::End end;
  // Of the whole run.
  RootError failure;
  if (structure->refused != nullptr) {
    if (run.remember()) {
      return Violation("a run of a refused structure is to be remembered");
    }
    DJINN_RETURN_IF_ERROR(
        BindRun(run, nullptr, structure->remembered, storages_, &run_));
    DJINN_RETURN_IF_ERROR(CheckRefusedRun(run_, storages_));
    PoisonRun(nullptr, run_, structure->refused, &storages_);
    failure = structure->refused;
    *metadata->mutable_error() = *failure;
  } else {
    DJINN_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan,
                           structures_.PlanOf(*structure, run));
    if (plan == nullptr) {
      missing_structure_ = run.structure_id();
      return absl::OkStatus();
    }
    if (ABSL_PREDICT_FALSE(profile_ != nullptr)) {
      run_stages_.bound = profile_->Now();
      profile_->Enter(SessionProfile::kBind);
    }
    const v1::Phase phase = plan->KindTo(tenant_).phase;
    NotePhaseOf(run.structure_id(), phase, structure);
    NotePhase(phase);
    DJINN_RETURN_IF_ERROR(
        BindRun(run, plan.get(), structure->remembered, storages_, &run_));
    DJINN_RETURN_IF_ERROR(CheckRun(*plan, run_, storages_));
    absl::Status refused = plan->refusal();
    if (refused.ok() && !structures_.supplied() && !HasRoom(*plan)) {
      environment_.edge->PutOff();
      put_off_ = true;
      return absl::OkStatus();
    }
    DJINN_ASSIGN_OR_RETURN(const Lifetimes* const lifetimes,
                           structures_.Remember(*plan, run_, structure));
    if (!run.has_repeat()) plan->SetContentBytes(BoundContentBytes());
    if (refused.ok()) {
      refused = CheckDeadline(run.structure_id());
      if (!refused.ok()) end.state = v1::RunRecord::REFUSED;
    }
    if (!refused.ok()) {
      NoteRefusal(refused);
      failure = errors_.MakePoison(refused, {.sequence = sequence});
      PoisonRun(plan.get(), run_, failure, &storages_);
      *metadata->mutable_error() = *failure;
    } else {
      end.device_time = Execute(sequence, run.structure_id(), *plan, *lifetimes,
                                run.mode(), metadata);
      failure = errors_.oldest_new();
    }
  }
  const absl::Duration now = environment_.clock->Monotonic();
  NoteRunOver(*metadata, message_arrived_, now);
  environment_.counters->recomputed_nodes += run.recomputed_nodes();
  end.failure = failure.get();
  NoteRunEnds(std::move(end), now);
  // Of a run that was left out there is nothing to say: the session goes, and
  // its end says why.
  if (run.reply_metadata() && !stopped_) {
    metadata->set_sequence(sequence);
    Reply(std::move(response));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
