// What counts of what a session says of its runs.
#ifndef COORDINATOR_CONFIG_URGENCY_H_
#define COORDINATOR_CONFIG_URGENCY_H_

#include "coordinator/config/tenants.h"
#include "djinn/v1/lease.pb.h"

namespace djinn::coordinator {

// Nothing but what this program knows: what is signed and sent on must not
// carry what a peer put there besides.
v1::Urgency KnownUrgency(const v1::Urgency& said);

// What counts of it for the tenant's sessions.
v1::Urgency AllowedUrgency(const Tenant& tenant, const v1::Urgency& asked);
// The same; null, whose tenant is not configured: as it was asked.
v1::Urgency AllowedUrgency(const Tenant* tenant, const v1::Urgency& asked);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_URGENCY_H_
