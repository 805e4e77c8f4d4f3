// Finds settings that a reload cannot change while the coordinator runs.
#ifndef COORDINATOR_CONFIG_PENDING_SETTINGS_H_
#define COORDINATOR_CONFIG_PENDING_SETTINGS_H_

#include <string>
#include <vector>

#include "coordinator/config/config.h"

namespace djinn::coordinator {

// Names of the settings, by their keys in the file, that `read` says otherwise
// than `running`, tenants apart: they count when the coordinator starts again.
std::vector<std::string> PendingSettings(const Config& running,
                                         const Config& read);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_PENDING_SETTINGS_H_
