#include "coordinator/config/quota_trial.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace djinn::coordinator {
namespace {

using scheduler::Quota;
using scheduler::QuotaTree;
using scheduler::RateQuota;
using scheduler::RateShare;
using scheduler::Resource;

// The limits of the configuration.
constexpr double kMaxDeviceRate = 1e6;
constexpr double kMaxMessages = std::numeric_limits<uint32_t>::max();
// Greater quotas count as unlimited.
constexpr double kMaxBytes = static_cast<double>(Quota::kUnlimited) / 2;

std::optional<Resource> FindResource(absl::string_view name) {
  for (size_t i = 0; i < scheduler::kResources; ++i) {
    const auto resource = static_cast<Resource>(i);
    if (scheduler::ResourceName(resource) == name) return resource;
  }
  return std::nullopt;
}

absl::Status BadQuota(absl::string_view resource, absl::string_view key,
                      absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_QUOTA",
                   absl::StrCat(resource, ".", key, " ", why));
}

// Fills the amounts of a message, which has the fields of v1::QuotaAmounts.
template <typename Message>
Message Described(const auto& quota) {
  Message described;
  described.set_nominal(static_cast<double>(quota.nominal));
  if (quota.borrowing_limit.has_value()) {
    described.set_borrowing_limit(static_cast<double>(*quota.borrowing_limit));
  }
  if (quota.lending_limit.has_value()) {
    described.set_lending_limit(static_cast<double>(*quota.lending_limit));
  }
  return described;
}

v1::ResourceQuota Described(absl::string_view resource, const auto& quota) {
  auto described = Described<v1::ResourceQuota>(quota);
  described.set_resource(std::string(resource));
  return described;
}

template <typename Quota, typename Amount>
Quota QuotaFrom(const v1::QuotaAmounts& amounts) {
  Quota quota;
  quota.nominal = static_cast<Amount>(amounts.nominal());
  if (amounts.has_borrowing_limit()) {
    quota.borrowing_limit = static_cast<Amount>(amounts.borrowing_limit());
  }
  if (amounts.has_lending_limit()) {
    quota.lending_limit = static_cast<Amount>(amounts.lending_limit());
  }
  return quota;
}

bool SameStanding(const v1::ResourceQuota& a, const v1::ResourceQuota& b) {
  return a.borrowed() == b.borrowed() && a.lent() == b.lent();
}

void AddOther(const std::string& tenant, const v1::ResourceQuota& before,
              const v1::ResourceQuota& after, v1::TryQuotaResponse* response) {
  if (SameStanding(before, after)) return;
  v1::TryQuotaResponse::Change* const change = response->add_others();
  change->set_tenant(tenant);
  *change->mutable_before() = before;
  *change->mutable_after() = after;
}

// Returns whether the tenant would reclaim quota from the other one if it asked
// for all of its own.
bool TakesBack(const QuotaTree& tree, const scheduler::TenantQuota& tenant,
               const std::string& from, Resource resource) {
  const auto index = static_cast<size_t>(resource);
  const Quota& quota = tenant.quotas[index];
  if (!quota.limited()) return false;
  scheduler::Amounts asked = {};
  asked[index] = quota.nominal - tree.Used(tenant.tenant, resource);
  return asked[index] > tree.Free(tenant.tenant, resource) &&
         tree.MayTakeBack(tenant.tenant, from, asked);
}

}  // namespace

v1::ResourceQuota DescribeAmount(const QuotaTree& tree,
                                 const std::string& tenant, Resource resource,
                                 const Quota& quota) {
  v1::ResourceQuota described =
      Described(scheduler::ResourceName(resource), quota);
  described.set_used(static_cast<double>(tree.Used(tenant, resource)));
  described.set_borrowed(static_cast<double>(tree.Borrowed(tenant, resource)));
  described.set_lent(static_cast<double>(tree.Lent(tenant, resource)));
  return described;
}

