#include "gpu_worker/plan/admission.h"

#include <string>
#include <utility>

#include "common/srg/canonical.h"
#include "common/srg/proto_codec.h"
#include "common/status_macros.h"

namespace djinn::worker {

absl::StatusOr<AdmittedPlan> Admit(const v1::Structure& message,
                                   const srg::StructureCaps& caps,
                                   GraphCache* cache,
                                   OperatorLibrary* library) {
  DJINN_ASSIGN_OR_RETURN(srg::Structure structure, srg::FromProto(message));
  std::string fingerprint = srg::Fingerprint(structure);
  if (std::shared_ptr<const Plan> plan = cache->Find(fingerprint)) {
    return AdmittedPlan{std::move(plan), true};
  }
  DJINN_ASSIGN_OR_RETURN(srg::StructureFacts facts,
                         srg::Validate(structure, caps));
  DJINN_ASSIGN_OR_RETURN(std::unique_ptr<CompiledProgram> program,
                         library->Compile(structure));
  return AdmittedPlan{cache->Insert(std::make_shared<Plan>(
                          std::move(fingerprint), std::move(structure),
                          std::move(facts), std::move(program))),
                      false};
}

}  // namespace djinn::worker
