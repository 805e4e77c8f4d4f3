#include "coordinator/admin/quota_setter.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/proto_duration.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "coordinator/admin/views.h"
#include "coordinator/cluster/tenants.h"
#include "coordinator/config/quota_trial.h"
#include "coordinator/config/tenants.h"
#include "coordinator/tables/errors.h"
#include "coordinator/tables/waker.h"
#include "djinn/v1/coordinator_state.pb.h"

namespace djinn::coordinator {
namespace {

void Apply(ClusterState& state, const std::string& tenant,
           QuotaOverrides::OfTenant quotas, Wakes* wakes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mu) {
  state.quotas.overrides.Set(tenant, std::move(quotas));
  tenants::ApplyOverrides(state, wakes);
}

}  // namespace

QuotaSetter::QuotaSetter(ClusterState* cluster,
                         std::function<absl::Status()> keep)
    : cluster_(cluster), keep_(std::move(keep)) {}

absl::Status QuotaSetter::Change(
    const std::string& name,
    absl::FunctionRef<absl::Status(const Tenant*, QuotaOverrides::OfTenant*)>
        change) {
  MutexLock changing(&changing_mu_);
  QuotaOverrides::OfTenant before;
  {
    Wakes wakes;
    MutexLock lock(&cluster_->mu);
    before = cluster_->quotas.overrides.Of(name);
    QuotaOverrides::OfTenant after = before;
    const std::shared_ptr<const Tenant> tenant = cluster_->tenants->Find(name);
    DJINN_RETURN_IF_ERROR(change(tenant.get(), &after));
    Apply(*cluster_, name, std::move(after), &wakes);
  }
  const absl::Status kept = keep_();
  if (kept.ok()) return kept;
  log::Error("quotas not changed: the store does not take them",
             {{"tenant", name}, {"status", kept}});
  Wakes wakes;
  MutexLock lock(&cluster_->mu);
  Apply(*cluster_, name, std::move(before), &wakes);
  return kept;
}

absl::StatusOr<v1::TenantInfo> QuotaSetter::Set(
    const v1::SetQuotaRequest& request, absl::string_view who) {
  DJINN_RETURN_IF_ERROR(Change(
      request.tenant(),
      [&](const Tenant* tenant,
          QuotaOverrides::OfTenant* quotas) -> absl::Status {
        if (tenant == nullptr) return Unknown("TENANT", request.tenant());
        if (request.quotas().empty()) {
          return MakeError(absl::StatusCode::kInvalidArgument, "NO_QUOTA",
                           "the request names no quota to set");
        }
        for (const auto& [resource, amounts] : request.quotas()) {
          DJINN_RETURN_IF_ERROR(CheckQuota(resource, amounts, *tenant));
          v1::StoredQuota& stored = (*quotas)[resource];
          // Copies the known fields only, as nothing else is checked.
          v1::QuotaAmounts* const out = stored.mutable_amounts();
          out->Clear();
          out->set_nominal(amounts.nominal());
          if (amounts.has_borrowing_limit()) {
            out->set_borrowing_limit(amounts.borrowing_limit());
          }
          if (amounts.has_lending_limit()) {
            out->set_lending_limit(amounts.lending_limit());
          }
          stored.set_set_by(std::string(who));
          *stored.mutable_set_time() = ToProtoTimestamp(cluster_->clock->Now());
        }
        return absl::OkStatus();
      }));
  return Describe(request.tenant());
}

absl::StatusOr<v1::TenantInfo> QuotaSetter::Unset(
    const v1::UnsetQuotaRequest& request) {
  DJINN_RETURN_IF_ERROR(Change(
      request.tenant(),
      [&](const Tenant* tenant,
          QuotaOverrides::OfTenant* quotas) -> absl::Status {
        if (tenant == nullptr && quotas->empty()) {
          return Unknown("TENANT", request.tenant());
        }
        const auto not_set = [&](absl::string_view resource) {
          return MakeError(absl::StatusCode::kFailedPrecondition,
                           "QUOTA_NOT_SET",
                           absl::StrCat("no operator has set ", resource,
                                        " of tenant ", request.tenant()));
        };
        if (request.resources().empty()) {
          if (quotas->empty()) return not_set("a quota");
          quotas->clear();
        }
        for (const std::string& resource : request.resources()) {
          if (quotas->erase(resource) > 0) continue;
          DJINN_RETURN_IF_ERROR(CheckResource(resource));
          return not_set(absl::StrCat("the quota of ", resource));
        }
        return absl::OkStatus();
      }));
  return Describe(request.tenant());
}

absl::StatusOr<v1::TenantInfo> QuotaSetter::Describe(
    const std::string& tenant) {
  absl::StatusOr<v1::TenantInfo> info = views::GetTenant(*cluster_, tenant);
  if (!absl::IsNotFound(info.status())) return info;
  v1::TenantInfo removed;
  removed.set_tenant(tenant);
  return removed;
}

std::string QuotaSetter::Text(const v1::TenantInfo& tenant) {
  std::vector<std::string> texts;
  for (const v1::ResourceQuota& quota : tenant.quotas()) {
    std::string text =
        absl::StrFormat("%s=%.15g", quota.resource(), quota.nominal());
    if (quota.has_borrowing_limit()) {
      absl::StrAppendFormat(&text, ",borrowingLimit=%.15g",
                            quota.borrowing_limit());
    }
    if (quota.has_lending_limit()) {
      absl::StrAppendFormat(&text, ",lendingLimit=%.15g",
                            quota.lending_limit());
    }
    texts.push_back(std::move(text));
  }
  return texts.empty() ? "no quota" : absl::StrJoin(texts, " ");
}

std::string QuotaSetter::TextOf(const std::string& tenant) {
  const absl::StatusOr<v1::TenantInfo> info =
      views::GetTenant(*cluster_, tenant);
  return info.ok() ? Text(*info) : "unknown";
}

}  // namespace djinn::coordinator