v1::ResourceQuota DescribeRate(absl::string_view resource,
                               const RateQuota& quota, double used,
                               const RateShare& share) {
  v1::ResourceQuota described = Described(resource, quota);
  described.set_used(used);
  described.set_borrowed(share.borrowed);
  described.set_lent(share.lent);
  return described;
}

absl::Status CheckResource(absl::string_view resource) {
  if (FindResource(resource).has_value() || resource == kDeviceRate ||
      resource == kByteRate) {
    return absl::OkStatus();
  }
  std::vector<absl::string_view> known = {kDeviceRate, kByteRate};
  for (size_t i = 0; i < scheduler::kResources; ++i) {
    known.push_back(scheduler::ResourceName(static_cast<Resource>(i)));
  }
  return MakeError(absl::StatusCode::kInvalidArgument, "RESOURCE_UNKNOWN",
                   absl::StrCat("there is no resource \"", resource,
                                "\": one of ", absl::StrJoin(known, ", ")));
}

absl::Status CheckQuota(absl::string_view resource,
                        const v1::QuotaAmounts& amounts, const Tenant& tenant) {
  DJINN_RETURN_IF_ERROR(CheckResource(resource));
  const double most = resource == kDeviceRate ? kMaxDeviceRate
                      : FindResource(resource) == Resource::kOutstandingMessages
                          ? kMaxMessages
                          : kMaxBytes;
  struct Value {
    absl::string_view key;
    std::optional<double> value;
  };
  const Value values[] = {
      {"nominalQuota", amounts.nominal()},
      {"borrowingLimit", amounts.has_borrowing_limit()
                             ? std::optional(amounts.borrowing_limit())
                             : std::nullopt},
      {"lendingLimit", amounts.has_lending_limit()
                           ? std::optional(amounts.lending_limit())
                           : std::nullopt}};
  for (const auto& [key, value] : values) {
    if (!value.has_value()) continue;
    // The negated comparison also rejects NaN.
    if (!(*value >= 0 && *value <= most)) {
      return BadQuota(
          resource, key,
          absl::StrCat("must be from 0 to ", most, ", got ", *value));
    }
    if (resource != kDeviceRate && *value != std::floor(*value)) {
      return BadQuota(resource, key,
                      absl::StrCat("must be a whole number, got ", *value));
    }
    if (key != "nominalQuota" && tenant.cohort.empty()) {
      return BadQuota(resource, key,
                      absl::StrCat("would mean nothing: tenant ", tenant.name,
                                   " has no cohort to borrow from or lend to"));
    }
  }
  return absl::OkStatus();
}

void PutQuota(absl::string_view resource, const v1::QuotaAmounts& amounts,
              Tenant* tenant) {
  if (resource == kDeviceRate) {
    tenant->device_rate = QuotaFrom<RateQuota, double>(amounts);
    tenant->credits.device_time_rated = true;
  } else if (resource == kByteRate) {
    tenant->byte_rate = QuotaFrom<RateQuota, double>(amounts);
    tenant->credits.bytes_rated = true;
  } else {
    tenant->quotas[static_cast<size_t>(*FindResource(resource))] =
        QuotaFrom<Quota, int64_t>(amounts);
  }
}

std::optional<v1::QuotaAmounts> QuotaOf(absl::string_view resource,
                                        const Tenant& tenant) {
  const auto described = [](const auto& quota) {
    return Described<v1::QuotaAmounts>(quota);
  };
  if (resource == kDeviceRate || resource == kByteRate) {
    const std::optional<RateQuota>& rate =
        resource == kDeviceRate ? tenant.device_rate : tenant.byte_rate;
    return rate.has_value() ? std::optional(described(*rate)) : std::nullopt;
  }
  const Quota& quota =
      tenant.quotas[static_cast<size_t>(*FindResource(resource))];
  return quota.limited() ? std::optional(described(quota)) : std::nullopt;
}

