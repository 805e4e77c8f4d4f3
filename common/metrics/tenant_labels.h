// Gives each of the first kMost tenants its own label, and all other tenants
// the label "_other", so that a cluster with thousands of tenants does not have
// thousands of series per metric.
//
// Thread-safe. A tenant keeps its label.
#ifndef COMMON_METRICS_TENANT_LABELS_H_
#define COMMON_METRICS_TENANT_LABELS_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "common/base/mutex.h"

namespace djinn {

class TenantLabels {
 public:
  static constexpr size_t kMost = 200;

  // Returns the value of the label `tenant`. An empty name stays empty and
  // means no tenant.
  std::string For(const std::string& tenant) {
    if (tenant.empty()) return tenant;
    MutexLock lock(&mu_);
    if (names_.contains(tenant)) return tenant;
    if (names_.size() >= kMost) return "_other";
    names_.insert(tenant);
    return tenant;
  }

 private:
  Mutex mu_;
  absl::flat_hash_set<std::string> names_ ABSL_GUARDED_BY(mu_);
};

}  // namespace djinn

#endif  // COMMON_METRICS_TENANT_LABELS_H_
