// Converts a record of executed jobs to a trace that `djinnctl simulate` plays.
#ifndef COORDINATOR_CTL_RECORDING_H_
#define COORDINATOR_CTL_RECORDING_H_

#include <string>
#include <vector>

#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// Returns the file's text (scheduler/simulator/trace_file.h). A job's work is
// that of its graph, multiplied by the ratio of its measured times to the
// roofline of its worker; on that worker it therefore takes as long as it did.
// The work of an unknown graph is the operations that the worker executes in
// that time. Omits jobs of workers whose speed is unknown, and counts them in a
// comment.
std::string TraceOf(const std::vector<v1::WorkerInfo>& workers,
                    const std::vector<v1::TenantInfo>& tenants,
                    const std::vector<v1::RecordedJob>& jobs);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_RECORDING_H_
