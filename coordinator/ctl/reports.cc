#include "coordinator/ctl/reports.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/config/config_reader.h"
#include "coordinator/ctl/table.h"

namespace djinn::ctl {
namespace {

// Returns an amount and its percentage, such as "1.2GB (15%)".
std::string OfAll(uint64_t used, uint64_t all) {
  if (all == 0) return FormatBytes(used);
  return absl::StrFormat(
      "%s (%.0f%%)", FormatBytes(used),
      100 * static_cast<double>(used) / static_cast<double>(all));
}

// Returns a table with the rows of the greatest values first.
std::string Sorted(Row header, std::vector<std::pair<double, Row>> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first > b.first;
  });
  std::vector<Row> table = {std::move(header)};
  for (auto& [value, row] : rows) table.push_back(std::move(row));
  return FormatTable(table);
}

bool IsInBytes(absl::string_view resource) {
  return absl::StrContains(resource, "bytes");
}

absl::StatusOr<double> Amount(absl::string_view resource,
                              absl::string_view text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number;
  if (IsInBytes(resource)) {
    DJINN_ASSIGN_OR_RETURN(const uint64_t bytes, ParseSize(text));
    return static_cast<double>(bytes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected a number of ", resource, ", got \"", text, "\""));
}

const v1::ResourceQuota* FindQuota(const v1::TenantInfo& tenant,
                                   absl::string_view resource) {
  for (const v1::ResourceQuota& quota : tenant.quotas()) {
    if (quota.resource() == resource) return &quota;
  }
  return nullptr;
}

// Returns the flag's amount, nothing for "none", or `before` without the flag.
absl::StatusOr<std::optional<double>> Limit(
    const Command& command, const std::optional<std::string>& flag,
    std::optional<double> before) {
  if (!flag.has_value()) return before;
  if (*flag == "none") return std::nullopt;
  DJINN_ASSIGN_OR_RETURN(const double limit, Amount(command.resource, *flag));
  return std::optional(limit);
}

std::string Number(absl::string_view resource, double value) {
  if (IsInBytes(resource) && value >= 1000) {
    return absl::StrFormat("%.15g (%s)", value,
                           FormatBytes(static_cast<uint64_t>(value)));
  }
  return absl::StrFormat("%.6g", value);
}

std::string Names(const google::protobuf::RepeatedPtrField<std::string>& names,
                  absl::string_view nobody) {
  return names.empty() ? std::string(nobody) : absl::StrJoin(names, ", ");
}

}  // namespace

std::string TopWorkers(const v1::ListWorkersResponse& workers) {
  std::vector<std::pair<double, Row>> rows;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    // A lost worker reports no numbers.
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
      // Credits may have begun a new period in between, which resets the use.
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

absl::StatusOr<v1::TryQuotaRequest> TriedQuota(const Command& command,
                                               const v1::TenantInfo& tenant) {
  v1::TryQuotaRequest request;
  request.set_tenant(command.name);
  request.set_resource(command.resource);
  DJINN_ASSIGN_OR_RETURN(const double nominal,
                         Amount(command.resource, command.nominal));
  request.set_nominal(nominal);
  std::optional<double> borrowing, lending;
  if (const auto* const before = FindQuota(tenant, command.resource)) {
    if (before->has_borrowing_limit()) borrowing = before->borrowing_limit();
    if (before->has_lending_limit()) lending = before->lending_limit();
  }
  DJINN_ASSIGN_OR_RETURN(borrowing,
                         Limit(command, command.borrowing_limit, borrowing));
  DJINN_ASSIGN_OR_RETURN(lending,
                         Limit(command, command.lending_limit, lending));
  if (borrowing.has_value()) request.set_borrowing_limit(*borrowing);
  if (lending.has_value()) request.set_lending_limit(*lending);
  return request;
}

std::string Report(const v1::TryQuotaRequest& request,
                   const v1::TryQuotaResponse& response) {
  const std::string& resource = request.resource();
  const v1::ResourceQuota& before = response.before();
  const v1::ResourceQuota& after = response.after();
  const auto number = [&](double value) { return Number(resource, value); };
  const auto limit = [&](bool limited, double value) {
    return limited ? number(value) : std::string("none");
  };
  // Returns the value before and after, or only the latter if there was none.
  const auto change = [&](const std::string& was, const std::string& is) {
    if (!response.has_before()) return is;
    return was == is ? is : absl::StrCat(was, " -> ", is);
  };
  std::string text = FormatTable(
      {{"tenant", request.tenant()},
       {"quota of", resource},
       {"nominal", change(number(before.nominal()), number(after.nominal()))},
       {"borrowing limit",
        change(limit(before.has_borrowing_limit(), before.borrowing_limit()),
               limit(after.has_borrowing_limit(), after.borrowing_limit()))},
       {"lending limit",
        change(limit(before.has_lending_limit(), before.lending_limit()),
               limit(after.has_lending_limit(), after.lending_limit()))},
       {"used", number(after.used())},
       {"borrowed",
        change(number(before.borrowed()), number(after.borrowed()))},
       {"lent", change(number(before.lent()), number(after.lent()))},
       {"over nominal", number(response.over_nominal())},
       {"available", number(response.available())},
       {"takes back from", Names(response.reclaims_from(), "nobody")},
       {"gives back to", Names(response.reclaimed_by(), "nobody")}});
  if (response.others_size() > 0) {
    std::vector<Row> rows = {{"TENANT", "BORROWED", "LENT"}};
    for (const v1::TryQuotaResponse::Change& other : response.others()) {
      const auto arrow = [&](double was, double is) {
        return was == is ? number(is)
                         : absl::StrCat(number(was), " -> ", number(is));
      };
      rows.push_back(
          {other.tenant(),
           arrow(other.before().borrowed(), other.after().borrowed()),
           arrow(other.before().lent(), other.after().lent())});
    }
    absl::StrAppend(&text, "\n", FormatTable(rows));
  }
  return absl::StrCat(text,
                      "\nnothing was changed: quotas are set in the "
                      "coordinator's configuration, then `djinnctl reload`\n");
}

}  // namespace djinn::ctl