v1::QuotaAmounts TriedAmounts(const v1::TryQuotaRequest& request) {
  v1::QuotaAmounts amounts;
  amounts.set_nominal(request.nominal());
  if (request.has_borrowing_limit()) {
    amounts.set_borrowing_limit(request.borrowing_limit());
  }
  if (request.has_lending_limit()) {
    amounts.set_lending_limit(request.lending_limit());
  }
  return amounts;
}

v1::TryQuotaResponse TryAmount(const v1::TryQuotaRequest& request,
                               const ConfiguredQuotas& configured,
                               const QuotaTree& tree) {
  const Resource resource = *FindResource(request.resource());
  const auto index = static_cast<size_t>(resource);
  std::vector<scheduler::TenantQuota> tenants = configured.tenants;
  const auto changed = std::find_if(
      tenants.begin(), tenants.end(),
      [&](const auto& tenant) { return tenant.tenant == request.tenant(); });
  const Quota before = changed->quotas[index];
  const Quota after = QuotaFrom<Quota, int64_t>(TriedAmounts(request));
  changed->quotas[index] = after;
  QuotaTree then;
  then.Configure(tenants, configured.cohorts);
  for (const scheduler::TenantQuota& tenant : tenants) {
    scheduler::Amounts used = {};
    used[index] = tree.Used(tenant.tenant, resource);
    then.Take(tenant.tenant, used);
  }
  v1::TryQuotaResponse response;
  if (before.limited()) {
    *response.mutable_before() =
        DescribeAmount(tree, request.tenant(), resource, before);
  }
  *response.mutable_after() =
      DescribeAmount(then, request.tenant(), resource, after);
  response.set_over_nominal(
      std::max(0.0, response.after().used() - response.after().nominal()));
  response.set_available(
      static_cast<double>(then.Free(request.tenant(), resource)));
  for (const scheduler::TenantQuota& other : tenants) {
    if (other.tenant == request.tenant()) continue;
    const Quota& quota = other.quotas[index];
    if (quota.limited()) {
      AddOther(other.tenant,
               DescribeAmount(tree, other.tenant, resource, quota),
               DescribeAmount(then, other.tenant, resource, quota), &response);
    }
    if (TakesBack(then, *changed, other.tenant, resource)) {
      response.add_reclaims_from(other.tenant);
    }
    if (TakesBack(then, other, request.tenant(), resource)) {
      response.add_reclaimed_by(other.tenant);
    }
  }
  return response;
}

v1::TryQuotaResponse TryRate(const v1::TryQuotaRequest& request,
                             const Tenant& tenant,
                             const ConfiguredRates& configured,
                             const scheduler::RateBudget& budget,
                             absl::Duration now) {
  const std::string& resource = request.resource();
  const scheduler::RateBudget::Tenant changed = {
      .name = tenant.name,
      .cohort = tenant.cohort,
      .weight = tenant.weight,
      .quota = QuotaFrom<RateQuota, double>(TriedAmounts(request))};
  const std::map<std::string, RateShare> shares = budget.Try(changed, now);
  v1::TryQuotaResponse response;
  for (const scheduler::RateBudget::Tenant& other : configured.tenants) {
    const double used = budget.RateOf(other.name);
    const v1::ResourceQuota before =
        DescribeRate(resource, other.quota, used, budget.ShareOf(other.name));
    if (other.name == tenant.name) {
      *response.mutable_before() = before;
      continue;
    }
    AddOther(other.name, before,
             DescribeRate(resource, other.quota, used, shares.at(other.name)),
             &response);
  }
  *response.mutable_after() =
      DescribeRate(resource, changed.quota, budget.RateOf(tenant.name),
                   shares.at(tenant.name));
  response.set_over_nominal(
      std::max(0.0, response.after().used() - response.after().nominal()));
  const RateShare most = budget.TryAll(changed, now);
  response.set_available(most.own + most.borrowed);
  return response;
}

}  // namespace djinn::coordinator
