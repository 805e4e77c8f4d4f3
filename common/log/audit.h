// Writes the audit log: a line per change that an operator makes or attempts.
#ifndef COMMON_LOG_AUDIT_H_
#define COMMON_LOG_AUDIT_H_

#include "common/log/log.h"

namespace djinn::log {

// Writes an "audit" line at every level but `off`, so that a process that logs
// warnings alone keeps its audit log. Thread-safe.
void Audit(Fields fields);

}  // namespace djinn::log

#endif  // COMMON_LOG_AUDIT_H_
