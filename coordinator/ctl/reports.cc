#include "coordinator/ctl/reports.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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

absl::Status WrongWord(absl::string_view word, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", word, "\": ", why));
}

// Returns the tenant's quota of the resource as it is. Its nominal amount is
// NaN when there is none.
v1::QuotaAmounts AmountsNow(const v1::TenantInfo& tenant,
                            absl::string_view resource) {
  v1::QuotaAmounts amounts;
  const v1::ResourceQuota* const now = FindQuota(tenant, resource);
  if (now == nullptr) {
    amounts.set_nominal(std::numeric_limits<double>::quiet_NaN());
    return amounts;
  }
  amounts.set_nominal(now->nominal());
  if (now->has_borrowing_limit()) {
    amounts.set_borrowing_limit(now->borrowing_limit());
  }
  if (now->has_lending_limit()) {
    amounts.set_lending_limit(now->lending_limit());
  }
  return amounts;
}

// Puts the value of a word into the amounts of its resource.
absl::Status PutValue(absl::string_view word, absl::string_view resource,
                      absl::string_view field, absl::string_view value,
                      v1::QuotaAmounts* amounts) {
  const bool none = value == "none";
  if (none && field == "borrowingLimit") {
    amounts->clear_borrowing_limit();
    return absl::OkStatus();
  }
  if (none && field == "lendingLimit") {
    amounts->clear_lending_limit();
    return absl::OkStatus();
  }
  const absl::StatusOr<double> amount = Amount(resource, value);
  if (!amount.ok()) return WrongWord(word, amount.status().message());
  if (field == "nominalQuota") {
    amounts->set_nominal(*amount);
  } else if (field == "borrowingLimit") {
    amounts->set_borrowing_limit(*amount);
  } else if (field == "lendingLimit") {
    amounts->set_lending_limit(*amount);
  } else {
    return WrongWord(word, absl::StrCat("\"", field,
                                        "\" is none of nominalQuota, "
                                        "borrowingLimit, lendingLimit"));
  }
  return absl::OkStatus();
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

// Returns the limits of a quota, with a comma before each; empty if it has
// none.
template <typename Quota>
std::string LimitsText(const Quota& quota) {
  std::string text;
  if (quota.has_borrowing_limit()) {
    absl::StrAppendFormat(&text, ", at most %.15g borrowed",
                          quota.borrowing_limit());
  }
  if (quota.has_lending_limit()) {
    absl::StrAppendFormat(&text, ", at most %.15g lent", quota.lending_limit());
  }
  return text;
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

std::string DescribeQuota(const v1::ResourceQuota& quota) {
  std::string text = absl::StrFormat(
      "%.15g of %.15g, %.15g borrowed, %.15g lent%s", quota.used(),
      quota.nominal(), quota.borrowed(), quota.lent(), LimitsText(quota));
  if (!quota.has_override()) return text;
  const v1::QuotaOverride& override = quota.override();
  absl::StrAppend(
      &text, "; set by ", override.set_by(), " since ",
      FormatTime(override.set_time()),
      override.until_restart() ? " until the coordinator restarts" : "",
      ", in place of ");
  if (!override.has_configured()) return text + "none";
  absl::StrAppendFormat(&text, "%.15g%s", override.configured().nominal(),
                        LimitsText(override.configured()));
  return text;
}

absl::StatusOr<v1::SetQuotaRequest> QuotaToSet(const Command& command,
                                               const v1::TenantInfo& tenant) {
  v1::SetQuotaRequest request;
  request.set_tenant(command.name);
  std::set<std::pair<std::string, std::string>> named;
  for (const std::string& word : command.words) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    const std::pair<std::string, std::string> key =
        absl::StrSplit(parts.first, absl::MaxSplits('.', 1));
    const auto& [resource, dotted] = key;
    const std::string field = dotted.empty() ? "nominalQuota" : dotted;
    if (resource.empty() || parts.second.empty()) {
      return WrongWord(word,
                       "expected RESOURCE=AMOUNT, such as "
                       "memory_bytes=64GiB");
    }
    if (!named.insert({resource, field}).second) {
      return WrongWord(word, "the same amount is given twice");
    }
    auto& quotas = *request.mutable_quotas();
    if (!quotas.contains(resource)) {
      quotas[resource] = AmountsNow(tenant, resource);
    }
    DJINN_RETURN_IF_ERROR(
        PutValue(word, resource, field, parts.second, &quotas[resource]));
  }
  for (const auto& [resource, amounts] : request.quotas()) {
    if (!std::isnan(amounts.nominal())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tenant ", command.name, " has no quota of ", resource,
                     ": name it, too, as ", resource, "=AMOUNT"));
  }
  return request;
}

std::vector<v1::TryQuotaRequest> QuotasToTry(const v1::SetQuotaRequest& set) {
  std::map<std::string, v1::QuotaAmounts> quotas;
  for (const auto& [resource, amounts] : set.quotas()) {
    quotas[resource] = amounts;
  }
  std::vector<v1::TryQuotaRequest> requests;
  for (const auto& [resource, amounts] : quotas) {
    v1::TryQuotaRequest& request = requests.emplace_back();
    request.set_tenant(set.tenant());
    request.set_resource(resource);
    request.set_nominal(amounts.nominal());
    if (amounts.has_borrowing_limit()) {
      request.set_borrowing_limit(amounts.borrowing_limit());
    }
    if (amounts.has_lending_limit()) {
      request.set_lending_limit(amounts.lending_limit());
    }
  }
  return requests;
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
                      "\nnothing was changed: without --dry-run, this sets "
                      "the quota\n");
}

}  // namespace djinn::ctl
