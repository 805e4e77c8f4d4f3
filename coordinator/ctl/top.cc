#include "coordinator/ctl/top.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/net/proto_duration.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

// "1.2GB (15%)".
std::string OfAll(uint64_t used, uint64_t all) {
  if (all == 0) return FormatBytes(used);
  return absl::StrFormat(
      "%s (%.0f%%)", FormatBytes(used),
      100 * static_cast<double>(used) / static_cast<double>(all));
}

// The header, and the rows, those with the greatest value first.
std::string Sorted(Row header, std::vector<std::pair<double, Row>> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first > b.first;
  });
  std::vector<Row> table = {std::move(header)};
  for (auto& [value, row] : rows) table.push_back(std::move(row));
  return FormatTable(table);
}

}  // namespace

std::string TopWorkers(const v1::ListWorkersResponse& workers) {
  std::vector<std::pair<double, Row>> rows;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    // A lost one has no numbers.
    const bool known = worker.has_memory();
    const uint64_t used = worker.memory_bytes() -
                          std::min(worker.memory_bytes(), worker.free_bytes());
    rows.push_back(
        {known ? worker.busy_share() : -1,
         {worker.worker_id(),
          known ? absl::StrFormat("%.0f%%", 100 * worker.busy_share()) : "-",
          known ? OfAll(used, worker.memory_bytes()) : "-",
          known ? absl::StrCat(worker.queued_runs()) : "-",
          absl::StrCat(worker.lease_count()),
          known ? absl::StrCat(worker.session_count()) : "-"}});
  }
  return Sorted({"WORKER", "BUSY", "MEMORY", "QUEUED", "LEASES", "SESSIONS"},
                std::move(rows));
}

std::string TopTenants(const v1::ListTenantsResponse& before,
                       const v1::ListTenantsResponse& after,
                       absl::Duration passed) {
  std::map<std::string, const v1::LeaseUse*> used_before;
  for (const v1::TenantInfo& tenant : before.tenants()) {
    used_before[tenant.tenant()] = &tenant.credits().used();
  }
  const double seconds = absl::ToDoubleSeconds(passed);
  std::vector<std::pair<double, Row>> rows;
  for (const v1::TenantInfo& tenant : after.tenants()) {
    const auto found = used_before.find(tenant.tenant());
    const v1::LeaseUse& used = tenant.credits().used();
    double devices = 0, bytes = 0;
    const bool known = found != used_before.end() && seconds > 0;
    if (known) {
      const v1::LeaseUse& then = *found->second;
      // Credits may have begun a new period in between.
      devices = std::max(
          0.0, absl::ToDoubleSeconds(FromProtoDuration(used.device_time()) -
                                     FromProtoDuration(then.device_time())) /
                   seconds);
      bytes = static_cast<double>(used.bytes() -
                                  std::min(used.bytes(), then.bytes())) /
              seconds;
    }
    rows.push_back(
        {known ? devices : -1,
         {tenant.tenant(), known ? absl::StrFormat("%.2f", devices) : "-",
          known ? absl::StrCat(FormatBytes(static_cast<uint64_t>(bytes)), "/s")
                : "-",
          FormatBytes(tenant.storage_bytes()),
          absl::StrCat(tenant.use().queued_runs()),
          absl::StrCat(tenant.lease_count()),
          absl::StrCat(tenant.session_count())}});
  }
  return Sorted(
      {"TENANT", "DEVICES", "MOVED", "STORAGE", "QUEUED", "LEASES", "SESSIONS"},
      std::move(rows));
}

}  // namespace djinn::ctl
