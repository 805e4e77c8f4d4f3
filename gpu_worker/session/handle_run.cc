// DefineStructure and Run.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu_worker/plan/admission.h"
#include "gpu_worker/session/session.h"
#include "gpu_worker/session/violation.h"

namespace djinn::worker {

absl::Status Session::HandleDefine(uint64_t sequence,
                                   const v1::DefineStructure& define) {
  const uint64_t id = define.structure_id();
  if (id == 0) return Violation("structure 0");
  if (!structures_.contains(id) &&
      structures_.size() >= limits_.max_structures()) {
    return Violation(absl::StrCat("more than ", limits_.max_structures(),
                                  " structures defined"));
  }
  v1::ControlResponse response;
  v1::Admitted* admitted = response.mutable_admitted();
  admitted->set_structure_id(id);
  Structure& structure = structures_[id];
  absl::StatusOr<AdmittedPlan> plan =
      Admit(define.structure(), environment_.caps, environment_.graphs,
            environment_.memory->device()->operators());
  if (plan.ok()) {
    admitted->set_fingerprint(plan->plan->fingerprint());
    admitted->set_cache_hit(plan->cache_hit);
    structure = {std::move(plan->plan), nullptr};
  } else {
    structure = {nullptr, errors_.Make(plan.status(), {.sequence = sequence})};
    *admitted->mutable_refused() = *structure.refused;
  }
  Reply(std::move(response));
  return absl::OkStatus();
}

absl::Status Session::HandleRun(uint64_t sequence, const v1::Run& run) {
  const auto found = structures_.find(run.structure_id());
  if (found == structures_.end()) {
    return Violation(
        absl::StrCat("structure ", run.structure_id(), " is not defined"));
  }
  const Structure& structure = found->second;
  v1::ControlResponse response;
  v1::RunMetadata* metadata = response.mutable_metadata();
  if (structure.refused != nullptr) {
    DJINN_RETURN_IF_ERROR(CheckRefusedRun(run, storages_));
    PoisonRun(nullptr, run, structure.refused, &storages_);
    *metadata->mutable_error() = *structure.refused;
  } else {
    DJINN_RETURN_IF_ERROR(CheckRun(*structure.plan, run, storages_));
    const RunContext context{sequence,
                             tenant_,
                             &storages_,
                             &quota_,
                             &errors_,
                             environment_.memory,
                             environment_.counters,
                             &cancelled_};
    ExecuteRun(*structure.plan, run, context, metadata);
  }
  if (run.reply_metadata()) {
    metadata->set_sequence(sequence);
    Reply(std::move(response));
  }
  return absl::OkStatus();
}

}  // namespace djinn::worker
