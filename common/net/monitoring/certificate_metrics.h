// Says when the certificates of a process expire, so that an alert comes before
// the failure.
#ifndef COMMON_NET_MONITORING_CERTIFICATE_METRICS_H_
#define COMMON_NET_MONITORING_CERTIFICATE_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/metrics/exposition.h"

namespace djinn {

// Returns the time after which the first certificate of a PEM file is invalid.
// Returns FailedPrecondition (TLS_FILES), which names the file and the fault.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& path);

// Returns a source that reads the files at each scrape, as renewed certificates
// are read again, too. `files` are pairs of the configuration's key and the
// path; those with an empty path are left out. A file that cannot be read
// counts as expired in 1970.
MetricsSource CertificateMetrics(
    std::vector<std::pair<std::string, std::string>> files);

}  // namespace djinn

#endif  // COMMON_NET_MONITORING_CERTIFICATE_METRICS_H_
