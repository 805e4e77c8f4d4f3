// What really ran, as a trace that `djinnctl simulate` plays.
#ifndef COORDINATOR_CTL_RECORDING_H_
#define COORDINATOR_CTL_RECORDING_H_

#include <string>
#include <vector>

#include "djinn/v1/admin.pb.h"

namespace djinn::ctl {

// The file's text (scheduler/simulator/trace_file.h). A job's work is what its
// graph says, times what its runs took beyond the roofline of the worker that
// they ran on: there, it takes as long as it did. Of a graph of which nothing
// is known it is as many operations as the worker does in that time. Jobs of
// workers whose speed is not known are left out, and counted in a comment.
std::string TraceOf(const std::vector<v1::WorkerInfo>& workers,
                    const std::vector<v1::TenantInfo>& tenants,
                    const std::vector<v1::RecordedJob>& jobs);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_RECORDING_H_
