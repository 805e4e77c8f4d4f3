#include "coordinator/tables/unreached_workers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/string_view.h"

namespace djinn::coordinator {

void UnreachedWorkers::Add(const std::string& worker_id,
                           const std::string& tenant,
                           const std::string& session_id, absl::Duration now) {
  Reports& reports = workers_[worker_id];
  reports.insert_or_assign(session_id, Report{tenant, now});
  if (reports.size() <= kMaxReports) return;
  reports.erase(std::min_element(reports.begin(), reports.end(),
                                 [](const auto& a, const auto& b) {
                                   return a.second.time < b.second.time;
                                 }));
}

void UnreachedWorkers::Reached(const std::string& worker_id,
                               const std::string& tenant) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  for (auto& [session_id, report] : found->second) {
    if (report.tenant == tenant) report.refuted = true;
  }
}

void UnreachedWorkers::Forget(const std::string& worker_id) {
  workers_.erase(worker_id);
}

void UnreachedWorkers::Expire(absl::Duration now) {
  for (auto it = workers_.begin(); it != workers_.end();) {
    std::erase_if(it->second, [&](const auto& report) {
      return !report.second.counts(now);
    });
    it = it->second.empty() ? workers_.erase(it) : std::next(it);
  }
}

absl::flat_hash_set<std::string> UnreachedWorkers::AvoidedBy(
    const std::string& tenant, const std::string& session_id,
    absl::Duration now) const {
  absl::flat_hash_set<std::string> avoided;
  for (const auto& [worker_id, reports] : workers_) {
    bool avoids = SummaryOf(reports, now).by_everyone();
    for (const auto& [reporter, report] : reports) {
      if (avoids) break;
      avoids =
          report.counts(now) && (reporter == session_id ||
                                 (report.tenant == tenant && !report.refuted));
    }
    if (avoids) avoided.insert(worker_id);
  }
  return avoided;
}

UnreachedWorkers::Summary UnreachedWorkers::Summarize(
    const std::string& worker_id, absl::Duration now) const {
  const auto found = workers_.find(worker_id);
  return found == workers_.end() ? Summary() : SummaryOf(found->second, now);
}

UnreachedWorkers::Summary UnreachedWorkers::SummaryOf(const Reports& reports,
                                                      absl::Duration now) {
  Summary summary;
  absl::flat_hash_set<absl::string_view> tenants;
  for (const auto& [session_id, report] : reports) {
    if (!report.counts(now)) continue;
    ++summary.sessions;
    summary.last = std::max(summary.last, report.time);
    if (!report.refuted) tenants.insert(report.tenant);
  }
  summary.tenants = tenants.size();
  return summary;
}

}  // namespace djinn::coordinator
