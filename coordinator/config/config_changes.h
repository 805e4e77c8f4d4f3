// Tells how two configurations differ, for the log and the audit log.
#ifndef COORDINATOR_CONFIG_CONFIG_CHANGES_H_
#define COORDINATOR_CONFIG_CONFIG_CHANGES_H_

#include <string>
#include <vector>

#include "coordinator/config/config.h"

namespace djinn::coordinator {

// Returns the changes of tenants, cohorts, operators and the join token from
// one configuration to the next, such as "added: operator eva (admin); changed:
// tenant red, operator vera (viewer to operator, token), join token; removed:
// tenant blue". Has no secrets. Returns an empty text when there are none.
std::string ConfigChanges(const Config& from, const Config& to);

// Returns the keys of the settings in which `read` differs from `running`,
// except those of ConfigChanges(). A reload cannot change them: they take
// effect at the next start.
std::vector<std::string> PendingSettings(const Config& running,
                                         const Config& read);

}  // namespace djinn::coordinator

#endif  // COORDINATOR_CONFIG_CONFIG_CHANGES_H_
