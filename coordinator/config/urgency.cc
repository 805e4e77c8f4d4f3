#include "coordinator/config/urgency.h"

#include <algorithm>

#include "common/base/proto_duration.h"
#include "common/lease/priority_class.h"

namespace djinn::coordinator {

v1::Urgency KnownUrgency(const v1::Urgency& said) {
  v1::Urgency known;
  known.set_priority_class(said.priority_class());
  if (said.has_run_deadline()) {
    *known.mutable_run_deadline() =
        ToProtoDuration(FromProtoDuration(said.run_deadline()));
  }
  return known;
}

v1::Urgency AllowedUrgency(const Tenant& tenant, const v1::Urgency& asked) {
  v1::Urgency allowed = KnownUrgency(asked);
  const v1::PriorityClass counts = EffectiveClass(asked.priority_class());
  // An undeclared class stays undeclared, so that workers look at what runs.
  if (IsDeclared(asked.priority_class()) ||
      counts > tenant.max_priority_class) {
    allowed.set_priority_class(std::min(counts, tenant.max_priority_class));
  }
  return allowed;
}

v1::Urgency AllowedUrgency(const Tenant* tenant, const v1::Urgency& asked) {
  return tenant == nullptr ? asked : AllowedUrgency(*tenant, asked);
}

}  // namespace djinn::coordinator
