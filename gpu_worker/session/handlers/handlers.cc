#include "gpu_worker/session/handlers/handlers.h"

#include "absl/strings/str_cat.h"
#include "gpu_worker/session/base/violation.h"

namespace djinn::worker {

absl::Status Handle(SessionState& s, const v1::Ordered& message) {
  const uint64_t sequence = message.sequence();
  // Also applies to the rest of an Install that waits for its bytes.
  s.errors.set_lane(message.lane());
  if (s.leaving && !message.migrate().has_stay()) {
    return Violation(
        absl::StrCat("message ", sequence, " of a session that left"));
  }
  switch (message.action_case()) {
    case v1::Ordered::kDefineGraph:
      s.profiling.Enter(SessionProfile::kAdmission);
      return HandleDefine(s, sequence, message.define_graph());
    case v1::Ordered::kRun:
      s.profiling.Enter(SessionProfile::kAdmission);
      return HandleRun(s, sequence, message.run());
    case v1::Ordered::kInstall:
      s.profiling.Enter(SessionProfile::kBind);
      return HandleInstall(s, sequence, message.install());
    case v1::Ordered::kCreateStorage:
      s.profiling.Enter(SessionProfile::kBind);
      return HandleCreate(s, sequence, message.create_storage());
    case v1::Ordered::kRead:
      s.profiling.Enter(SessionProfile::kReply);
      return HandleRead(s, sequence, message.read());
    case v1::Ordered::kFree:
      s.profiling.Enter(SessionProfile::kBind);
      return HandleFree(s, message.free());
    case v1::Ordered::kOffer:
      return HandleOffer(s, sequence, message.offer());
    case v1::Ordered::kProfile:
      return HandleProfile(s, sequence, message.profile());
    case v1::Ordered::kMigrate:
      return HandleMigrate(s, sequence, message.migrate());
    case v1::Ordered::kMeter:
      return HandleMeter(s, sequence);
    case v1::Ordered::kRegisterModel:
      return HandleModel(s, sequence, message.register_model());
    case v1::Ordered::ACTION_NOT_SET:
      break;
  }
  return Violation(absl::StrCat("message ", sequence,
                                " without an action this worker knows"));
}

}  // namespace djinn::worker
