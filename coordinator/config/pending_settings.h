// Finds settings that a reload cannot change while the coordinator runs.
#ifndef COORDINATOR_CONFIG_PENDING_SETTINGS_H_
#define COORDINATOR_CONFIG_PENDING_SETTINGS_H_

#include <string>
#include <vector>

#include "coordinator/config/config.h"

namespace djinn::coordinator {

// Returns the keys of the settings in which `read` differs from `running`,
// except tenants. They take effect at the next start.
std::vector<std::string> PendingSettings(const Config& running,
                                         const Config& read);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_PENDING_SETTINGS_H_
