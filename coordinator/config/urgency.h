// Limits the priority and deadline that a session declares for its runs.
#ifndef COORDINATOR_CONFIG_URGENCY_H_
#define COORDINATOR_CONFIG_URGENCY_H_

#include "coordinator/config/tenants.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator {

// Returns only the fields that this program knows. A peer's unknown fields must
// not be signed and passed on.
v1::Urgency KnownUrgency(const v1::Urgency& said);

// Returns `asked` with its class lowered to the highest one that the tenant's
// sessions may have.
v1::Urgency AllowedUrgency(const Tenant& tenant, const v1::Urgency& asked);
// Does the same; null stands for a tenant that is not configured, without
// limits.
v1::Urgency AllowedUrgency(const Tenant* tenant, const v1::Urgency& asked);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_URGENCY_H_
